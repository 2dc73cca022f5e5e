"""Ridge regression in closed form, for many strengths at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TINY = 1e-12  # of a number's largest size: a smaller deviation is rounding


class Ridge(NamedTuple):
    """Targets as linear functions of raw codes x (D,), one for each of S strengths: weight · x + bias."""

    weight: Floats  # (S, D)
    bias: Floats  # (S,)

    def predict(self, codes: NDArray[np.floating]) -> Floats:
        """(n, D) -> (S, n)"""
        return np.asarray(self.weight @ codes.T.astype(np.float64) + self.bias[:, None])


def ridge(codes: NDArray[np.floating], target: Floats, strengths: Sequence[float]) -> Ridge:
    """Minimise the mean over rows of (target − prediction)² + strength · |w|², with w the weights of standardized codes
    (n, D); the intercept is free. A number that is the same in all rows has weight 0.

    One decomposition of the smaller of the products ZᵀZ and ZZᵀ serves all strengths.
    """
    exact = np.asarray(codes, dtype=np.float64)
    shift = exact.mean(0)
    rows = exact - shift
    spread = np.sqrt(np.square(rows).mean(0))
    varies = spread > TINY * np.abs(exact).max(0, initial=0.0)
    factor = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
    rows *= factor
    n, mean = len(rows), float(target.mean())
    penalty = n * np.asarray(strengths, dtype=np.float64)[:, None]
    if n < rows.shape[1]:
        values, vectors = np.linalg.eigh(rows @ rows.T)
        weight = ((vectors.T @ (target - mean)) / (np.maximum(values, 0.0) + penalty)) @ vectors.T @ rows
    else:
        values, vectors = np.linalg.eigh(rows.T @ rows)
        weight = ((vectors.T @ (rows.T @ (target - mean))) / (np.maximum(values, 0.0) + penalty)) @ vectors.T
    weight = weight * factor
    return Ridge(weight, mean - weight @ shift)
