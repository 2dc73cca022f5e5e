"""Run AutoTransfer with default options on data sets and compare it with the baselines of each run.

    python -m benchmarks.default_runs DATA.npz... --runs FOLDER --out FILE.csv [--adaptation zero-shot transductive]
        [--cases docs/results]

Each run has default options except those that are given here, and the CSV records time and seeds. Interrupted runs are
resumed and finished runs are only read, so an interrupted command can be repeated. Every score is nested: the subject
contributes neither to the weights nor to the decision to stop. A row of the CSV is one subject: `score` of the
delivered model, `first` of the first interim result, the score of each baseline by name, the number of stages of the
run, the seconds until its first and last interim result, and the commit of the run (of older rows: the commit with
which they were stored).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from autotransfer.runs.choice import Choice, read_choice
from autotransfer.words import score

from .cases import add_cases
from .csv_rows import build_parser, replace_rows
from .evidence import RUN_COLUMNS, read_scores
from .inference import estimate_mean
from .markdown import join_words, markdown


def perform_run(folder: Path, arguments: Sequence[str]) -> Choice:
    """Start the run in this folder, or resume it, and return its choice."""
    command = ["resume", str(folder)] if folder.exists() else ["run", *arguments, "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "autotransfer", *command], check=True)
    return read_choice(folder)


def build_rows(name: str, adaptation: str, time: str, seeds: int, choice: Choice) -> Iterator[dict[str, Any]]:
    """Yield a row for each subject."""
    first, last = choice.stages[0], choice.stages[-1]
    version = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True).stdout.strip()
    for subject, value in choice.estimate.items():
        yield {
            "data": name, "adaptation": adaptation, "version": version, "subject": subject, "score": round(value, 4),
            "first": round(first.scores.get(subject, np.nan), 4), "stages": len(choice.stages),
            "first_seconds": round(first.seconds), "seconds": round(last.seconds), "time": time, "seeds": seeds,
            **{baseline: round(scores.get(subject, np.nan), 4) for baseline, scores in choice.baselines.items()},
        }  # fmt: skip


def describe_versions(folder: Path) -> str:
    """Return the commits and seeds of the runs in one sentence for each adaptation."""
    table = read_scores(folder, "default_runs")
    lines = []
    for adaptation, runs in table.groupby("adaptation", sort=False):
        parts = []
        for (version, seeds), group in runs.groupby(["version", "seeds"]):
            sets = sorted(group["data"].unique())
            parts.append(
                f"{len(sets)} have {seeds} seed{'s' * (str(seeds) != '1')} (commit {version}: {', '.join(sets)})"
            )
        lines.append(f"- Of {runs['data'].nunique()} {adaptation} runs, {join_words(parts)}.")
    return "\n".join(sorted(lines, reverse=True)) + "\n"


def format_table(table: pd.DataFrame) -> str:
    """Return mean scores by data set and adaptation, and the difference to the baseline with the highest mean."""
    baselines = [name for name in table.columns if name not in RUN_COLUMNS]
    # A run has only the baselines for its signal.
    table = table.assign(**{name: pd.to_numeric(table[name], errors="coerce") for name in baselines})
    adaptations = list(dict.fromkeys(table["adaptation"].sort_values(ascending=False)))
    rows = []
    for data, runs in table.groupby("data", sort=True):
        cells = [str(data), str(runs["subject"].nunique())]
        for adaptation in adaptations:
            scores = runs[runs["adaptation"] == adaptation]
            best = scores[baselines].mean().idxmax() if len(scores) else None
            cells.append("–" if best is None else _cell(scores["score"], scores[best]))
        rows.append(cells)
    return markdown(["data set", "subjects", *(f"{name}: baseline → AutoTransfer" for name in adaptations)], rows)


def _cell(ours: pd.Series[float], best: pd.Series[float]) -> str:
    return f"{score(best.mean())} → {score(ours.mean())}, {estimate_mean(ours - best)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser(__doc__, None, "device")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--adaptation", nargs="+", default=["zero-shot"], help="zero-shot, online or transductive")
    parser.add_argument("--time", default="10m", help="time limit of each run")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each run")
    parser.add_argument("--cases", type=Path, help="folder of the tables of benchmarks.cases, to which rows are added")
    options = parser.parse_args(arguments)
    shared = ["--device", options.device, "--time", options.time, "--seeds", str(options.seeds)]
    for source in options.files:
        for adaptation in options.adaptation:
            name = Path(source).stem
            choice = perform_run(options.runs / f"{name}-{adaptation}", [source, "--adaptation", adaptation, *shared])
            rows = pd.DataFrame(list(build_rows(name, adaptation, options.time, options.seeds, choice)))
            table = replace_rows(options.out, rows, "data", "adaptation")
            if options.cases is not None:
                add_cases(options.cases, name, choice, rows)
    print(format_table(table))


if __name__ == "__main__":
    main()
