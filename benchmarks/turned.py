"""What the transform `turn` gains: python -m benchmarks.turned DATA... --out turned.csv

For recordings whose channels form a ring. Tangent vectors with shrinkage LDA, centred by person, with and without
`turn`: every person is left out once and scored as recorded, and with their channels turned by every number of places.
`python -m benchmarks.results` makes a table of it. It needs no GPU: minutes a set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.models.assembly import assemble
from autotransfer.models.saved_model import SavedModel
from autotransfer.search.kinds import closed_forms
from autotransfer.settings import Setting
from autotransfer.training.metrics import balanced_accuracy_of

from .csv_rows import command, measure_datasets

Rows = NDArray[np.int64]
COLUMNS = ("dataset", "turn", "subject", "places", "score")


def settings(recordings: at.Recordings) -> tuple[Setting, Setting]:
    """As a transductive run has them: the first one centres a person's tangent vectors, the other turns as well."""
    forms = closed_forms("transductive", recordings)
    centred = [form for form in forms if form.kind == "tangent" and _value(form, "centre") == "transductive"]
    plain, turned = (next(s for s in centred if (_value(s, "turn") != "none") == turns) for turns in (False, True))
    return plain, turned


def _value(setting: Setting, transform: str) -> str:
    return str(setting.as_row()[transform])


def rows_of(recordings: at.Recordings, setting: Setting) -> Iterator[tuple[object, ...]]:
    """COLUMNS of every person, turned by 0 and more places."""
    assert recordings.ring is not None
    ring = torch.tensor(recordings.ring)
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(recordings)]
    for outcome in at.train(recordings, jobs, "cpu"):
        fold = outcome.job.fold
        model = SavedModel(*assemble(recordings, setting, [outcome.state], [fold], kind="fold", scores={}))
        X, y = recordings.X[fold.test], recordings.y.numpy()[fold.test]
        for places in range(len(ring)):
            x = X.clone()
            x[:, ring] = X[:, ring.roll(places)]
            predicted = model.predict_proba(x, torch.zeros(len(x), dtype=torch.long)).argmax(1)
            score = round(balanced_accuracy_of(predicted, y, recordings.n_classes), 6)
            yield recordings.name, _value(setting, "turn"), fold.test_subject, places, score


def first_half(recordings: at.Recordings, rows: Rows) -> NDArray[np.bool_]:
    """(n,): which of a person's rows lie in the first half of their sessions, else of their repetitions (a column
    `group`), else of each class."""
    for values in (recordings.session, getattr(recordings.columns.get("group"), "values", None)):
        if values is not None and len(distinct := np.unique(parts := np.asarray(values)[rows])) > 1:
            return np.isin(parts, distinct[: (len(distinct) + 1) // 2])
    y = recordings.y.numpy()[rows]
    place = np.array([np.count_nonzero(y[:n] == label) for n, label in enumerate(y)])
    return np.asarray(place < np.bincount(y, minlength=recordings.n_classes)[y] / 2, dtype=np.bool_)


def same_person(recordings: at.Recordings, setting: Setting) -> Iterator[tuple[object, ...]]:
    """Everybody's second half, predicted by a model of their first half: what an unseen person could reach."""
    plain = setting.replace(centre="none")
    for number, subject in enumerate(recordings.subjects):
        rows = np.flatnonzero(recordings.subject.numpy() == number)
        first = first_half(recordings, rows)
        part = np.where(first, np.cumsum(first) % 2, 2)  # recordings have three people at least
        person = at.Recordings(recordings.X[rows], recordings.y[rows], part, sfreq=recordings.sfreq)
        fold = Fold(np.flatnonzero(first), np.empty(0, np.int64), np.flatnonzero(~first))
        (outcome,) = at.train(person, [at.Job(plain, fold)], "cpu")
        yield recordings.name, "same person", subject, 0, round(outcome.test_score, 6)


def measured(recordings: at.Recordings, options: argparse.Namespace) -> Iterator[tuple[object, ...]]:
    if recordings.ring is None:
        raise SystemExit(f"{recordings.name}: the channels form no ring that is known; say so with ring in meta")
    plain, turned = settings(recordings)
    yield from rows_of(recordings, plain)
    yield from same_person(recordings, plain)
    yield from rows_of(recordings, turned)


def main(arguments: Sequence[str] | None = None) -> None:
    table = measure_datasets(command(__doc__, "turned.csv").parse_args(arguments), COLUMNS, measured)
    recorded = table[table["places"] == 0]
    print(recorded.groupby(["dataset", "turn"])["score"].mean().unstack().round(3).to_string())


if __name__ == "__main__":
    main()
