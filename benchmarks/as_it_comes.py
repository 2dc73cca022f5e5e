"""The estimators as they come, beside shrinkage LDA and pyRiemann, on people left out:

    python -m benchmarks.as_it_comes DATA.npz... --out as_it_comes.csv [--people 4] [--models censored paper auto]

Some people of each set, evenly spread, are left out one at a time; everybody else is handed to `fit`. One row of the
CSV is the balanced accuracy of one model on one of them, and the seconds that fitting took. Rows that are there already
are not computed again. All fits of `CensoredClassifier` to a set are one stack, in which a row has the number that it
has in the whole set, so that draws can be others than in `fit`; the seconds of each are its share.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

import autotransfer as at
from autotransfer.files import write_atomically
from autotransfer.recordings import Recordings
from autotransfer.runs.csv_tables import csv_of, read_table

from .shallow import lda, riemann, task_of

Predicted = NDArray[np.int64]
Found = tuple[float, float]  # score, seconds
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


def stacked(estimator: at.CensoredClassifier, recordings: Recordings, folds: list[at.Fold], device: str) -> list[Found]:
    """For each fold what `fit` would train without its test person: the last of the others validates."""
    who = recordings.subject.numpy()
    jobs = []
    for fold in folds:
        known = np.unique(who[np.concatenate([fold.train, fold.validation])])
        train, validation = (np.flatnonzero(np.isin(who, people)) for people in (known[:-1], known[-1:]))
        own = at.Fold(train, validation, fold.test, recordings.subjects[known[-1]], fold.test_subject)
        jobs.append(at.Job(estimator.setting_for(len(train), recordings.n_channels), own))
    return [(one.test_score, one.seconds) for one in at.train(recordings, jobs, device, progress=False)]


MODELS = {
    "LDA": shallow(lda),
    "pyRiemann": shallow(riemann),
    "AutoTransferClassifier()": fitted(lambda device: at.AutoTransferClassifier(device=device)),
}
STACKED = {
    "CensoredClassifier()": at.CensoredClassifier(),
    "CensoredClassifier(channel_mask=0)": at.CensoredClassifier(channel_mask=0),
    "CensoredClassifier(preset='paper')": at.CensoredClassifier(preset="paper"),
}
SHORT = dict(zip(("lda", "riemann", "auto", "censored", "unmasked", "paper"), (*MODELS, *STACKED), strict=True))


def missing(
    recordings: Recordings, folds: list[at.Fold], model: str, device: str
) -> Iterator[tuple[at.Fold, float, float]]:
    """Each fold with its score and the seconds it took."""
    if model in STACKED:
        found = stacked(STACKED[model], recordings, folds, device) if folds else []
        yield from ((fold, *one) for fold, one in zip(folds, found, strict=True))
        return
    for fold in folds:
        start = time.perf_counter()
        predicted = MODELS[model](recordings, fold, device)
        yield (
            fold,
            float(balanced_accuracy_score(recordings.y.numpy()[fold.test], predicted)),
            time.perf_counter() - start,
        )


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
        folds = left_out(recordings, asked.people)
        for model in (SHORT[name] for name in asked.models):
            own = [fold for fold in folds if (recordings.name, model, str(fold.test_subject)) not in known]
            for fold, score, seconds in missing(recordings, own, model, asked.device):
                values = (recordings.name, model, str(fold.test_subject), round(score, 4), round(seconds, 2))
                rows.append(dict(zip(COLUMNS, values, strict=True)))
                write_atomically(asked.out, csv_of(pd.DataFrame(rows, columns=COLUMNS)))
                print(*values[:3], f"{score:.3f} in {seconds:.2f} s", flush=True)
    table = pd.DataFrame(rows, columns=COLUMNS)
    print(table.pivot_table(index="data", columns="model", values="score").round(3).to_string())
    print(table.pivot_table(index="data", columns="model", values="seconds").round(1).to_string())


if __name__ == "__main__":
    main()
