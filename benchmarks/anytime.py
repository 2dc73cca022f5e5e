"""Score against time, from the answers of runs:

    python -m benchmarks.anytime RUN... --machine "two cores" --out docs/results/anytime.csv

One row of the CSV is one answer: the mean nested score over people that it had, and the seconds since the run began.
Runs may still go on or have been stopped; `ended` is empty then. Runs of a data set on a machine take the place of the
rows it has. The table has the score that a user would have had at some moments. Beside it, last_answers.csv has the
last score of each person: what a limit costs is the difference between two machines, paired by person.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from autotransfer.report.wording import score
from autotransfer.runs.choice import Choice, read_choice

from .csv_rows import replace_rows
from .evidence import pooled, table_of
from .markdown import markdown, with_interval

MOMENTS = (60, 180, 360, 540)  # seconds
LIMITED, FULL = "two cores", "H200, shared"  # with a limit of time, and without any


def rows_of(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """One for each answer."""
    return [
        {
            "data": data, "machine": machine, "people": len(answer.scores), "answer": number, "stage": answer.name,
            "seconds": round(answer.seconds, 1), "score": round(answer.score, 4), "ended": choice.ended or "",
        }
        for number, answer in enumerate(choice.stages, 1)
    ]  # fmt: skip


def last_answers_of(data: str, machine: str, choice: Choice) -> list[dict[str, object]]:
    """One for each person."""
    last = choice.stages[-1]
    return [
        {"data": data, "machine": machine, "subject": subject, "score": round(value, 4)}
        for subject, value in last.scores.items()
    ]


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


def limit_costs(folder: Path) -> str:
    """The second table of docs/results.md, from anytime.csv and last_answers.csv."""
    answers, people = table_of(folder, "anytime"), table_of(folder, "last_answers")
    runs = dict(list(answers.groupby(["data", "machine"])))
    scores = people.set_index(["data", "subject", "machine"])["score"].unstack("machine").dropna()
    differences = (scores[LIMITED] - scores[FULL]).rename("difference").reset_index()
    by_set = {str(data): dict(zip(part["subject"], part["difference"], strict=True))
              for data, part in differences.groupby("data", sort=True)}  # fmt: skip
    lines = []
    for data, of_people in by_set.items():
        row = [data, str(len(of_people))]
        for machine in (LIMITED, FULL):
            last = runs[data, machine].iloc[-1]
            row.append(f"{score(last['score'])} after {last['seconds']:.0f} s, {last['answer']} answers")
        lines.append([*row, with_interval(pooled({data: of_people}))])
    lines.append(["**all people**", str(len(differences)), "", "", with_interval(pooled(by_set))])
    means = {"": {data: float(np.mean(list(of_people.values()))) for data, of_people in by_set.items()}}
    lines.append(["**mean over sets**", "", "", "", with_interval(pooled(means))])
    return markdown(["data set", "people", LIMITED, FULL, "difference (95 % interval)"], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders named after their data, as benchmarks.shipped does")
    parser.add_argument("--machine", required=True, help="where they ran")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    choices = {run.name.split("-")[0]: read_choice(run) for run in asked.runs}
    for path, rows in ((asked.out, rows_of), (asked.out.with_name("last_answers.csv"), last_answers_of)):
        table = [row for data, choice in choices.items() for row in rows(data, asked.machine, choice)]
        replace_rows(path, pd.DataFrame(table), "data", "machine")
    print(at_moments(asked.out.parent))


if __name__ == "__main__":
    main()
