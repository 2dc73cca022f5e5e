"""Distances, length scales and the RBF kernel, masked and batched, without waiting for the device.

A length scale is stored as its inverse, one number β_i per row:

    K_ij = exp(−β_ij d²_ij),   β_ij = (β_i + β_j) / 2

For a number σ or the median all rows of a block have β = 1/(2σ²). For perplexity every row has its own β.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import cpu, gpu
from ..errors import UserError, check_choice
from ..gpu import pairs
from .method import Method, MethodOptions

LENGTH_SCALES = ("median", "perplexity")


@dataclass(frozen=True, kw_only=True)
class KernelOptions(MethodOptions):
    """Options of every method with a kernel of z."""

    length_scale: str | float = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "length_scale", check_length_scale(self.length_scale))

    @property
    def name_parts(self) -> list[str]:
        """Return parts of a setting's name that distinguish settings of the method."""
        return [str(self.length_scale), *self._differing("length_scale")]


PERPLEXITY = 30.0
_SMALLEST_PERPLEXITY = 1.5  # (n−1)/3 falls to 1 at n = 4, a value that no finite β attains
_BRACKET = math.log(1e6)  # β is within this factor of 1 / (mean squared distance)
_STEPS = 28  # bisections in log β, to a precision of 1e-7; t-SNE uses 1e-5
_HALVINGS, _NEWTONS = 6, 5  # bisections and Newton steps with the same precision
_FAR = 1e30  # finite distance beyond all neighbors


