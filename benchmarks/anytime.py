"""Collect the interim results of runs, which show how the score increases with time.

    python -m benchmarks.anytime RUN... --machine "two cores" --out docs/results/anytime.csv

A row of the CSV is one interim result, with the mean nested score over subjects and the seconds since the run began.
`end_reason` is empty if the run was stopped. New rows replace rows with the same data set and machine. A second file,
last_scores.csv, has the last score of each subject, so that machines can be compared by subject.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from autotransfer.runs.choice import Choice, read_choice
from autotransfer.words import score

from .csv_rows import replace_rows
from .evidence import read_scores
from .inference import mean_over_subjects
from .markdown import markdown

EARLY = 180  # seconds until the column "after 3 min"
LIMITED, FULL = "two cores", "H200, shared"  # machines of the runs with and without a time limit


def build_rows(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """Return a row for each interim result."""
    return [
        {
            "data": data, "machine": machine, "subjects": len(result.scores), "result": number, "stage": result.name,
            "seconds": round(result.seconds, 1), "score": round(result.score, 4), "end_reason": choice.end_reason or "",
        }
        for number, result in enumerate(choice.stages, 1)
    ]  # fmt: skip


def build_last_scores(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """Return a row with the last score of each subject."""
    last = choice.stages[-1]
    return [
        {"data": data, "machine": machine, "subject": subject, "score": round(value, 4)}
        for subject, value in last.scores.items()
    ]


def limit_costs(folder: Path) -> str:
    """Return the table of docs/results.md from anytime.csv and last_scores.csv."""
    results, last = read_scores(folder, "anytime"), read_scores(folder, "last_scores")
    runs = dict(list(results.groupby(["data", "machine"])))
    scores = last.set_index(["data", "subject", "machine"])["score"].unstack("machine").dropna()
    differences = (scores[LIMITED] - scores[FULL]).rename("difference").reset_index()
    by_set = {str(data): dict(zip(part["subject"], part["difference"], strict=True))
              for data, part in differences.groupby("data", sort=True)}  # fmt: skip
    lines = []
    for data, by_subject in by_set.items():
        limited, full = runs[data, LIMITED], runs[data, FULL]
        early = limited[limited["seconds"] <= EARLY]["score"]
        cells = [_format_result(limited.iloc[0]), score(early.iloc[-1]) if len(early) else "–"]
        cells += [_format_result(limited.iloc[-1]), _format_result(full.iloc[-1])]
        lines.append([data, *cells, str(mean_over_subjects({data: by_subject}))])
    lines.append([f"**all {len(differences)} subjects**", "", "", "", "", str(mean_over_subjects(by_set))])
    heads = ["data set", "first interim result", "after 3 min", f"last, {LIMITED}", f"last, {FULL}", "difference"]
    return markdown(heads, lines)


def _format_result(result: pd.Series) -> str:
    return f"{score(result['score'])} after {result['seconds']:.0f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of benchmarks.default_runs, named after their data")
    parser.add_argument("--machine", required=True, help="machine of the runs")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    choices = {run.name.split("-")[0]: read_choice(run) for run in options.runs}
    for path, rows in ((options.out, build_rows), (options.out.with_name("last_scores.csv"), build_last_scores)):
        table = [row for data, choice in choices.items() for row in rows(data, options.machine, choice)]
        replace_rows(path, pd.DataFrame(table), "data", "machine")
    print(f"{options.out} has the interim results of {len(choices)} more runs")


if __name__ == "__main__":
    main()
