"""Distances, length scales and RBF kernels of batches of rows. No function waits for the GPU.

Each row has an inverse scale β_i:

    K_ij = exp(−β_ij d²_ij),   β_ij = (β_i + β_j) / 2

If the length scale σ is a number or the median distance, all rows of a block have β = 1/(2σ²). If it is "perplexity",
β differs between rows. A block is a set of rows whose kernel is computed separately, such as a group.
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
    """Options of methods with a kernel of z."""

    length_scale: str | float = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "length_scale", check_length_scale(self.length_scale))

    @property
    def name_parts(self) -> list[str]:
        """Return the parts of a setting's name that distinguish settings of the method."""
        return [str(self.length_scale), *self._changed_parts("length_scale")]


PERPLEXITY = 30.0
_MIN_PERPLEXITY = 1.5  # (n−1)/3 is 1 for n = 4, and a perplexity of 1 needs an infinite β
_BRACKET = math.log(1e6)  # largest |log(β · mean squared distance)|
_GPU_BISECTIONS = 28  # bisections in log β, to a precision of 1e-7; t-SNE uses 1e-5
_BISECTIONS, _NEWTON_STEPS = 6, 5  # bisections, then Newton steps, with the same precision
_FAR_DISTANCE = 1e30  # for rows that are no neighbors; finite, because 0 · ∞ is NaN


