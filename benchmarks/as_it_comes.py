"""The estimators as they come, beside shrinkage LDA and pyRiemann, on people left out:

    python -m benchmarks.as_it_comes DATA.npz... --out as_it_comes.csv [--people 4] [--models censored paper auto]

Some people of each set, evenly spread, are left out one at a time; everybody else is handed to `fit`. One row of the
CSV is the balanced accuracy of one model on one of them, and the seconds that fitting took. Rows that are there already
are not computed again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

import autotransfer as at
from autotransfer.recordings import Recordings
from autotransfer.runs.csv_tables import csv_of, read_table
from autotransfer.runs.files import write_atomically

from .shallow import lda, riemann, task_of

Predicted = NDArray[np.int64]
COLUMNS = ["data", "model", "subject", "score", "seconds"]


def fitted(make: Callable[[str], Any]) -> Callable[[Recordings, at.Fold, str], Predicted]:
    """Predictions (n,) for the test person of an estimator, fitted to everybody else."""

    def predict(recordings: Recordings, fold: at.Fold, device: str) -> Predicted:
        known = np.sort(np.concatenate([fold.train, fold.validation]))
        X, y, who = recordings.X, recordings.y.numpy(), recordings.subject.numpy()
        model = make(device).set_params(sfreq=recordings.sfreq)
        return np.asarray(model.fit(X[known], y[known], subjects=who[known]).predict(X[fold.test]))

    return predict


def shallow(peer: Callable[[Any], Any]) -> Callable[[Recordings, at.Fold, str], Predicted]:
    """The first form of a peer: nothing of the test person is used."""
    return lambda recordings, fold, _: next(iter(peer(task_of(recordings, fold, 0))))[1]


MODELS = {
    "LDA": shallow(lda),
    "pyRiemann": shallow(riemann),
    "CensoredClassifier()": fitted(lambda device: at.CensoredClassifier(device=device)),
    "CensoredClassifier(preset='paper')": fitted(lambda device: at.CensoredClassifier(preset="paper", device=device)),
    "AutoTransferClassifier()": fitted(lambda device: at.AutoTransferClassifier(device=device)),
}
SHORT = {"lda": 0, "riemann": 1, "censored": 2, "paper": 3, "auto": 4}


def left_out(recordings: Recordings, people: int | None) -> list[at.Fold]:
    folds = at.leave_one_subject_out(recordings)
    if people is None or people >= len(folds):
        return folds
    return [folds[place] for place in np.linspace(0, len(folds) - 1, people).round().astype(int)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--people", type=int, help="of each set; default: all")
    parser.add_argument("--models", nargs="+", choices=SHORT, default=["lda", "riemann", "censored", "auto"])
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args(arguments)
    rows = read_table(asked.out, dtype={"subject": str}).to_dict("records") if asked.out.exists() else []
    known = {(row["data"], row["model"], row["subject"]) for row in rows}
    for source in asked.data:
        recordings = at.load(source)
        for fold in left_out(recordings, asked.people):
            for model in (list(MODELS)[SHORT[name]] for name in asked.models):
                key = (recordings.name, model, str(fold.test_subject))
                if key in known:
                    continue
                start = time.perf_counter()
                predicted = MODELS[model](recordings, fold, asked.device)
                seconds = round(time.perf_counter() - start, 2)
                found = float(balanced_accuracy_score(recordings.y.numpy()[fold.test], predicted))
                rows.append(dict(zip(COLUMNS, (*key, round(found, 4), seconds), strict=True)))
                write_atomically(asked.out, csv_of(pd.DataFrame(rows, columns=COLUMNS)))
                print(*key, f"{found:.3f} in {seconds} s", flush=True)
    table = pd.DataFrame(rows, columns=COLUMNS)
    print(table.pivot_table(index="data", columns="model", values="score").round(3).to_string())
    print(table.pivot_table(index="data", columns="model", values="seconds").round(1).to_string())


if __name__ == "__main__":
    main()
