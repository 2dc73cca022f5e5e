"""Weights of candidates, fitted on people whom their trainings held out.

    log p(class) = Σ_k β_k log p_k(class) − normaliser,   β_k ≥ 0

β minimises the log-loss, in which every person and every class count the same, plus

    λ · mean_k (β_k / β₀ − 1)²

where β₀ is the best exponent that is the same for all. Without that term, few people are overfitted: the weights of the
luckiest candidates would grow. λ is a constant, chosen on validation people of five data sets before it was used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

Floats = NDArray[np.float64]
SHRINKAGE = 0.01  # λ, in units of the log-loss
DOUBT = 0.001  # the same for the temperature


def fit(log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats, shrinkage: float = SHRINKAGE) -> Floats:
    """Exponents β (K,) of log-probabilities log_p (K, N, C) of rows with classes y (N,) and weights (N,) that sum
    to 1."""
    K = len(log_p)
    equal = sharpness(log_p.mean(0), y, weight) / K

    def objective(beta: Floats) -> tuple[float, Floats]:
        loss, slope = _log_loss(beta, log_p, y, weight)
        away = beta / equal - 1
        return loss + shrinkage * float((away**2).mean()), slope + shrinkage * 2 * away / (equal * K)

    solution = minimize(objective, np.full(K, equal), jac=True, method="L-BFGS-B", bounds=[(0, None)] * K)
    return np.asarray(solution.x, dtype=np.float64)


def sharpness(log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats) -> float:
    """The factor of log-probabilities (N, C) that makes them best calibrated: one over the temperature.

    It is drawn a little towards 1: where a few people are predicted without a mistake, nothing else would keep it
    finite.
    """

    def objective(power: float) -> float:
        loss, _ = _log_loss(np.exp([power]), log_p[None], y, weight)
        return loss + DOUBT * power**2

    return float(np.exp(minimize_scalar(objective, bounds=(-5, 5), method="bounded").x))


def _log_loss(beta: Floats, log_p: NDArray[np.floating], y: NDArray[np.int64], weight: Floats) -> tuple[float, Floats]:
    """The loss and its slope (K,)."""
    mixed = combined(beta, log_p)
    rows = np.arange(len(y))
    residual = np.exp(mixed)
    residual[rows, y] -= 1
    residual *= weight[:, None]
    slope = log_p.reshape(len(beta), -1) @ residual.ravel().astype(log_p.dtype)
    return float(-(weight * mixed[rows, y]).sum()), np.asarray(slope, dtype=np.float64)


def combined(beta: Floats, log_p: NDArray[np.floating]) -> Floats:
    """Normalised log-probabilities (N, C) of the weighted candidates log_p (K, N, C)."""
    mixed = np.tensordot(beta, log_p, 1).astype(np.float64)
    mixed -= mixed.max(1, keepdims=True)  # SciPy's logsumexp takes ten times as long on the few rows of a person
    return np.asarray(mixed - np.log(np.exp(mixed).sum(1, keepdims=True)))


def equal_classes(y: NDArray[np.int64]) -> Floats:
    """Weights (N,) of one person's rows that sum to 1 and give every class that occurs the same."""
    _, place, count = np.unique(y, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(count) * count[place]))
