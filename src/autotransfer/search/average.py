"""The weighted ensemble: weights of candidates, from predictions of held-out subjects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.choice import NamedSetting
from ..runs.run import Run
from ..settings import Setting
from .evidence import ClassificationEvidence
from .held_out import finished_entries
from .weights import Floats, combine_log_probs, equal_classes, fit, sharpness_for_others

MOST = 12  # candidates that are delivered: a prediction waits for all of them
LEAST = 0.01  # share of the weights below which a candidate is not worth waiting for


def find_weights(evidence: ClassificationEvidence, among: Sequence[int]) -> Floats:
    """Return weights (K,) of all candidates, 0 for those that are not `among` the ones to weigh or hardly count. They
    are equal if nobody is left to fit them on, or no candidate helps to predict anybody."""
    kept, weights = np.asarray(among), np.zeros(len(evidence.candidates))
    if not evidence.people:
        weights[kept] = 1 / len(kept)
        return weights
    log_p, y, weight = _rows(evidence)
    beta = fit(log_p[kept], y, weight)
    # The heaviest, and none that hardly counts. They are weighed again without the others.
    order = np.argsort(-beta, kind="stable")[:MOST]
    enough = beta[order] >= LEAST * beta.sum()
    if enough.sum() < len(kept):
        kept = np.sort(kept[order[enough]])
        beta = fit(log_p[kept], y, weight)
    # A pool of fewer fits is more confident: the temperature comes from people who have all of theirs, if any do.
    people = evidence.complete or evidence.people
    pools = [evidence.pool(person)[kept] for person in people]
    labels = [evidence.y[person] for person in people]
    shares = beta / beta.sum() if beta.any() else np.full(len(kept), 1 / len(kept))
    weights[kept] = shares * sharpness_for_others([combine_log_probs(shares, pool) for pool in pools], labels)
    return weights


def _rows(evidence: ClassificationEvidence) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
    """Return what weights are fitted on: log-probabilities (K, N, C), classes (N,) and weights (N,). Every fit and
    person counts the same."""
    scored = set(evidence.people)
    used = [(person, log_p) for (_, person), log_p in evidence.log_probs.items() if person in scored]
    parts, labels, weights = [], [], []
    for person, log_p in used:
        y = evidence.y[person]
        rows = np.sort(np.random.default_rng(person).permutation(len(y))[: evidence.rows])
        parts.append(log_p[:, rows])
        labels.append(y[rows])
        weights.append(equal_classes(y[rows]) / len(used))
    return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)


class OnlineWeights(NamedTuple):
    """The ensemble for online sessions: candidates, and linear models that center subjects as windows come."""

    weights: dict[Setting, float]
    nested: dict[int, dict[Setting, float]]  # by subject, found without them


def find_online(run: Run, candidates: Sequence[Setting], centered: Sequence[Setting]) -> OnlineWeights | None:
    """Return None if no model centers subjects, or none of these has a weight."""
    if not centered:
        return None
    settings = [*candidates, *centered]
    named = [NamedSetting(run.options.name_of(setting), setting) for setting in settings]
    evidence = ClassificationEvidence.from_run(run, named, finished_entries(run, settings, run.folds()))

    def found(known: ClassificationEvidence) -> dict[Setting, float]:
        weights = find_weights(known, known.trained).tolist()
        return {setting: beta for setting, beta in zip(settings, weights, strict=True) if beta}

    weights = found(evidence)
    if weights.keys().isdisjoint(centered):
        return None
    nested: dict[int, dict[Setting, float]] = {}
    for block in evidence.blocks:
        nested |= dict.fromkeys(block, found(evidence.without(block)))
    return OnlineWeights(weights, nested)
