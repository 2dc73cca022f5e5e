"""The delivered average: weights for everybody, and for each person again without the trainings that held them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.choice import Calibration, Reliability
from ..runs.run import Run
from ..settings import Setting
from .held_out import HeldOutLogProbs, trained_candidates
from .validation import finished_entries
from .weights import Floats, combine_log_probs, equal_classes, fit, sharpness_for_others

MOST = 12  # candidates that are delivered: a prediction waits for all of them
LEAST = 0.01  # share of the weights below which a candidate is not worth waiting for
ROWS = 100  # of a person and training that weights are fitted on
MOST_ROWS = 20_000  # of all of them together
BLOCKS = 40  # how often weights are fitted again: of more people, some are left out together
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
    """By person: weights fitted without them, and the log-probabilities (n, C) that these weights give them."""

    weights: dict[int, Weights]
    log_probs: dict[int, NDArray[np.float64]]


def find_weights(held_out: HeldOutLogProbs, among: Sequence[int], without: Sequence[int] = ()) -> Weights:
    """Weights of the candidates `among` all, from trainings that held none of `without` out."""
    out = frozenset(without)
    log_p, y, weight = _rows(held_out, out)
    kept = np.asarray(among)
    beta = fit(log_p[kept], y, weight)
    # The heaviest, and none that hardly counts. They are weighed again without the others.
    order = np.argsort(-beta, kind="stable")[:MOST]
    enough = beta[order] >= LEAST * beta.sum()
    if enough.sum() < len(kept):
        kept = np.sort(kept[order[enough]])
        beta = fit(log_p[kept], y, weight)
    # A pool of fewer trainings is more confident: the temperature comes from people who have all of theirs, if any do.
    rest = [person for person in held_out.people if person not in out]
    whole = [person for person in rest if not out & held_out.held_out_with(person)]
    people = whole or rest
    pools = [held_out.of_person(person, out)[kept] for person in people]
    labels = [held_out.y[person] for person in people]
    shares = beta / beta.sum()
    exponents = np.zeros(len(held_out.candidates))
    exponents[kept] = shares * sharpness_for_others([combine_log_probs(shares, pool) for pool in pools], labels)
    return Weights(exponents)


def _rows(held_out: HeldOutLogProbs, out: frozenset[int]) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
    """What weights are fitted on: log-probabilities (K, N, C), classes (N,) and weights (N,). Every training and person
    counts the same."""
    scored, every = set(held_out.people), held_out.log_probs
    used = [(person, log_p) for (fold, person), log_p in every.items() if person in scored and out.isdisjoint(fold)]
    most = max(10, min(ROWS, MOST_ROWS // len(every)))
    parts, labels, weights = [], [], []
    for person, log_p in used:
        y = held_out.y[person]
        rows = np.sort(np.random.default_rng(person).permutation(len(y))[:most])
        parts.append(log_p[:, rows])
        labels.append(y[rows])
        weights.append(equal_classes(y[rows]) / len(used))
    return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)


def blocks(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """People to leave out together, in at most BLOCKS blocks of whole groups, which the same trainings held out."""
    parts = np.array_split(np.arange(len(groups)), min(len(groups), BLOCKS))
    return [[person for place in part.tolist() for person in groups[place]] for part in parts]


def find_nested(held_out: HeldOutLogProbs, among: Sequence[int]) -> Nested:
    """The same for each person without the trainings that held them out."""
    weights: dict[int, Weights] = {}
    for block in blocks(held_out.together):
        weights |= dict.fromkeys(block, find_weights(held_out, among, block))
    return Nested(weights, {p: combine_log_probs(w.exponents, held_out.of_person(p)) for p, w in weights.items()})


class OnlineWeights(NamedTuple):
    """settings: candidates, then closed forms that centre people, held-out people in the order of recording."""

    settings: list[Setting]
    weights: Weights
    nested: Nested


def find_online(run: Run, candidates: Sequence[Setting], centred: Sequence[Setting]) -> OnlineWeights | None:
    """None where no form centres people, or none of these has a weight."""
    if not centred:
        return None
    settings = [*candidates, *centred]
    entries = finished_entries(run, settings, run.folds())
    held_out = HeldOutLogProbs.of(run, settings, entries)
    among = trained_candidates(settings, entries)
    weights = find_weights(held_out, among)
    if not weights.exponents[len(candidates) :].any():
        return None
    return OnlineWeights(settings, weights, find_nested(held_out, among))


def without_kind(held_out: HeldOutLogProbs, nested: Nested, kinds: Sequence[str], kind: str) -> dict[int, float]:
    """Scores by person where the candidates of a kind are left out and the others keep their weights."""
    stay = np.array(kinds) != kind
    return {
        person: held_out.score(person, combine_log_probs(weights.exponents * stay, held_out.of_person(person)))
        for person, weights in nested.weights.items()
    }


def calibration(held_out: HeldOutLogProbs, nested: Nested) -> Calibration:
    """How far confidence and accuracy agree, with the same weight for every person and class."""
    confidence, right, weight, before = [], [], [], []
    for person, log_p in nested.log_probs.items():
        y = held_out.y[person]
        plain = combine_log_probs(nested.weights[person].shares, held_out.of_person(person))
        confidence.append(np.exp(log_p.max(1)))
        before.append(np.exp(plain.max(1)))
        right.append(log_p.argmax(1) == y)
        weight.append(equal_classes(y) / len(nested.log_probs))
    hits, weights = np.concatenate(right), np.concatenate(weight)
    bins = _bins(np.concatenate(confidence), hits, weights)
    return Calibration(
        confidence=bins[0].tolist(),
        accuracy=bins[1].tolist(),
        share=bins[2].tolist(),
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
        np.bincount(place, weights=summed, minlength=BINS) for summed in (weight, weight * confidence, weight * right)
    )
    full = share > 0
    return sure[full] / share[full], hit[full] / share[full], np.asarray(share[full], dtype=np.float64)


def _error(confidence: Floats, accuracy: Floats, share: Floats) -> float:
    """Expected calibration error."""
    return float((share * np.abs(confidence - accuracy)).sum() / share.sum())
