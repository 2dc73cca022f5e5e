"""Log-probabilities of held-out people by every candidate, from snapshots that these people did not pick.

Every training holds out two people, or two groups of them. Each is predicted by the snapshot that the other one chose,
so best epochs, last epochs and averaged weights compare alike. A person's own estimate leaves out every training that
held them out, in whichever role.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..runs.ledger import Entry
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.metrics import balanced_accuracy_of

Fold = tuple[int, ...]  # the people that a training holds out
Array = NDArray[np.float32]


class HeldOutLogProbs:
    """By fold and held-out person: log-probabilities (K, n, C) of K candidates, from the mean probability over seeds. A
    candidate whose trainings all failed gives every class the same probability."""

    def __init__(
        self,
        candidates: Sequence[Setting],
        log_probs: dict[tuple[Fold, int], Array],
        y: dict[int, NDArray[np.int64]],
        metric: Metric = METRICS[BALANCED_ACCURACY],
    ):
        self.candidates, self.log_probs, self.y, self.metric = list(candidates), log_probs, y, metric
        self._pools: dict[int, Array] = {}

    @classmethod
    def of(cls, run: Run, candidates: Sequence[Setting], entries: Sequence[Entry]) -> HeldOutLogProbs:
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
            for person, probability in probabilities_of(run, entry).items():
                total[fold, person][k] += probability
            seeds[k, fold] = seeds.get((k, fold), 0) + 1
        for (fold, _), probability in total.items():
            for k in range(len(candidates)):
                probability[k] = probability[k] / seeds[k, fold] if (k, fold) in seeds else 1 / rec.n_classes
            probability[:] = _logarithm(probability)
        return cls(candidates, total, y, run.options.scoring)

    @cached_property
    def people(self) -> list[int]:
        """Who was held out and can be scored."""
        return sorted(person for person in {who for _, who in self.log_probs} if len(np.unique(self.y[person])) > 1)

    @cached_property
    def together(self) -> list[list[int]]:
        """The same people in groups that the same trainings held out."""
        groups: dict[frozenset[Fold], list[int]] = {}
        for person in self.people:
            folds = frozenset(fold for fold, who in self.log_probs if who == person)
            groups.setdefault(folds, []).append(person)
        return list(groups.values())

    def held_out_with(self, person: int) -> set[int]:
        """Who else was held out by a training that held the person out."""
        return {other for fold, who in self.log_probs if who == person for other in fold} - {person}

    def of_person(self, person: int, without: frozenset[int] = frozenset()) -> Array:
        """(K, n, C): the mean probability over the trainings that held the person out and none of `without`."""
        if not without & self.held_out_with(person):  # every training counts: asked for again and again
            if person not in self._pools:
                self._pools[person] = self._pooled(person, frozenset())
            return self._pools[person]
        return self._pooled(person, without)

    def _pooled(self, person: int, without: frozenset[int]) -> Array:
        probabilities = [
            np.exp(log_p) for (fold, who), log_p in self.log_probs.items() if who == person and without.isdisjoint(fold)
        ]
        return _logarithm(np.mean(probabilities, 0))

    def score(self, person: int, log_p: NDArray[np.floating]) -> float:
        """The run's metric, which is balanced accuracy by default, for log-probabilities (n, C) of a person."""
        return person_score(self.metric, self.y[person], np.exp(log_p))


def person_score(metric: Metric, y: NDArray[np.int64], probability: NDArray[np.floating]) -> float:
    """Of one person's classes (n,) and probabilities (n, C)."""
    if metric is METRICS[BALANCED_ACCURACY]:  # scikit-learn's takes much longer
        return balanced_accuracy_of(probability.argmax(1), y, probability.shape[1])
    return metric.score(y, np.asarray(probability, dtype=np.float64))


def probabilities_of(run: Run, entry: Entry) -> dict[int, Array]:
    """By held-out person: probabilities (n, C) of a finished training, by the snapshot that the others chose."""
    who = run.recordings.subject.numpy()
    groups = run.groups[entry.validation], run.groups[entry.test]
    # Rows of those who validate, then of those who test, each in the order of the recordings.
    rows = np.concatenate([who[np.isin(who, group)] for group in groups])
    probability = np.exp(run.held_out_log_probs(entry).numpy())
    return {person: probability[rows == person] for group in groups for person in group}


def trained_candidates(candidates: Sequence[Setting], entries: Sequence[Entry]) -> list[int]:
    """Indices of the candidates with a finished training."""
    done = {entry.setting for entry in entries if entry.status == "done"}
    return [k for k, setting in enumerate(candidates) if setting in done] or [0]


def _logarithm(p: Array) -> Array:
    """Finite, also where a probability is 0."""
    return np.log(np.maximum(p, np.finfo(np.float32).tiny))
