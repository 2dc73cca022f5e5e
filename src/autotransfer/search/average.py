"""The delivered average: weights for everybody, and again for each person without whatever held them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.choice import Calibration, Reliability
from .said import Said
from .weights import Floats, combined, equal_classes, fit, sharpness

MOST = 12  # candidates that are delivered: a prediction waits for all of them
LEAST = 0.01  # share of the weights below which a candidate is not worth waiting for
ROWS = 100  # of a person and training that weights are found on
MOST_ROWS = 20_000  # of all of them together
BLOCKS = 40  # how often weights are found again: of more people, some are left out together
BINS = 10  # of confidence


class Weights(NamedTuple):
    """Exponents β (K,) of the candidates, the temperature included; 0 for those that are left out."""

    exponents: Floats

    @property
    def shares(self) -> Floats:
        return np.asarray(self.exponents / self.exponents.sum())

    @property
    def temperature(self) -> float:
        return float(1 / self.exponents.sum())


@dataclass(frozen=True)
class Nested:
    """By person: weights found without them, and what these say of them."""

    weights: dict[int, Weights]
    said: dict[int, NDArray[np.float64]]  # log-probabilities (n, C)


def find_weights(said: Said, among: Sequence[int], without: Sequence[int] = ()) -> Weights:
    """Weights of the candidates `among` all, from trainings that held none of `without` out."""
    out = frozenset(without)
    log_p, y, weight = _rows(said, out)
    kept = np.asarray(among)
    beta = fit(log_p[kept], y, weight)
    # The heaviest, and none that hardly counts; what they would then weigh is another question.
    order = np.argsort(-beta, kind="stable")[:MOST]
    enough = beta[order] >= LEAST * beta.sum()
    if enough.sum() < len(kept):
        kept = np.sort(kept[order[enough]])
        beta = fit(log_p[kept], y, weight)
    # A pool of fewer trainings is surer of itself: where people have all of theirs, the temperature is theirs.
    rest = [person for person in said.people if person not in out]
    whole = [person for person in rest if not out & said.beside(person)]
    people = whole or rest
    pools = [said.of_person(person, out)[kept] for person in people]
    labels = [said.y[person] for person in people]
    mixed = np.concatenate([combined(beta, pool) for pool in pools])
    even = np.concatenate([equal_classes(own) for own in labels]) / len(people)
    exponents = np.zeros(len(said.candidates))
    exponents[kept] = beta * sharpness(mixed, np.concatenate(labels), even)
    return Weights(exponents)


def _rows(said: Said, out: frozenset[int]) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
    """What weights are found on: (K, N, C), classes (N,) and weights (N,), every training and person the same."""
    scored = set(said.people)
    used = [(person, own) for (fold, person), own in said.said.items() if person in scored and out.isdisjoint(fold)]
    most = max(10, min(ROWS, MOST_ROWS // len(said.said)))
    parts, labels, weights = [], [], []
    for person, own in used:
        y = said.y[person]
        rows = np.sort(np.random.default_rng(person).permutation(len(y))[:most])
        parts.append(own[:, rows])
        labels.append(y[rows])
        weights.append(equal_classes(y[rows]) / len(used))
    return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)


def blocks(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Whom to leave out together: those of a group, who were held out by the same trainings, up to BLOCKS groups."""
    parts = np.array_split(np.arange(len(groups)), min(len(groups), BLOCKS))
    return [[person for place in part.tolist() for person in groups[place]] for part in parts]


def find_nested(said: Said, among: Sequence[int]) -> Nested:
    """The same for each person without whatever held them out."""
    weights: dict[int, Weights] = {}
    for block in blocks(said.together):
        found = find_weights(said, among, block)
        weights |= dict.fromkeys(block, found)
    return Nested(weights, {p: combined(own.exponents, said.of_person(p)) for p, own in weights.items()})


def without_kind(said: Said, nested: Nested, kinds: Sequence[str], kind: str) -> dict[int, float]:
    """Scores by person where the candidates of a kind are left out and the others keep their weights."""
    stay = np.array([own != kind for own in kinds])
    found = {}
    for person, own in nested.weights.items():
        rest = own.exponents * stay
        found[person] = said.score(person, combined(rest, said.of_person(person)))
    return found


def calibration(said: Said, nested: Nested) -> Calibration:
    """Every person and class counting the same."""
    confidence, right, weight, before = [], [], [], []
    for person, log_p in nested.said.items():
        y = said.y[person]
        own = nested.weights[person]
        plain = combined(own.shares, said.of_person(person))
        confidence.append(np.exp(log_p.max(1)))
        before.append(np.exp(plain.max(1)))
        right.append(log_p.argmax(1) == y)
        weight.append(equal_classes(y) / len(nested.said))
    hits, weights = np.concatenate(right), np.concatenate(weight)
    bins = _bins(np.concatenate(confidence), hits, weights)
    return Calibration(
        confidence=[float(one) for one in bins[0]],
        accuracy=[float(one) for one in bins[1]],
        share=[float(one) for one in bins[2]],
        error=_error(*bins),
        error_before=_error(*_bins(np.concatenate(before), hits, weights)),
    )


def reliability(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> Reliability:
    """Of one person: classes (n,) and the delivered model's log-probabilities (n, C)."""
    confidence, right, weight = np.exp(log_p.max(1)), log_p.argmax(1) == y, equal_classes(y)
    error = _error(*_bins(confidence, right, weight))
    return Reliability(float(np.average(confidence, weights=weight)), float(np.average(right, weights=weight)), error)


def confusion(y: NDArray[np.int64], log_p: NDArray[np.floating]) -> list[list[int]]:
    """Counts (C, C) of the same: true class × predicted class."""
    size = log_p.shape[1]
    counts: list[list[int]] = np.bincount(y * size + log_p.argmax(1), minlength=size**2).reshape(size, size).tolist()
    return counts


def _bins(confidence: Floats, right: NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean confidence, accuracy and share of each bin that holds a window."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    share, sure, hit = (
        np.bincount(place, weights=own, minlength=BINS) for own in (weight, weight * confidence, weight * right)
    )
    full = share > 0
    return sure[full] / share[full], hit[full] / share[full], np.asarray(share[full], dtype=np.float64)


def _error(confidence: Floats, accuracy: Floats, share: Floats) -> float:
    """Expected calibration error."""
    return float((share * np.abs(confidence - accuracy)).sum() / share.sum())
