"""Windows in order, smoothed with how long classes last: python -m benchmarks.smoothing DATA.npz... --out smoothing.csv

People are left out in groups. One linear model on features of everybody else reads their windows, which stand in the
file as they were recorded; each person and session is a recording of its own. `stay` is counted in the labels of
everybody else. A row of the CSV is one person: balanced accuracy of single windows, of windows smoothed with those
before them (causal) and with the whole recording (whole).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.folds import leave_groups_out, scorable
from autotransfer.training.metrics import balanced_accuracy_of
from autotransfer.training.sequence import stay_of

from .csv_rows import command, measure_datasets
from .markdown import markdown

CASES = ("single", "causal", "whole")
COLUMNS = ["dataset", "subject", "stay", *CASES]
SETTING = at.Setting(encoder="linear", represent="features", standardise="none")
LOSS = 0.02  # from which on a person is said to lose


def measured(recordings: at.Recordings, options: argparse.Namespace) -> Iterator[dict[Any, Any]]:
    subject, y = recordings.subject.numpy(), recordings.y.numpy()
    session = np.zeros(len(y), dtype=int) if recordings.session is None else recordings.session.numpy()
    for fold in leave_groups_out(recordings, options.folds):
        known = np.setdiff1d(np.arange(len(y)), fold.test)
        others = at.Recordings(recordings.X[known], y[known], subject[known], session=session[known])
        stay = stay_of(others)
        if stay is None:
            raise SystemExit(f"{recordings.name} has one window of each person and session: there is no order")
        model = at.CensoredClassifier(setting=SETTING, device="cpu")
        model.fit(recordings.X[known].numpy(), y[known], subjects=subject[known])
        for person in sorted(set(scorable(recordings)) & set(subject[fold.test].tolist())):
            rows = np.flatnonzero(subject == person)
            log_p = np.log(np.maximum(model.predict_proba(recordings.X[rows].numpy()), 1e-12))
            log_probs = {
                "single": log_p,
                "causal": at.smooth(log_p, stay, sequence=session[rows], causal=True),
                "whole": at.smooth(log_p, stay, sequence=session[rows]),
            }
            row = {"dataset": recordings.name, "subject": str(recordings.subjects[person]), "stay": round(stay, 4)}
            for case in CASES:
                classes = model.classes_[log_probs[case].argmax(1)]
                row[case] = round(balanced_accuracy_of(classes, y[rows], recordings.n_classes), 5)
            yield row


def table_of(rows: pd.DataFrame) -> str:
    """Means over people, and how many lose by smoothing."""
    lines = []
    for dataset, part in rows.groupby("dataset"):
        means = [f"{part[name].mean():.3f}" for name in ("stay", *CASES)]
        losers = [str((part[case] < part["single"] - LOSS).sum()) for case in CASES[1:]]
        lines.append([str(dataset), str(len(part)), *means, " and ".join(losers)])
    return markdown(["", "people", "stay", "single windows", "so far (causal)", "whole recording",
                     f"people who lose more than {LOSS} (causal, whole)"], lines)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, "docs/results/smoothing.csv", files="*")
    parser.add_argument("--folds", type=int, default=5)
    print(table_of(measure_datasets(parser.parse_args(arguments), COLUMNS, measured)))


if __name__ == "__main__":
    main()
