"""A window as numbers that a linear classifier can read, the same for everybody.

    features   of each channel: means of 16 stretches, log power in 16 bands, log deviation, and that of its slope
    tangent    log deviations of the channels, and the matrix logarithm of their correlations

Both are logarithms where a person's amplitudes would be factors: what differs between people is then a shift, which
`centre` can take away. The tangent vector is that of the affine-invariant geometry of covariances at the identity
(Barachant et al. 2012), with every channel in units of its own deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..cpu.in_use import operations
from ..errors import UserError, check_choice
from ..recordings.chunks import row_chunks
from .transform import Fitted, Rows, Stage, Transform

POINTS = 16  # stretches of a window, and bands of a spectrum
SHORTEST = 4  # samples of a window
QUIET = float(np.finfo(np.float32).tiny ** 0.5)  # least of what a logarithm is taken: that of a flat channel is finite

SMALLEST = 1e-9  # eigenvalue of a correlation by its trace that the logarithm in a graph is made for
ROOTS = 6  # square roots that it takes: eigenvalues are at least 1e-9^(1/64) = .72 by then
TERMS = 16  # of the series of the logarithm


@dataclass(frozen=True)
class Represent(Transform):
    kind: str = "features"

    default: ClassVar[object] = "none"

    def __post_init__(self) -> None:
        check_choice("represent", self.kind, ("none", *REPRESENTATIONS))
        assert self.kind != "none", "left out of a Preprocessing instead"

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        if times < SHORTEST:
            raise UserError(f"represent needs windows of at least {SHORTEST} samples; they have {times}")
        if self.kind == "features":
            return channels, min(POINTS, times) + min(POINTS, times // 2) + 2
        return 1, channels + channels * (channels + 1) // 2

    def signals(self, channels: int, times: int) -> int:
        return 0

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return REPRESENTATIONS[self.kind]()


def stretches(x: Tensor, most: int = POINTS) -> Tensor:
    """(..., T) -> means of `most` stretches, or T if that is less (..., S), as equal as can be; longer ones first."""
    times = int(x.shape[-1])  # the other sizes are left alone: in a graph the number of windows is not known yet
    count = min(most, times)
    length, longer = divmod(times, count)
    cut = longer * (length + 1)
    parts = [x[..., :cut].unflatten(-1, (longer, length + 1))] if longer else []
    parts += [x[..., cut:].unflatten(-1, (count - longer, length))]
    return torch.cat([part.mean(-1) for part in parts], -1)


def centred(x: Tensor) -> tuple[Tensor, Tensor]:
    """Windows (..., C, T) in float64 less their means, and the means (..., C, 1). Exactly 0 for a flat channel: less
    its first sample it has no rounding left to be taken for a signal."""
    exact = x.to(torch.float64)
    first = exact[..., :1]
    moved = exact - first
    mean = moved.mean(-1, keepdim=True)
    return moved - mean, first + mean


def deviation(x: Tensor) -> Tensor:
    """Of (..., T) about the mean: (...)."""
    return centred(x)[0].square().mean(-1).sqrt()


# ---- features --------------------------------------------------------------------------------------------------------


class Features(Fitted):
    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        """(..., C, T) -> (..., C, means + bands + 2)."""
        return in_pieces(x, lambda piece: features(piece, spectrum))

    def few(self, x: Tensor) -> Tensor:
        found: Tensor = operations.features(x, torch.from_numpy(_hann(int(x.shape[-1]))), POINTS, QUIET)
        return found

    def graph(self) -> nn.Module:
        return FeaturesGraph()


class FeaturesGraph(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return in_one_row(x, lambda rows: features(rows, products))


def features(x: Tensor, power_of: Callable[[Tensor], Tensor]) -> Tensor:
    """(..., C, T) -> (..., C, means + bands + 2), float64. power_of: signals (..., T) -> |spectrum|² (..., T // 2)."""
    own, mean = centred(x)
    means = stretches(own) + mean
    bands = stretches(power_of(own))
    spread = own.square().mean(-1, keepdim=True).sqrt()
    slope = deviation(own[..., 1:] - own[..., :-1])[..., None]
    return torch.cat([means, torch.cat([bands, spread, slope], -1).clamp(min=QUIET).log()], -1)


def spectrum(x: Tensor) -> Tensor:
    """Power at each frequency but 0 of signals (..., T) under a Hann window: (..., T // 2)."""
    window = torch.from_numpy(_hann(int(x.shape[-1]))).to(x)
    power: Tensor = torch.fft.rfft(x * window)[..., 1:].abs().square()
    return power


@cache
def _hann(times: int) -> NDArray[np.float64]:
    return np.hanning(times)


def products(x: Tensor) -> Tensor:
    """The same in products with the matrices of the transform, for graphs."""
    times = x.shape[-1]
    angle = np.outer(np.arange(times), np.arange(1, times // 2 + 1)) % times * (2 * math.pi / times)
    window = np.hanning(times)[:, None]
    real, imaginary = (x @ torch.from_numpy(window * part(angle)) for part in (np.cos, np.sin))
    return real.square() + imaginary.square()


# ---- tangent vectors -------------------------------------------------------------------------------------------------


class Tangent(Fitted):
    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        """(..., C, T) -> (..., 1, C + C(C + 1)/2)."""
        return in_pieces(x, lambda piece: tangent(piece, logarithm))

    def few(self, x: Tensor) -> Tensor:
        found: Tensor = operations.tangent(x, QUIET)
        return found

    def graph(self) -> nn.Module:
        return TangentGraph()


class TangentGraph(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return in_one_row(x, lambda rows: tangent(rows, logarithm_by_roots))


def tangent(x: Tensor, log_of: Callable[[Tensor], Tensor]) -> Tensor:
    """(..., C, T) -> (..., 1, C + C(C + 1)/2), float64. log_of: matrices (..., C, C) -> their logarithms."""
    own, _ = centred(x)
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    spread = own.square().mean(-1, keepdim=True).sqrt()
    flat = (spread == 0).to(spread.dtype)
    unit = own / (spread + flat)
    identity = torch.eye(channels, dtype=spread.dtype, device=x.device)
    correlation = unit @ unit.transpose(-1, -2) / times + flat * identity
    logarithm = log_of(shrunk(correlation, times)).flatten(-2)
    places, weight = (torch.from_numpy(table).to(x.device) for table in _upper(channels))
    upper = logarithm.index_select(-1, places) * weight
    return torch.cat([spread[..., 0].clamp(min=QUIET).log(), upper], -1)[..., None, :]


@cache
def _upper(channels: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places of the upper triangle in a flattened matrix, and what makes the norm of these entries the matrix's. Arrays,
    because a tensor that is made while torch traces a graph stands for no numbers, and must not be kept."""
    rows, columns = np.triu_indices(channels)
    weight = np.where(rows == columns, 1.0, math.sqrt(2.0))
    return rows * channels + columns, weight


def shrunk(correlation: Tensor, samples: int) -> Tensor:
    """Correlations (..., C, C) drawn towards the identity by the oracle approximating share (Chen et al. 2010)."""
    channels = int(correlation.shape[-1])
    square = correlation.square().mean((-2, -1), keepdim=True)
    below = (samples + 1) * (square - 1 / channels)
    share = ((square + 1) / below.clamp(min=1e-12)).clamp(max=1.0)
    identity = torch.eye(channels, dtype=correlation.dtype, device=correlation.device)
    return (1 - share) * correlation + share * identity


def logarithm(matrix: Tensor) -> Tensor:
    """Of symmetric positive matrices (..., C, C)."""
    values, vectors = torch.linalg.eigh(matrix)
    found: Tensor = (vectors * values.clamp(min=QUIET).log()[..., None, :]) @ vectors.mT
    return found


def logarithm_by_roots(matrix: Tensor) -> Tensor:
    """The same for correlations in products alone: log A = 64 log A^(1/64), and a series for what is near 1.

    Divided by the trace, C, eigenvalues lie in (0, 1], where the coupled iteration of Newton and Schulz converges to
    the square root: Y -> Y (3 − ZY) / 2, Z -> (3 − ZY) Z / 2 from Y = A, Z = 1. Scaled it takes half the steps.
    """
    channels = matrix.shape[-1]
    identity = torch.eye(channels, dtype=matrix.dtype, device=matrix.device)
    root = matrix.reshape(-1, channels, channels) / channels
    for number in range(ROOTS):
        first, *scales = _scales(SMALLEST ** (0.5 ** (number + 1)))
        inverse = 1.5 * first * identity - 0.5 * first**3 * root
        root = root @ inverse
        for scale in scales:  # few operations, because an exporter takes long over each
            factor = torch.baddbmm(identity, inverse, root, beta=1.5 * scale, alpha=-0.5 * scale**3)
            root, inverse = root @ factor, factor @ inverse
    rest = identity - root
    series = identity / (TERMS - 1) + rest / TERMS
    for term in range(TERMS - 2, 0, -1):
        series = torch.baddbmm(identity, rest, series, beta=1 / term)
    log = torch.baddbmm(identity, rest, series, beta=math.log(channels), alpha=-(2.0**ROOTS))
    return log.view(matrix.shape)


def _scales(lowest: float) -> list[float]:
    """What to scale each step of Newton and Schulz by for roots of eigenvalues in [lowest, 1] (Chen and Chow 2014): a
    step x -> αx (3 − α²x²) / 2 with α² = 3 / (1 + l + l²) takes l and 1 to the same number and none above 1, so that a
    small l grows by 2.6 and not by 1.5. One plain step ends it."""
    scales = []
    while 1 - lowest > 1e-8:  # the step after squares this
        scale = math.sqrt(3 / (1 + lowest + lowest**2))
        lowest *= scale * (3 - (scale * lowest) ** 2) / 2
        scales.append(scale)
    return [*scales, 1.0]


def in_pieces(x: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
    """work on windows (G, B, C, T) in float64, some at a time, so that it needs little memory; in the dtype of x."""
    groups, batch, channels, times = (int(n) for n in x.shape)
    rows = x.flatten(0, 1)
    parts = [work(rows[piece]).to(x.dtype) for piece in row_chunks(groups * batch, 4 * channels * max(channels, times))]
    found = torch.cat(parts)
    return found.view(groups, batch, *found.shape[1:])


def in_one_row(x: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
    """work on windows (G, N, C, T) of a graph as (G · N, C, T), in float32. With the number of windows on the first axis
    no stride depends on it, which spares the exporter half of its time."""
    return work(x.flatten(0, 1)).to(torch.float32).unflatten(0, (x.shape[0], -1))


REPRESENTATIONS: dict[str, type[Fitted]] = {"features": Features, "tangent": Tangent}
