"""`CensoredClassifier` as it comes, on people left out:

    python -m benchmarks.as_it_comes DATA.npz... --out as_it_comes.csv [--people 4] [--models censored unmasked]

Some people of each set, evenly spread, are left out one at a time; the estimator is fitted to everybody else. One row
of the CSV is the balanced accuracy of one model on one of them, and the seconds that fitting took. Rows that are there
already are not computed again. All fits to a set are one stack, in which a row has the number that it has in the whole
set, so that draws can be others than in `fit`; the seconds of each are its share.
"""

from __future__ import annotations

import numpy as np

import autotransfer as at
from autotransfer.recordings import Recordings

from .csv_rows import append, command, known_rows

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


def main(arguments: list[str] | None = None) -> None:
    parser = command(__doc__, None, "device")
    parser.add_argument("--people", type=int, help="of each set; default: all")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["censored", "unmasked"])
    options = parser.parse_args(arguments)
    for source in options.files:
        recordings = at.load(source)
        for name, estimator in (MODELS[model] for model in options.models):
            known = {
                r["subject"] for r in known_rows(options.out) if (r["data"], r["model"]) == (recordings.name, name)
            }
            folds = [f for f in left_out(recordings, options.people) if str(f.test_subject) not in known]
            if not folds:
                continue
            scores = stacked(estimator, recordings, folds, options.device)
            rows = [
                (recordings.name, name, str(fold.test_subject), round(score, 4), round(seconds, 2))
                for fold, (score, seconds) in zip(folds, scores, strict=True)
            ]
            append(options.out, [dict(zip(COLUMNS, row, strict=True)) for row in rows], COLUMNS)
            print(f"{recordings.name}, {name}: {np.mean([score for score, _ in scores]):.3f}", flush=True)


if __name__ == "__main__":
    main()
