"""Montage: how the channels of training people go together, so that one that is missing later can be estimated.

A channel is estimated from the others at the same moment, by least squares with shrinkage: with R the correlations of
channels over training people and D their standard deviations,

    x̂_m = mean_m + D_m r_mo (R_oo + λI)⁻¹ D_o⁻¹ (x_o − mean_o)

How much of its variance that explains is measured on people who were left out of the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..recordings.raw import Array
from ..recordings.windows import UNNAMED, channel_places

SHRINKAGE = 0.01  # λ: signals hold noise that other people's do not
LEAST_EXPLAINED = 0.3  # of a channel's variance: below this an estimate is mostly a guess
FEWEST = 3  # people
Floats = NDArray[np.float64]


class Montage(NamedTuple):
    """Of training people, over their windows.

    mean: (C,); covariance: (C, C), within windows, everybody's divided by their power so that people count alike
    explained: (C,) the share of each channel's variance that the others explain, in people left out
    """

    mean: Tensor
    covariance: Tensor
    explained: Tensor


def fit_montage(X: Tensor, subject: Tensor) -> Montage | None:
    """Of windows (N, C, T) of people (N,); None for fewer than three people, or for a single channel."""
    people = subject.unique().tolist()  # type: ignore[no-untyped-call]  # torch's
    if len(people) < FEWEST or X.shape[1] < 2:
        return None
    unscaled, means = zip(*(_moments(X[subject == person]) for person in people), strict=True)
    powers = np.array([np.trace(covariance) for covariance in unscaled])
    if not (np.isfinite(powers).all() and (powers > 0).all()):
        return None
    covariances = np.stack(unscaled) * (powers.mean() / powers)[:, None, None]
    total = covariances.mean(0)
    residual = np.zeros(len(total))
    for covariance in covariances:
        residual += _residual_variance(total * len(people) - covariance, covariance)
    explained = _explained_share(residual, covariances.diagonal(axis1=1, axis2=2).sum(0))
    return Montage(*(torch.from_numpy(array).float() for array in (np.mean(means, 0), total, explained.clip(0, 1))))


def _moments(X: Tensor) -> tuple[Floats, Floats]:
    """Of one person's windows (n, C, T): covariance within windows (C, C), and mean (C,)."""
    windows: Floats = X.double().numpy()
    centred = windows - windows.mean(2, keepdims=True)
    rows = centred.transpose(1, 0, 2).reshape(centred.shape[1], -1)
    return rows @ rows.T / rows.shape[1], windows.mean((0, 2))


def _scaled(covariance: Floats) -> tuple[Floats, Floats]:
    """Correlations with shrinkage (C, C), and standard deviations (C,), 1 where a channel has none."""
    deviation = np.sqrt(covariance.diagonal())
    deviation = np.where(deviation > 0, deviation, 1.0)
    return covariance / np.outer(deviation, deviation) + SHRINKAGE * np.eye(len(covariance)), deviation


def _residual_variance(others: Floats, person: Floats) -> Floats:
    """Covariances (C, C) of other people and of one person -> the variance (C,) of each channel of this person that the
    others' weights leave unexplained.

    The inverse P of the correlations has the weights of all channels: x_m is about −Σ_o P_om / P_mm x_o.
    """
    correlation, deviation = _scaled(others)
    inverse = np.linalg.inv(correlation)
    residual = inverse / inverse.diagonal()  # column m: what is left of channel m, by channel
    scaled = person / np.outer(deviation, deviation)
    variance: Floats = (residual * (scaled @ residual)).sum(0) * deviation**2
    return variance


def _explained_share(residual: Floats, variance: Floats) -> Floats:
    """1 − residual / variance (C,), 0 where there is no variance."""
    share: Floats = 1 - np.divide(residual, variance, out=np.ones_like(residual), where=variance > 0)
    return share


class Arrangement(NamedTuple):
    """How the channels that a model reads are made of those that the data have.

    names: of the data's channels; places: of the known ones among them; known, missing: their numbers in the model
    weight (M, K), bias (M,): of the missing ones by the known ones; notes: a line for each
    """

    names: tuple[str, ...]
    places: list[int]
    known: list[int]
    missing: list[int]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    notes: tuple[str, ...]

    def apply(self, X: Array) -> NDArray[np.float32]:
        """(..., channels of the data, times) -> (..., channels of the model, times)."""
        known = np.asarray(X, dtype=np.float32)[..., self.places, :]
        windows = np.empty((*known.shape[:-2], len(self.known) + len(self.missing), known.shape[-1]), np.float32)
        windows[..., self.known, :] = known
        if self.missing:
            windows[..., self.missing, :] = self.weight @ known + self.bias[:, None]
        return windows


def arrangement(montage: Montage | None, expected: Sequence[str], names: Sequence[str]) -> Arrangement | None:
    """From the data's names of channels to those that a model expects; None where some are missing and nobody knows how
    to estimate them. A channel that the others explain too little of is refused."""
    places, absent = channel_places(names, expected)
    missing = [place for place, name in enumerate(expected) if name in absent]
    known = [place for place in range(len(expected)) if place not in missing]
    if not missing:
        none = np.empty((0, len(known)), np.float32)
        return Arrangement(tuple(names), places, known, [], none, np.empty(0, np.float32), ())
    if montage is None or not known or all(UNNAMED.fullmatch(name) for name in expected):
        return None
    covariance, mean = montage.covariance.double().numpy(), montage.mean.double().numpy()
    correlation, deviation = _scaled(covariance)
    solved = np.linalg.solve(correlation[np.ix_(known, known)], correlation[np.ix_(known, missing)])
    weight: Floats = np.asarray(solved.T * deviation[missing][:, None] / deviation[known], dtype=np.float64)
    explained = _explained(covariance, weight, known, missing)
    others = [name for place, name in enumerate(names) if place not in places]
    notes = []
    for place, share in zip(missing, np.minimum(explained, montage.explained.double().numpy()[missing]), strict=True):
        name = expected[place]
        elsewhere = f"; if it is {others[0]!r} in the data, say so: --rename {others[0]}={name}" if others else ""
        if share < LEAST_EXPLAINED:
            raise UserError(
                f"channel {name!r} is missing, and the others explain only {share:.2f} of it in training people; "
                f"record it, or train a model without it{elsewhere}"
            )
        notes.append(
            f"channel {name!r} is missing: estimated from the others, which explain {share:.2f} of it in training "
            f"people{elsewhere}"
        )
    bias = mean[missing] - weight @ mean[known]
    return Arrangement(
        tuple(names), places, known, missing, weight.astype(np.float32), bias.astype(np.float32), tuple(notes)
    )


def _explained(covariance: Floats, weight: Floats, known: list[int], missing: list[int]) -> Floats:
    """(M,): of all training people together, with only these channels known."""
    cross, among = covariance[np.ix_(missing, known)], covariance[np.ix_(known, known)]
    variance = covariance.diagonal()[missing]
    return _explained_share(variance - 2 * (weight * cross).sum(1) + ((weight @ among) * weight).sum(1), variance)
