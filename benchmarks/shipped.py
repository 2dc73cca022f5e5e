"""Run AutoTransfer with default options on several data sets and compare it with the baselines of each run.

    python -m benchmarks.shipped DATA.npz... --runs FOLDER --out shipped.csv [--adaptation zero-shot transductive]

Each run has default options except those that are given here, and the CSV records time and seeds. A run that was
interrupted is resumed, and a finished run is only read, so an interrupted command is simply repeated. Every score is
nested: the subject had no part in finding the weights nor in the decision to stop. A row of the CSV is one subject:
`score` of the delivered model, `first` of the first interim result, the score of each baseline by name, and of the run
the number of stages and the seconds until its first and last interim result.

To measure what a limit of time costs, run the same sets on two cores with a limit (`--device cpu --time 24m`) and on a
GPU without one (`--device cuda --time none`), then use `benchmarks.anytime`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, read_choice

from .csv_rows import command, replace_rows
from .evidence import table_of
from .inference import mean_of
from .markdown import markdown

FIXED = ["data", "adaptation", "subject", "score", "first", "stages", "first_seconds", "seconds", "time", "seeds"]


def performed(folder: Path, arguments: Sequence[str]) -> Choice:
    """Start the run in this folder, or resume it, and return its choice."""
    command = ["resume", str(folder)] if folder.exists() else ["run", *arguments, "--out", str(folder)]
    subprocess.run([sys.executable, "-m", "autotransfer", *command], check=True)
    return read_choice(folder)


def rows_of(name: str, adaptation: str, time: str, seeds: int, choice: Choice) -> Iterator[dict[str, Any]]:
    """Yield a row for each subject."""
    first, last = choice.stages[0], choice.stages[-1]
    for subject, value in choice.estimate.items():
        yield {
            "data": name, "adaptation": adaptation, "subject": subject, "score": round(value, 4),
            "first": round(first.scores.get(subject, np.nan), 4), "stages": len(choice.stages),
            "first_seconds": round(first.seconds), "seconds": round(last.seconds), "time": time, "seeds": seeds,
            **{baseline: round(scores.get(subject, np.nan), 4) for baseline, scores in choice.baselines.items()},
        }  # fmt: skip


def as_shipped(folder: Path) -> str:
    """Return the table of docs/results.md from shipped.csv."""
    return compared(table_of(folder, "shipped"))


def compared(table: pd.DataFrame) -> str:
    """Return mean scores by data set and adaptation, and the difference to the baseline with the highest mean."""
    baselines = [name for name in table.columns if name not in FIXED]
    # Some runs lack some baselines.
    table = table.assign(**{name: pd.to_numeric(table[name], errors="coerce") for name in baselines})
    adaptations = list(dict.fromkeys(table["adaptation"].sort_values(ascending=False)))
    rows = []
    for data, runs in table.groupby("data", sort=True):
        cells = [str(data), str(runs["subject"].nunique())]
        for adaptation in adaptations:
            people = runs[runs["adaptation"] == adaptation]
            best = people[baselines].mean().idxmax() if len(people) else None
            cells.append("–" if best is None else _cell(people["score"], people[best]))
        rows.append(cells)
    return markdown(["data set", "subjects", *(f"{name}: baseline → AutoTransfer" for name in adaptations)], rows)


def _cell(ours: pd.Series[float], best: pd.Series[float]) -> str:
    return f"{score(best.mean())} → {score(ours.mean())}, {mean_of(ours - best)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, None, "device")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--adaptation", nargs="+", default=["zero-shot"], help="zero-shot, online, transductive")
    parser.add_argument("--time", default="30m", help="limit of time of each run")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each run")
    asked = parser.parse_args(arguments)
    shared = ["--device", asked.device, "--time", asked.time, "--seeds", str(asked.seeds)]
    for source in asked.files:
        for adaptation in asked.adaptation:
            name = Path(source).stem
            choice = performed(asked.runs / f"{name}-{adaptation}", [source, "--adaptation", adaptation, *shared])
            rows = pd.DataFrame(list(rows_of(name, adaptation, asked.time, asked.seeds, choice)))
            table = replace_rows(asked.out, rows, "data", "adaptation")
    print(compared(table))


if __name__ == "__main__":
    main()
