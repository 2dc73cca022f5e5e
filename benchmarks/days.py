"""Labels of a person's first day on their later days: python -m benchmarks.days DATA.npz... --out days.csv

For recordings whose people have several sessions. Models and people left out are those of benchmarks.asking. Five
windows of each class are labelled, the first of their day, and windows of later days are scored, of groups that have no
labelled window:

    none         no labels
    alike        labels of the first day, as if days did not differ
    yesterday    labels of the first day, with what people keep from day to day (training/days.py)
    today        labels of the scored day
    both         both
    own          a linear classifier of the person's own, from the labels of today
    own_both     the same from the labels of both days

A row of the CSV is the balanced accuracy of one person, the mean over their later days; `kept_shift` and
`kept_interaction` are the shares that the model of everybody else has, the mean over its parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

import autotransfer as at
from autotransfer.search.labelled import first_of_each
from autotransfer.search.personal import personal_log_probs
from autotransfer.training.metrics import balanced_accuracy_of

from .asking import Person, Rows, people
from .csv_rows import command, measure_datasets
from .markdown import markdown

CASES = ("none", "alike", "yesterday", "today", "both", "own", "own_both")
COLUMNS = ["dataset", "subject", "days", "kept_shift", "kept_interaction", *CASES]
LABELS = 5


def scores(person: Person, first: Rows, today: Rows, scored: Rows) -> dict[str, float]:
    """Balanced accuracy on the scored windows by what is labelled."""
    y, n_classes = torch.from_numpy(person.y), person.log_p.shape[1]
    log_p = {}
    for case in ("none", "alike", "yesterday", "today", "both"):
        labels = person.labels()
        if case in ("alike", "yesterday", "both"):
            labels.add(person.x[first], y[first])
            if case != "alike":
                labels.new_day()
        if case in ("today", "both"):
            labels.add(person.x[today], y[today])
        log_p[case] = labels.correct(person.x[scored], person.log_p[scored])
    for case, known in (("own", today), ("own_both", np.append(first, today))):
        codes = list(person.x.double().transpose(0, 1))  # of P parts (n, R)
        labelled = np.isin(np.arange(len(person.y)), known)
        log_p[case] = personal_log_probs(codes, person.y, person.groups, labelled, n_classes)[scored]
    truth = person.y[scored]
    return {case: balanced_accuracy_of(log_p[case].argmax(1).numpy(), truth, n_classes) for case in CASES}


def row_of(person: Person, sessions: Rows) -> dict[str, float] | None:
    """The mean over later days of the person, whose windows are of sessions (n,); None where no day can be scored."""
    days, n_classes = np.unique(sessions), len(np.unique(person.y))

    def first_of(day: int) -> Rows:
        return first_of_each(person.y, np.flatnonzero(sessions == day), LABELS)

    by_day = []
    for day in days[1:]:
        today = first_of(day)
        scored = np.flatnonzero((sessions == day) & ~np.isin(person.groups, person.groups[today]))
        if all(len(np.unique(person.y[rows])) == n_classes for rows in (first_of(days[0]), today, scored)):
            by_day.append(scores(person, first_of(days[0]), today, scored))
    if not by_day:
        return None
    return {"days": len(by_day)} | {case: float(np.mean([day[case] for day in by_day])) for case in CASES}


def measured(recordings: at.Recordings, options: argparse.Namespace) -> Iterator[dict[Any, Any]]:
    if recordings.session is None:
        raise SystemExit(f"{recordings.name} has no sessions")
    for person in people(recordings, options.folds):
        row = row_of(person, recordings.session.numpy()[person.rows])
        if row is not None:
            days = person.labels().days
            kept = (float("nan"),) * 2 if days is None else tuple(float(share.mean()) for share in days)
            shares = dict(zip(("kept_shift", "kept_interaction"), kept, strict=True))
            names = {"dataset": recordings.name, "subject": person.name}
            yield names | {name: round(value, 5) for name, value in (row | shares).items()}


def table_of(rows: pd.DataFrame) -> str:
    """The mean over people of each set."""
    lines = []
    for dataset, part in rows.groupby("dataset"):
        kept = [f"{part[name].mean():.2f}" for name in ("kept_shift", "kept_interaction")]
        lines.append([str(dataset), str(len(part)), *kept, *(f"{part[case].mean():.3f}" for case in CASES)])
    means = rows.groupby("dataset")[list(CASES)].mean().mean()
    lines.append(["**mean over sets**", "", "", "", *(f"{means[case]:.3f}" for case in CASES)])
    return markdown(["", "people", "shift kept", "effects of classes kept", *CASES], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, "days.csv", files="*")
    parser.add_argument("--folds", type=int, default=4)
    print(table_of(measure_datasets(parser.parse_args(arguments), COLUMNS, measured)))


if __name__ == "__main__":
    main()
