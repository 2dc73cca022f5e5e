"""Collect the interim results of runs, to see how the score grows with time.

    python -m benchmarks.anytime RUN... --machine "two cores" --out docs/results/anytime.csv

A row of the CSV is one interim result: its mean nested score over subjects, and the seconds since the run began.
`ended` is empty if the run was stopped. Rows of a data set and a machine replace those that the CSV has. A second file,
last_answers.csv, holds the last score of each subject, so that machines can be compared by subject.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, read_choice

from .csv_rows import replace_rows
from .evidence import pooled, table_of
from .markdown import markdown, with_interval

EARLY = 180  # seconds
LIMITED, FULL = "two cores", "H200, shared"  # machines of the runs with a limit of time, and without one


def rows_of(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """Return a row for each interim result."""
    return [
        {
            "data": data, "machine": machine, "people": len(answer.scores), "answer": number, "stage": answer.name,
            "seconds": round(answer.seconds, 1), "score": round(answer.score, 4), "end_reason": choice.end_reason or "",
        }
        for number, answer in enumerate(choice.stages, 1)
    ]  # fmt: skip


def last_answers_of(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """Return a row for each subject."""
    last = choice.stages[-1]
    return [
        {"data": data, "machine": machine, "subject": subject, "score": round(value, 4)}
        for subject, value in last.scores.items()
    ]


def limit_costs(folder: Path) -> str:
    """Return the table of docs/results.md from anytime.csv and last_answers.csv."""
    answers, people = table_of(folder, "anytime"), table_of(folder, "last_answers")
    runs = dict(list(answers.groupby(["data", "machine"])))
    scores = people.set_index(["data", "subject", "machine"])["score"].unstack("machine").dropna()
    differences = (scores[LIMITED] - scores[FULL]).rename("difference").reset_index()
    by_set = {str(data): dict(zip(part["subject"], part["difference"], strict=True))
              for data, part in differences.groupby("data", sort=True)}  # fmt: skip
    lines = []
    for data, of_people in by_set.items():
        limited, full = runs[data, LIMITED], runs[data, FULL]
        early = limited[limited["seconds"] <= EARLY]["score"]
        cells = [_at(limited.iloc[0]), score(early.iloc[-1]) if len(early) else "–"]
        lines.append(
            [data, *cells, _at(limited.iloc[-1]), _at(full.iloc[-1]), with_interval(pooled({data: of_people}))]
        )
    lines.append([f"**all {len(differences)} subjects**", "", "", "", "", with_interval(pooled(by_set))])
    heads = ["data set", "first interim result", "after 3 min", f"last, {LIMITED}", f"last, {FULL}", "difference"]
    return markdown(heads, lines)


def _at(answer: pd.Series) -> str:
    return f"{score(answer['score'])} after {answer['seconds']:.0f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="folders named after their data, as those of benchmarks.shipped"
    )
    parser.add_argument("--machine", required=True, help="machine of the runs")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    choices = {run.name.split("-")[0]: read_choice(run) for run in asked.runs}
    for path, rows in ((asked.out, rows_of), (asked.out.with_name("last_answers.csv"), last_answers_of)):
        table = [row for data, choice in choices.items() for row in rows(data, asked.machine, choice)]
        replace_rows(path, pd.DataFrame(table), "data", "machine")
    print(f"{asked.out} has the interim results of {len(choices)} runs more")


if __name__ == "__main__":
    main()
