"""How good predictions of a number are, person by person, and intervals that hold it for people left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .conformal import CANDIDATES, FEWEST, LEVELS, cautious, share

Floats = NDArray[np.float64]
Radii = list[float | None]  # (99,) for coverages of 0.01 … 0.99; None: no interval of finite length would do


def r2(y: Floats, predicted: Floats) -> float:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)²: 1 is perfect, 0 as good as a person's own mean, which nobody knows beforehand. NaN
    for a person whose target never changes."""
    total = float(np.square(y - y.mean()).sum())
    return 1 - float(np.square(y - predicted).sum()) / total if total > 0 else float("nan")


def correlation(y: Floats, predicted: Floats) -> float:
    """Pearson's; NaN where either never changes."""
    a, b = y - y.mean(), predicted - predicted.mean()
    size = float(np.sqrt(np.square(a).sum() * np.square(b).sum()))
    return float((a * b).sum()) / size if size > 0 else float("nan")


def rmse(y: Floats, predicted: Floats) -> float:
    return float(np.sqrt(np.square(y - predicted).mean()))


METRICS: dict[str, Callable[[Floats, Floats], float]] = {"r2": r2, "correlation": correlation, "rmse": rmse}


def interval_radii(residuals: Sequence[Floats]) -> Radii | None:
    """Half-widths of intervals about a prediction, from |y − ŷ| (n_k,) of people whom it never saw, by the rule of
    `conformal`: people are the unit. None for fewer than FEWEST people."""
    if len(residuals) < FEWEST:
        return None
    tried, covered = _curves(residuals)
    places = cautious(covered, np.arange(1, LEVELS + 1) / 100)
    return [float(radius) if np.isfinite(radius) else None for radius in tried[places]]


def _curves(residuals: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Radii to try (T,), falling from infinity, and the share of each person's windows that they cover (K, T)."""
    tried = np.unique(np.concatenate(residuals))
    if len(tried) > CANDIDATES:  # the largest is among them
        tried = tried[np.linspace(0, len(tried) - 1, CANDIDATES).round().astype(int)]
    tried = np.concatenate([[np.inf], tried[::-1]])
    return tried, np.stack([np.searchsorted(np.sort(errors), tried, "right") / len(errors) for errors in residuals])


def radius_at(radii: Radii | None, coverage: float) -> float:
    """Return the radius of the next coverage that is not smaller; infinite if none is wide enough."""
    place = int(np.ceil(100 * share("coverage", coverage) - 1e-6)) - 1
    if radii is None:
        raise UserError(f"the model has no intervals: fewer than {FEWEST} people were held out when it was made")
    radius = radii[place] if place < LEVELS else None
    return np.inf if radius is None else radius


def around(predicted: Floats, radius: float) -> Floats:
    """Low and high ends (N, 2) of intervals about predictions (N,)."""
    return np.stack([predicted - radius, predicted + radius], axis=1)


def held_out_coverage(residuals: Sequence[Floats], coverage: float) -> list[float]:
    """The share of each person's windows (K,) within intervals from the other people; empty where these are too few."""
    shares = []
    for k, errors in enumerate(residuals):
        radii = interval_radii([*residuals[:k], *residuals[k + 1 :]])
        if radii is None:
            return []
        shares.append(float(np.mean(errors <= radius_at(radii, coverage))))
    return shares
