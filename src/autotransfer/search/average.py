"""Find the weights of ensembles from predictions of held-out subjects."""

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
from .weights import Floats, combine_log_probs, equal_classes, fit_weights, shrunk_sharpness

MAX_CANDIDATES = 12  # of a delivered ensemble: a prediction waits for all of them
MIN_SHARE = 0.01  # of the weights: a candidate with less is left out


def find_weights(evidence: ClassificationEvidence, among: Sequence[int]) -> Floats:
    """Return weights (K,) of all candidates; candidates that are not in `among`, or have a small weight, have 0.

    Weights are equal if no subject is left to fit them on, or if no candidate helps to predict.
    """
    kept, weights = np.asarray(among), np.zeros(len(evidence.candidates))
    if not evidence.held_out_subjects:
        weights[kept] = 1 / len(kept)
        return weights
    log_p, y, weight = _fit_data(evidence)
    beta = fit_weights(log_p[kept], y, weight)
    # The candidates with the largest weights are weighed again without the others.
    order = np.argsort(-beta, kind="stable")[:MAX_CANDIDATES]
    enough = beta[order] >= MIN_SHARE * beta.sum()
    if enough.sum() < len(kept):
        kept = np.sort(kept[order[enough]])
        beta = fit_weights(log_p[kept], y, weight)
    # A pool of fewer fits is more confident, so the temperature is fitted on subjects with all of their fits, if any.
    complete = [subject for subject in evidence.held_out_subjects if subject not in evidence.partial]
    subjects = complete or evidence.held_out_subjects
    pools = [evidence.pool(subject)[kept] for subject in subjects]
    shares = beta / beta.sum() if beta.any() else np.full(len(kept), 1 / len(kept))
    combined = [combine_log_probs(shares, pool) for pool in pools]
    weights[kept] = shares * shrunk_sharpness(combined, [evidence.y[subject] for subject in subjects])
    return weights


def _fit_data(evidence: ClassificationEvidence) -> tuple[NDArray[np.float32], NDArray[np.int64], Floats]:
    """Return log-probabilities (K, N, C), classes (N,) and weights (N,); every fit and subject counts the same."""
    held_out = set(evidence.held_out_subjects)
    used = [(subject, log_p) for (_, subject), log_p in evidence.log_probs.items() if subject in held_out]
    parts, labels, weights = [], [], []
    for subject, log_p in used:
        y = evidence.y[subject]
        rows = np.sort(np.random.default_rng(subject).permutation(len(y))[: evidence.windows])
        parts.append(log_p[:, rows])
        labels.append(y[rows])
        weights.append(equal_classes(y[rows]) / len(used))
    return np.concatenate(parts, 1), np.concatenate(labels), np.concatenate(weights)


class OnlineWeights(NamedTuple):
    """Weights of the online ensemble: of candidates, and of linear models that center subjects online."""

    weights: dict[Setting, float]
    nested: dict[int, dict[Setting, float]]  # by subject, fitted without the subject


def find_online_weights(run: Run, candidates: Sequence[Setting], centered: Sequence[Setting]) -> OnlineWeights | None:
    """Return the weights of the online ensemble; None unless a model that centers subjects has a weight."""
    if not centered:
        return None
    settings = [*candidates, *centered]
    named = [NamedSetting(run.options.name_of(setting), setting) for setting in settings]
    evidence = ClassificationEvidence.from_run(run, named, finished_entries(run, settings, run.folds()))

    def find(known: ClassificationEvidence) -> dict[Setting, float]:
        weights = find_weights(known, known.trained).tolist()
        return {setting: beta for setting, beta in zip(settings, weights, strict=True) if beta}

    weights = find(evidence)
    if weights.keys().isdisjoint(centered):
        return None
    nested: dict[int, dict[Setting, float]] = {}
    for block in evidence.blocks:
        nested |= dict.fromkeys(block, find(evidence.without(block)))
    return OnlineWeights(weights, nested)
