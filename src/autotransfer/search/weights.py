"""Fit weights of candidates on subjects that their fits held out.

    log p(class) = Σ_k β_k log p_k(class) − normalizer,   β_k ≥ 0

β minimizes the log-loss, with the same total weight for every subject and class, plus λ · mean_k (β_k / β₀ − 1)², where
β₀ is the best weight that is equal for all candidates. Without this term, the weights of the luckiest candidates grow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

Floats = NDArray[np.float64]
SHRINKAGE = 0.01  # λ, in units of the log-loss
SHARPNESS_SHRINKAGE = 0.001  # of the squared log sharpness, in units of the log-loss
SPREAD = 0.55  # standard deviation over subjects of the best log temperature: 0.3 to 0.9 in six data sets
PRIOR_SUBJECTS = 2  # number of subjects that SPREAD is worth


def fit_weights(
    log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats, shrinkage: float = SHRINKAGE
) -> Floats:
    """Fit weights β (K,) of log-probabilities (K, N, C) of classes y (N,), with weights (N,) that sum to 1."""
    K = len(log_p)
    equal = sharpness(log_p.mean(0), y, weight) / K

    def objective(beta: Floats) -> tuple[float, Floats]:
        loss, slope = _log_loss(beta, log_p, y, weight)
        away = beta / equal - 1
        return loss + shrinkage * float((away**2).mean()), slope + shrinkage * 2 * away / (equal * K)

    solution = minimize(objective, np.full(K, equal), jac=True, method="L-BFGS-B", bounds=[(0, None)] * K)
    return np.asarray(solution.x, dtype=np.float64)


def sharpness(log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats) -> float:
    """Return the inverse temperature that calibrates log-probabilities (N, C) best, shrunk slightly towards 1.

    Without shrinkage it is infinite if all windows are predicted without a mistake.
    """

    def objective(power: float) -> float:
        loss, _ = _log_loss(np.exp([power]), log_p[None], y, weight)
        return loss + SHARPNESS_SHRINKAGE * power**2

    return float(np.exp(minimize_scalar(objective, bounds=(-5, 5), method="bounded").x))


def shrunk_sharpness(log_p: Sequence[NDArray[np.floating]], y: Sequence[NDArray[np.int64]]) -> float:
    """Return the inverse temperature for a new subject, from log-probabilities (n, C) and classes (n,) of each subject.

    Its logarithm m over n subjects is shrunk by how much subjects differ, m · max(0, 1 − s² / (n m²)) (James and
    Stein), where s² is the variance of one Newton step from m to each subject's own optimum.
    """
    n, weights = len(y), [equal_classes(classes) for classes in y]
    common = sharpness(np.concatenate(log_p), np.concatenate(y), np.concatenate(weights) / n)
    slopes, curvatures = [], []
    for of_subject, classes, weight in zip(log_p, y, weights, strict=True):
        p = np.exp(combine_log_probs(np.array([common]), of_subject[None]))
        mean = (p * of_subject).sum(1)
        slopes.append(common * (weight * (mean - of_subject[np.arange(len(classes)), classes])).sum())
        curvatures.append(common**2 * (weight * ((p * of_subject**2).sum(1) - mean**2)).sum())
    steps = np.array(slopes) / max(np.mean(curvatures), 1e-12)
    variance = (PRIOR_SUBJECTS * SPREAD**2 + ((steps - steps.mean()) ** 2).sum()) / (PRIOR_SUBJECTS + n - 1)
    power = float(np.log(common))
    return float(np.exp(power * max(0.0, 1 - variance / max(n * power**2, 1e-12))))


def _log_loss(beta: Floats, log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats) -> tuple[float, Floats]:
    """Return the weighted log-loss and its gradient (K,)."""
    mixed = combine_log_probs(beta, log_p)
    rows = np.arange(len(y))
    residual = np.exp(mixed)
    residual[rows, y] -= 1
    residual *= weight[:, None]
    slope = log_p.reshape(len(beta), -1) @ residual.ravel().astype(log_p.dtype)
    return float(-(weight * mixed[rows, y]).sum()), np.asarray(slope, dtype=np.float64)


def combine_log_probs(beta: Floats, log_p: NDArray[np.floating]) -> Floats:
    """Return normalized log-probabilities (N, C) of the weighted candidates log_p (K, N, C)."""
    mixed = np.tensordot(beta, log_p, 1).astype(np.float64)
    mixed -= mixed.max(1, keepdims=True)  # SciPy's logsumexp takes ten times as long on few windows
    return np.asarray(mixed - np.log(np.exp(mixed).sum(1, keepdims=True)))


def equal_classes(y: NDArray[np.int64]) -> Floats:
    """Return weights (N,) of one subject's windows that sum to 1, with the same total for every class that occurs."""
    _, place, count = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(count) * count[place]))
