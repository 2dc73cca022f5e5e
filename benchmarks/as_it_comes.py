"""`CensoredClassifier` as it comes, on people left out:

    python -m benchmarks.as_it_comes DATA.npz... --out as_it_comes.csv [--people 4] [--models censored unmasked]

Some people of each set, evenly spread, are left out one at a time; the estimator is fitted to everybody else. One row
of the CSV is the balanced accuracy of one model on one of them, and the seconds that fitting took. Rows that are there
already are not computed again. All fits to a set are one stack, in which a row has the number that it has in the whole
set, so that draws can be others than in `fit`; the seconds of each are its share.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

import autotransfer as at
from autotransfer.recordings import Recordings

from .csv_rows import Known, Rows, append_missing, command

COLUMNS = ("data", "model", "subject", "score", "seconds")
MODELS = {
    "censored": ("CensoredClassifier()", at.CensoredClassifier()),
    "unmasked": ("CensoredClassifier(channel_mask=0)", at.CensoredClassifier(channel_mask=0)),
}


def stacked(
    estimator: at.CensoredClassifier, recordings: Recordings, folds: list[at.Fold], device: str
) -> list[tuple[float, float]]:
    """For each fold the score of what `fit` would train without its test person, where the last of the others
    validates, and the seconds that it took."""
    who = recordings.subject.numpy()
    jobs = []
    for fold in folds:
        known = np.unique(who[np.concatenate([fold.train, fold.validation])])
        train, validation = (np.flatnonzero(np.isin(who, people)) for people in (known[:-1], known[-1:]))
        split = at.Fold(train, validation, fold.test, recordings.subjects[known[-1]], fold.test_subject)
        jobs.append(at.Job(estimator.setting_for(len(train), recordings.n_channels), split))
    return [(outcome.test_score, outcome.seconds) for outcome in at.train(recordings, jobs, device, progress=False)]


def left_out(recordings: Recordings, people: int | None) -> list[at.Fold]:
    folds = at.leave_one_subject_out(recordings)
    if people is None or people >= len(folds):
        return folds
    return [folds[place] for place in np.linspace(0, len(folds) - 1, people).round().astype(int)]


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    for name, estimator in (MODELS[model] for model in options.models):
        done = {row["subject"] for row in known if row["model"] == name}
        folds = [fold for fold in left_out(recordings, options.people) if str(fold.test_subject) not in done]
        if folds:
            scores = stacked(estimator, recordings, folds, options.device)
            yield [
                (recordings.name, name, str(fold.test_subject), round(score, 4), round(seconds, 2))
                for fold, (score, seconds) in zip(folds, scores, strict=True)
            ]


def main(arguments: list[str] | None = None) -> None:
    parser = command(__doc__, None, "device")
    parser.add_argument("--people", type=int, help="of each set; default: all")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["censored", "unmasked"])
    append_missing(parser.parse_args(arguments), COLUMNS, measured, "data", "model", "subject")


if __name__ == "__main__":
    main()