class KernelMethod(Method):
    """Method that compares rows by an RBF kernel of z, with a length scale per context."""

    options: KernelOptions
    Options = KernelOptions

    def distances(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distances (P, B, B) of z (P, B, D), and the result of `pair_scales`."""
        d2, beta, _ = self.distances_and_scales(z, context)
        return d2, pair_scales(beta, self.options.length_scale)

    def distances_and_scales(self, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Return squared distances, inverse scales of rows (P, B), and whether the scales differ within a context."""
        d2, length_scale = pairwise_distances(z), self.options.length_scale
        return d2, inverse_scales(d2, context, length_scale), length_scale == "perplexity"


def check_length_scale(length_scale: str | float) -> str | float:
    """Return a valid name or a positive float; raise UserError for anything else."""
    if isinstance(length_scale, str):
        check_choice("length_scale", length_scale, (*LENGTH_SCALES, "a number"))
        return length_scale
    if not (math.isfinite(length_scale) and length_scale > 0):
        raise UserError(f"length_scale is {length_scale!r}; it must be a positive number")
    return float(length_scale)


def center(z: Tensor) -> Tensor:
    """Subtract the mean of each member from z (P, B, D), for more precise distances in float32."""
    return z - z.detach().mean(-2, keepdim=True)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return |x_i − y_j|² by one matrix product: (P, A, D), (P, B, D) -> (P, A, B)."""
    xx, yy = x.square().sum(-1), y.square().sum(-1)
    return torch.baddbmm(xx[..., :, None] + yy[..., None, :], x, y.mT, alpha=-2).clamp(min=0)


def pairwise_distances(z: Tensor) -> Tensor:
    """Return |z_i − z_j|² with an exact zero on the diagonal: (P, B, D) -> (P, B, B)."""
    z = center(z)
    if gpu.is_available(z):
        return pairs.pairwise_distances(z)
    return squared_distances(z, z).masked_fill(diagonal(z), 0.0)


def diagonal(z: Tensor) -> Tensor:
    """Return a mask (B, B) for z (P, B, ...), True where i = j."""
    return torch.eye(z.shape[1], dtype=torch.bool, device=z.device)


@torch.no_grad()
def inverse_scales(d2: Tensor, same: Tensor, length_scale: str | float) -> Tensor:
    """Return β (R·P, B) from squared distances (P, B, B) and R masks of blocks per member (R·P, B, B)."""
    if length_scale == "median":
        sigma = median_distances(d2, same)
        # If more than half of the distances are 0, the scale is arbitrary.
        return 0.5 / torch.where(sigma > 0, sigma, torch.ones_like(sigma)).square()
    if length_scale == "perplexity":
        if gpu.is_available(d2):
            limits = PERPLEXITY, _MIN_PERPLEXITY
            return pairs.perplexity_scales(d2, same, *limits, bracket=_BRACKET, steps=_GPU_BISECTIONS)
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
    """Return the median distance in each row's block, 0 in blocks of one row: (P, B, B), (R·P, B, B) -> (R·P, B)."""
    if gpu.is_available(d2) and d2.shape[-1] <= pairs.MAX_REGISTER_ROWS:
        return pairs.median_distances(d2, same)
    return _median_distances(d2, same)


def _median_distances(d2: Tensor, same: Tensor) -> Tensor:
    """Sort all pairs of rows by block and distance, and return the middle distance of each row's block."""
    rows = d2.shape[-1]
    if rows < 2:
        return d2.new_zeros(same.shape[:2])
    i, j = torch.triu_indices(rows, rows, 1, device=d2.device)
    block = same.to(torch.uint8).argmax(-1)  # (P, B): index of the block's first row
    # Short integers are sorted faster.
    pair_block = torch.where(same[:, i, j], block[:, i], rows).to(torch.int16 if rows < 2**15 else torch.int64)
    value, order = (tensor.repeat(len(same) // len(d2), 1) for tensor in d2[:, i, j].sort(-1))
    pair_block, block_order = pair_block.gather(-1, order).sort(dim=-1, stable=True)
    value = value.gather(-1, block_order)
    size = same.sum(-1)
    n_pairs = size * (size - 1) // 2
    start = torch.searchsorted(pair_block, block.to(pair_block.dtype))
    last = value.shape[-1] - 1
    low = value.gather(-1, (start + (n_pairs - 1).clamp(min=0) // 2).clamp(max=last)).sqrt()
    high = value.gather(-1, (start + n_pairs // 2).clamp(max=last)).sqrt()
    return torch.where(n_pairs > 0, (low + high) / 2, torch.zeros_like(low))


def perplexity_scales(d2: Tensor, same: Tensor) -> Tensor:
    """Return the β_i (P, B) at which the distribution p_ij ∝ exp(−β_i d²_ij) has the entropy log(perplexity).

    j runs over the neighbors of row i, the n − 1 other rows of its block. The perplexity is 30, but at most (n − 1)/3
    and at least 1.5. If there is one neighbor, any β has this entropy, and σ is the distance of the neighbor.
    """
    is_neighbor = (same & ~diagonal(d2)).to(d2.dtype)
    n_neighbors = is_neighbor.sum(-1)
    entropy = (n_neighbors / 3).clamp(min=_MIN_PERPLEXITY, max=PERPLEXITY).log()
    mean = (d2 * is_neighbor).sum(-1) / n_neighbors.clamp(min=1)
    mean = torch.where(mean > 0, mean, torch.ones_like(mean))
    # Subtracting the smallest distance does not change the entropy and keeps weights from underflowing.
    smallest = torch.where(is_neighbor > 0, d2, math.inf).amin(-1, keepdim=True)
    nearness = torch.where(is_neighbor > 0, (smallest - d2) / mean[..., None], -_FAR_DISTANCE)
    beta = _log_scale(nearness, entropy).exp() / mean
    return torch.where(n_neighbors > 1, beta, 0.5 / mean)


def _log_scale(nearness: Tensor, entropy: Tensor) -> Tensor:
    """Return log β (P, B) at which weights exp(β · nearness) (P, B, B) have the given entropy (P, B)."""
    if cpu.is_available(nearness):
        return cpu.log_scale(nearness, entropy, _BRACKET, _BISECTIONS, _NEWTON_STEPS)
    low, high = torch.full_like(entropy, -_BRACKET), torch.full_like(entropy, _BRACKET)
    log_beta = torch.zeros_like(entropy)
    for step in range(_BISECTIONS + _NEWTON_STEPS):
        scaled = log_beta.exp()[..., None] * nearness
        weight = scaled.exp()
        total = weight.sum(-1).clamp(min=torch.finfo(nearness.dtype).tiny)
        weight = weight.mul_(scaled)
        mean = weight.sum(-1) / total
        error = total.log() - mean - entropy  # decreases with β
        low, high = torch.where(error > 0, log_beta, low), torch.where(error > 0, high, log_beta)
        if step < _BISECTIONS:
            log_beta = (low + high) / 2
            continue
        slope = weight.mul_(scaled).sum(-1) / total - mean.square()  # −d entropy / d log β: the variance of log weights
        log_beta = log_beta + error / slope.clamp(min=torch.finfo(nearness.dtype).tiny)
        log_beta = torch.where((log_beta >= low) & (log_beta <= high), log_beta, (low + high) / 2)
    return log_beta