class KernelMethod(Method):
    """Method that compares rows by an RBF kernel of z with a length scale per context."""

    options: KernelOptions
    Options = KernelOptions

    def distances(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distances (P, B, B) of z (P, B, D), and inverse scales of pairs as `pair_scales`."""
        d2, beta, _ = self.distances_and_scales(z, context)
        return d2, pair_scales(beta, self.options.length_scale)

    def distances_and_scales(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return squared distances, inverse scales of rows (P, B), and whether these differ within a context."""
        d2, scale = own_distances(z), self.options.length_scale
        return d2, inverse_scales(d2, context, scale), scale == "perplexity"


def check_length_scale(length_scale: str | float) -> str | float:
    """Return a valid name or a positive float; raise UserError for anything else."""
    if isinstance(length_scale, str):
        check_choice("length_scale", length_scale, (*LENGTH_SCALES, "a number"))
        return length_scale
    if not (math.isfinite(length_scale) and length_scale > 0):
        raise UserError(f"length_scale is {length_scale!r}; it must be a positive number")
    return float(length_scale)


def centered(z: Tensor) -> Tensor:
    """Return z (P, B, D) less the mean of each member, for more precise distances in float32."""
    return z - z.detach().mean(-2, keepdim=True)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return |x_i − y_j|² by one matrix product: (P, A, D), (P, B, D) -> (P, A, B)."""
    xx, yy = x.square().sum(-1), y.square().sum(-1)
    return torch.baddbmm(xx[..., :, None] + yy[..., None, :], x, y.mT, alpha=-2).clamp(min=0)


def own_distances(z: Tensor) -> Tensor:
    """Return |z_i − z_j|² with an exact zero on the diagonal: (P, B, D) -> (P, B, B)."""
    z = centered(z)
    if gpu.is_available(z):
        return pairs.own_distances(z)
    return squared_distances(z, z).masked_fill(diagonal(z), 0.0)


def diagonal(z: Tensor) -> Tensor:
    """Return a mask (B, B) for z (P, B, ...), True where i = j."""
    return torch.eye(z.shape[1], dtype=torch.bool, device=z.device)


@torch.no_grad()
def inverse_scales(d2: Tensor, same: Tensor, length_scale: str | float) -> Tensor:
    """Return β (R·P, B) from squared distances (P, B, B) and masks of blocks with one scale (R·P, B, B)."""
    if length_scale == "median":
        sigma = median_distances(d2, same)
        # If more than half of the pairs coincide, the scale is arbitrary.
        return 0.5 / torch.where(sigma > 0, sigma, torch.ones_like(sigma)).square()
    if length_scale == "perplexity":
        if gpu.is_available(d2):
            limits = {"least": _SMALLEST_PERPLEXITY, "bracket": _BRACKET}
            return pairs.perplexity_scales(d2, same, PERPLEXITY, **limits, steps=_STEPS)
        return perplexity_scales(d2.repeat(len(same) // len(d2), 1, 1), same)
    return d2.new_full(same.shape[:2], 0.5 / float(length_scale) ** 2)


def pair_scales(beta: Tensor, length_scale: str | float) -> Tensor:
    """Return β_ij = (β_i + β_j)/2: (P, B) -> (P, B, B), or (P, B, 1) if β is equal within blocks."""
    if length_scale != "perplexity":
        return beta[..., None]
    return (beta[..., :, None] + beta[..., None, :]) / 2


def rbf(d2: Tensor, beta: Tensor) -> Tensor:
    """Return exp(−βd²) = exp(−d²/2σ²), elementwise."""
    return torch.exp(-beta * d2)


def median_distances(d2: Tensor, same: Tensor) -> Tensor:
    """Return for every row the median distance of pairs in its block, 0 without pairs: (P, B, B), (R·P, B, B)."""
    if gpu.is_available(d2) and d2.shape[-1] <= pairs.MAX_REGISTER_ROWS:
        return pairs.median_distances(d2, same)
    return _median_distances(d2, same)


def _median_distances(d2: Tensor, same: Tensor) -> Tensor:
    """Return medians of blocks at their places among pairs sorted by block and distance."""
    rows = d2.shape[-1]
    if rows < 2:
        return d2.new_zeros(same.shape[:2])
    i, j = torch.triu_indices(rows, rows, 1, device=d2.device)
    block = same.to(torch.uint8).argmax(-1)  # (P, B): index of the block's first row
    # Short integers, because they are sorted faster
    name = torch.where(same[:, i, j], block[:, i], rows).to(torch.int16 if rows < 2**15 else torch.int64)
    value, order = (tensor.repeat(len(same) // len(d2), 1) for tensor in d2[:, i, j].sort(-1))
    name, by_block = name.gather(-1, order).sort(dim=-1, stable=True)
    value = value.gather(-1, by_block)
    size = same.sum(-1)
    count = size * (size - 1) // 2
    start = torch.searchsorted(name, block.to(name.dtype))
    last = value.shape[-1] - 1
    low = value.gather(-1, (start + (count - 1).clamp(min=0) // 2).clamp(max=last)).sqrt()
    high = value.gather(-1, (start + count // 2).clamp(max=last)).sqrt()
    return torch.where(count > 0, (low + high) / 2, torch.zeros_like(low))


def perplexity_scales(d2: Tensor, same: Tensor) -> Tensor:
    """Return for every row the β_i (P, B) at which the entropy of its neighbors is log(perplexity).

    Neighbors are the other rows of the block, p_ij ∝ exp(−β_i d²_ij). The perplexity is 30, but at most (n−1)/3 and at
    least 1.5. With one neighbor any β is valid, and σ is its distance.
    """
    others = (same & ~diagonal(d2)).to(d2.dtype)
    neighbors = others.sum(-1)
    wanted = (neighbors / 3).clamp(min=_SMALLEST_PERPLEXITY, max=PERPLEXITY).log()
    mean = (d2 * others).sum(-1) / neighbors.clamp(min=1)
    mean = torch.where(mean > 0, mean, torch.ones_like(mean))
    # A shift of a row's distances does not change the entropy and keeps weights from underflowing.
    nearest = torch.where(others > 0, d2, math.inf).amin(-1, keepdim=True)
    nearness = torch.where(others > 0, (nearest - d2) / mean[..., None], -_FAR)
    beta = _log_scale(nearness, wanted).exp() / mean
    return torch.where(neighbors > 1, beta, 0.5 / mean)


def _log_scale(nearness: Tensor, wanted: Tensor) -> Tensor:
    """Return log β (P, B) at which weights exp(β · nearness) (P, B, B) have the entropy `wanted` (P, B)."""
    if cpu.is_available(nearness):
        return cpu.log_scale(nearness, wanted, _BRACKET, _HALVINGS, _NEWTONS)
    low, high = torch.full_like(wanted, -_BRACKET), torch.full_like(wanted, _BRACKET)
    place = torch.zeros_like(wanted)
    for step in range(_HALVINGS + _NEWTONS):
        scaled = place.exp()[..., None] * nearness
        weight = scaled.exp()
        total = weight.sum(-1).clamp(min=torch.finfo(nearness.dtype).tiny)
        weight = weight.mul_(scaled)
        mean = weight.sum(-1) / total
        away = total.log() - mean - wanted  # error of the entropy, which decreases with β
        low, high = torch.where(away > 0, place, low), torch.where(away > 0, high, place)
        if step < _HALVINGS:
            place = (low + high) / 2
            continue
        slope = weight.mul_(scaled).sum(-1) / total - mean.square()  # −d entropy / d log β: the variance of log weights
        place = place + away / slope.clamp(min=torch.finfo(nearness.dtype).tiny)
        place = torch.where((place >= low) & (place <= high), place, (low + high) / 2)
    return place
