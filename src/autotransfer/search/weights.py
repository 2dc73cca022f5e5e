"""Compute the weights of candidates in an ensemble from their predictions for held-out subjects.

    log p(class) = Σ_k β_k log p_k(class) − normalizer,   β_k ≥ 0

β minimizes the log-loss, with the same total weight for every subject and class, plus λ · mean_k (β_k / β₀ − 1)², where
β₀ is the best common weight of all candidates. This term shrinks the weights of candidates that are best by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from ..training.intervals import is_helpful

Floats = NDArray[np.float64]
LogProbs = NDArray[np.floating]
SHRINKAGE = 0.01  # λ, in units of the log-loss
SHARPNESS_SHRINKAGE = 0.001  # factor of log(sharpness)², in units of the log-loss
SPREAD = 0.55  # standard deviation over subjects of the best log temperature: 0.3 to 0.9 in six data sets
PRIOR_SUBJECTS = 2  # number of subjects that SPREAD counts as


def fit_weights(log_p: LogProbs, y: NDArray[np.int64], sample_weight: Floats, shrinkage: float = SHRINKAGE) -> Floats:
    """Fit weights β (K,) of log-probabilities (K, N, C) to classes y (N,). sample_weight: sums to 1."""
    K = len(log_p)
    beta_0 = sharpness(log_p.mean(0), y, sample_weight) / K

    def objective(beta: Floats) -> tuple[float, Floats]:
        loss, gradient = _log_loss(beta, log_p, y, sample_weight)
        deviation = beta / beta_0 - 1
        return loss + shrinkage * float((deviation**2).mean()), gradient + shrinkage * 2 * deviation / (beta_0 * K)

    solution = minimize(objective, np.full(K, beta_0), jac=True, method="L-BFGS-B", bounds=[(0, None)] * K)
    return np.asarray(solution.x, dtype=np.float64)


def sharpness(log_p: LogProbs, y: NDArray[np.int64], sample_weight: Floats) -> float:
    """Return the inverse temperature with the lowest log-loss of log-probabilities (N, C), shrunk slightly towards 1.

    Without shrinkage, the inverse temperature is infinite if all windows are predicted correctly.
    """

    def objective(log_sharpness: float) -> float:
        loss, _ = _log_loss(np.exp([log_sharpness]), log_p[None], y, sample_weight)
        return loss + SHARPNESS_SHRINKAGE * log_sharpness**2

    return float(np.exp(minimize_scalar(objective, bounds=(-5, 5), method="bounded").x))


def shrunk_sharpness(log_p: Sequence[LogProbs], y: Sequence[NDArray[np.int64]]) -> float:
    """Return the inverse temperature for a new subject, from log-probabilities (n, C) and classes (n,) of each subject.

    The logarithm m of the common inverse temperature of n subjects is shrunk to m · max(0, 1 − s² / (n m²)) (James and
    Stein), where s² is the variance over subjects of one Newton step from m to the optimum of a subject. The result is
    1 unless the common inverse temperature of the other subjects lowers the log-loss of subjects.
    """
    n, weights = len(y), [balanced_sample_weight(classes) for classes in y]
    common = sharpness(np.concatenate(log_p), np.concatenate(y), np.concatenate(weights) / n)
    gradients, curvatures, gains = [], [], []
    for logits, classes, sample_weight in zip(log_p, y, weights, strict=True):
        log_probs = combine_log_probs(np.array([common]), logits[None])
        p, rows = np.exp(log_probs), np.arange(len(classes))
        gains.append(sample_weight @ (log_probs - combine_log_probs(np.ones(1), logits[None]))[rows, classes])
        mean = (p * logits).sum(1)
        gradients.append(common * (sample_weight * (mean - logits[rows, classes])).sum())
        curvatures.append(common**2 * (sample_weight * ((p * logits**2).sum(1) - mean**2)).sum())
    steps = np.array(gradients) / max(np.mean(curvatures), 1e-12)
    variance = (PRIOR_SUBJECTS * SPREAD**2 + ((steps - steps.mean()) ** 2).sum()) / (PRIOR_SUBJECTS + n - 1)
    m = float(np.log(common))
    # Without a subject, m changes by the subject's step / (n − 1). The subject's loss is quadratic near m.
    change = steps / max(n - 1, 1)
    loss_increase = np.array(gradients) * change + 0.5 * np.array(curvatures) * change**2
    if not is_helpful(np.array(gains) - loss_increase):
        return 1.0
    return float(np.exp(m * max(0.0, 1 - variance / max(n * m**2, 1e-12))))


def _log_loss(beta: Floats, log_p: LogProbs, y: NDArray[np.int64], sample_weight: Floats) -> tuple[float, Floats]:
    """Return the weighted log-loss and its gradient (K,)."""
    combined = combine_log_probs(beta, log_p)
    rows = np.arange(len(y))
    residual = np.exp(combined)
    residual[rows, y] -= 1
    residual *= sample_weight[:, None]
    gradient = log_p.reshape(len(beta), -1) @ residual.ravel().astype(log_p.dtype)
    return float(-(sample_weight * combined[rows, y]).sum()), np.asarray(gradient, dtype=np.float64)


def combine_log_probs(beta: Floats, log_p: LogProbs) -> Floats:
    """Return normalized log-probabilities (N, C) of the weighted candidates log_p (K, N, C)."""
    logits = np.tensordot(beta, log_p, 1).astype(np.float64)
    logits -= logits.max(1, keepdims=True)  # SciPy's logsumexp takes ten times as long on few windows
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


def balanced_sample_weight(y: NDArray[np.int64]) -> Floats:
    """Return weights (N,) of the windows of one subject. They sum to 1, with the same total for every class in y."""
    _, index, count = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(count) * count[index]))
