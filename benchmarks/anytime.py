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

from .csv_rows import replace_rows
from .evidence import read_scores
from .inference import estimate_mean

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
    """Return the effect of a time limit on scores in one sentence, from anytime.csv and last_scores.csv."""
    results, last = read_scores(folder, "anytime"), read_scores(folder, "last_scores")
    scores = last.set_index(["data", "subject", "machine"])["score"].unstack("machine").dropna()
    difference = estimate_mean(scores[LIMITED] - scores[FULL])
    limited = results[results["machine"] == LIMITED].groupby("data")["seconds"]
    first, end = (f"{seconds.min():.0f} to {seconds.max():.0f} s" for seconds in (limited.first(), limited.last()))
    return (
        f"On {len(limited)} data sets with {len(scores)} subjects, runs with a time limit on {LIMITED} had their first "
        f"result after {first} and their last after {end}. Their last scores differ from those of runs without a limit "
        f"(on {FULL}) by {difference} over subjects.\n"
    )


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
