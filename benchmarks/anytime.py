"""Score against time, from the answers of runs:

    python -m benchmarks.anytime RUN... --machine "two cores" --out docs/results/anytime.csv

One row of the CSV is one answer: the mean nested score over people that it had, and the seconds since the run began.
Runs may still go on or have been stopped; `ended` is empty then. Runs of a data set on a machine take the place of the
rows it has. The table has the score that a user would have had at some moments.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from autotransfer.files import write_atomically
from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.csv_tables import csv_of

from .csv_rows import read_table
from .evidence import table_of
from .markdown import markdown

MOMENTS = (60, 180, 360, 540)  # seconds


def rows_of(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """One for each answer."""
    return [
        {
            "data": data, "machine": machine, "people": len(answer.scores), "answer": number, "stage": answer.name,
            "seconds": round(answer.seconds, 1), "score": round(answer.score, 4), "ended": choice.ended or "",
        }
        for number, answer in enumerate(choice.stages, 1)
    ]  # fmt: skip


def at_moments(folder: Path) -> str:
    """The table of docs/results.md, from anytime.csv."""
    lines = []
    for (data, machine), answers in table_of(folder, "anytime").groupby(["data", "machine"], sort=True):
        first, last = answers.iloc[0], answers.iloc[-1]
        scores = [answers[answers["seconds"] <= moment]["score"] for moment in MOMENTS]
        at = [score(before.iloc[-1]) if len(before) else "–" for before in scores]
        end = f"{score(last['score'])} after {last['seconds']:.0f} s, {len(answers)} answers"
        lines.append([str(data), str(machine), f"{score(first['score'])} after {first['seconds']:.0f} s", *at, end])
    heads = [f"after {moment // 60} min" for moment in MOMENTS]
    return markdown(["data set", "machine", "first answer", *heads, "last answer"], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders named after their data, as benchmarks.shipped does")
    parser.add_argument("--machine", required=True, help="where they ran")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    runs = [rows_of(run.name.split("-")[0], asked.machine, read_choice(run)) for run in asked.runs]
    table = pd.DataFrame([row for rows in runs for row in rows])
    if asked.out.exists():
        kept = read_table(asked.out)
        kept = kept[(kept["machine"] != asked.machine) | ~kept["data"].isin(table["data"])]
        table = pd.concat([kept, table], ignore_index=True)
    write_atomically(asked.out, csv_of(table))
    print(at_moments(asked.out.parent))


if __name__ == "__main__":
    main()
