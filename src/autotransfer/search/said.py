"""What candidates said of held-out people: log-probabilities, from snapshots that these people did not pick.

Every training holds out two people, or two groups of them. What it said of each comes from the snapshot that the other
one chose, so best epochs, last epochs and averaged weights compare alike. For a person's own estimate every training
that held them out, in whichever role, is left aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from ..training.metrics import balanced_accuracy_of
from ..training.scoring import BALANCED_ACCURACY, METRICS, Metric, metric_of

Fold = tuple[int, ...]  # the people that a training holds out
Array = NDArray[np.float32]


class Said:
    """For K candidates, of every fold and each of its held-out people: log-probabilities (K, n, C), the mean
    probability over the seeds. A candidate whose trainings all failed says that every class is as likely."""

    def __init__(
        self,
        candidates: Sequence[Setting],
        said: dict[tuple[Fold, int], Array],
        y: dict[int, NDArray[np.int64]],
        metric: Metric = METRICS[BALANCED_ACCURACY],
    ):
        self.candidates, self.said, self.y, self.metric = list(candidates), said, y, metric
        self._pools: dict[int, Array] = {}

    @classmethod
    def of(cls, run: Run, candidates: Sequence[Setting], entries: Sequence[Entry]) -> Said:
        rec = run.recordings
        who = rec.subject.numpy()
        y = {person: rec.y.numpy()[who == person] for person in range(rec.n_subjects)}
        place = {setting: k for k, setting in enumerate(candidates)}
        total: dict[tuple[Fold, int], Array] = {}
        seeds: dict[tuple[int, Fold], int] = {}
        for entry in entries:
            validates, tests = run.groups[entry.validation], run.groups[entry.test]
            fold = (*validates, *tests)
            for person in fold:
                shape = (len(candidates), len(y[person]), rec.n_classes)
                total.setdefault((fold, person), np.zeros(shape, dtype=np.float32))
            if entry.status != "done" or entry.setting not in place:
                continue
            k = place[entry.setting]
            for person, own in probabilities_of(run, entry).items():
                total[fold, person][k] += own
            seeds[k, fold] = seeds.get((k, fold), 0) + 1
        for (fold, _), own in total.items():
            for k in range(len(candidates)):
                own[k] = own[k] / seeds[k, fold] if (k, fold) in seeds else 1 / rec.n_classes
            own[:] = _logarithm(own)
        return cls(candidates, total, y, metric_of(run.options.metric))

    @cached_property
    def people(self) -> list[int]:
        """Who was held out and can be scored."""
        return sorted(person for person in {person for _, person in self.said} if len(np.unique(self.y[person])) > 1)

    @cached_property
    def together(self) -> list[list[int]]:
        """The same people by the trainings that held them out: groups, or everybody alone."""
        folds = {person: frozenset(fold for fold, who in self.said if who == person) for person in self.people}
        found: dict[frozenset[Fold], list[int]] = {}
        for person in self.people:
            found.setdefault(folds[person], []).append(person)
        return list(found.values())

    def beside(self, person: int) -> set[int]:
        """Who else was held out by a training that held the person out."""
        return {other for fold, who in self.said if who == person for other in fold} - {person}

    def of_person(self, person: int, without: frozenset[int] = frozenset()) -> Array:
        """(K, n, C): the mean probability over the trainings that held the person out and none of `without`."""
        if not without & self.beside(person):  # nothing is left aside: asked for again and again
            if person not in self._pools:
                self._pools[person] = self._pooled(person, frozenset())
            return self._pools[person]
        return self._pooled(person, without)

    def _pooled(self, person: int, without: frozenset[int]) -> Array:
        own = [found for (fold, who), found in self.said.items() if who == person and without.isdisjoint(fold)]
        mean: Array = np.mean([np.exp(one) for one in own], 0)
        return _logarithm(mean)

    def score(self, person: int, log_p: NDArray[np.floating]) -> float:
        """What the run decides by, of log-probabilities (n, C): balanced accuracy where nothing else was asked for."""
        return person_score(self.metric, self.y[person], np.exp(log_p))


def person_score(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Of one person's classes (n,) and probabilities (n, C)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn's takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def probabilities_of(run: Run, entry: Entry) -> dict[int, Array]:
    """By held-out person: what a finished training says (n, C), by the snapshot that the others chose."""
    who = run.recordings.subject.numpy()
    groups = run.groups[entry.validation], run.groups[entry.test]
    # Rows of those who validate, then of those who test, each in the order of the recordings.
    rows = np.concatenate([who[np.isin(who, own)] for own in groups])
    found = np.exp(run.said(entry).numpy())
    return {person: found[rows == person] for own in groups for person in own}


def alive(candidates: Sequence[Setting], entries: Sequence[Entry]) -> list[int]:
    """Places of the candidates of which a training ended well."""
    well = {entry.setting for entry in entries if entry.status == "done"}
    return [k for k, setting in enumerate(candidates) if setting in well] or [0]


def _logarithm(p: Array) -> Array:
    """Finite, whatever a network is sure of."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))
