"""Launchers of the kernels of censors on the B×B pairs of rows of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import tile
from .autograd import apply_one
from .loading import Argument, load_kernels

MAX_REGISTER_ROWS = 128  # rows of a batch whose pairs fit into the registers of a program
_TILE, _WIDTH = 16, 64  # rows and columns of a tile of distances


_kernels = partial(load_kernels, "pair_kernels")


def _warps(block: int) -> int:
    """Return the number of warps of a program for one row of pairs."""
    return min(max(block // 256, 1), 8)


def _mask(mask: Tensor, *shape: int) -> Argument:
    return Argument(mask, shape, torch.bool)


def find_groups(context: Tensor, nuisance: Tensor, min_rows: int) -> tuple[Tensor, ...]:
    """Compute censoring.groups.find_groups of labels (P, B); return its fields in order, sizes in float32."""
    members, rows = context.shape
    labels = Argument(context, context.shape, torch.int64), Argument(nuisance, context.shape, torch.int64)
    sizes = torch.empty(members, rows, dtype=torch.int32, device=context.device)
    counts = torch.empty(members, rows, dtype=torch.bool, device=context.device)
    # Separate tensors, because a kernel is compiled again for an address that is not a multiple of 16.
    masks = [torch.empty(members, rows, rows, dtype=torch.bool, device=context.device) for _ in range(2)]
    numbers = [torch.empty(members, rows, device=context.device) for _ in range(3)]
    grid, block = (members * rows,), tile(rows)
    _kernels().group_sizes[grid](*labels, sizes, rows, BLOCK=block, num_warps=_warps(block))
    written = (mask.view(torch.uint8) for mask in (counts, *masks))
    _kernels().group_masks[grid](
        *labels, sizes, *written, *numbers, rows, min_rows, BLOCK=block, num_warps=_warps(block)
    )
    return (counts, *masks, *numbers)


def _masks(mask: Tensor, d2: Tensor) -> Argument:
    """Return the argument of R masks per matrix of distances (P, B, B): (R·P, B, B)."""
    members, rows, _ = d2.shape
    return _mask(mask, len(mask) // members * members, rows, rows)


def score_matrices(d2: Tensor, beta: Tensor, mask: Tensor, *, paired: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the matrices of score estimators from distances (P, B, B), inverse scales (R·P, B) and masks (R·P, B, B).

    These are the normalized kernel K̃ = D^{-1/2} K D^{-1/2} and the pulls D^{-1/2} W, W = 2βK (R·P, B, B), the row sums
    of the pulls and the block sizes n (R·P, B). Masks r·P + p belong to distances p. paired: a pair has the mean of the
    inverse scales of its rows; otherwise all rows of a block have one scale.
    """
    (members, rows, _), masks = d2.shape, len(mask)
    normal, pull = d2.new_empty(masks, rows, rows), d2.new_empty(masks, rows, rows)
    sums, sizes = d2.new_empty(masks, rows), d2.new_empty(masks, rows)
    block = tile(rows)
    _kernels().score_matrices[(rows, members, masks // members)](
        Argument(d2, (members, rows, rows)), Argument(beta, (masks, rows)), _masks(mask, d2), normal, pull, sums, sizes,
        rows, PAIRED=paired, BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return normal, pull, sums, sizes


def score_differences(scores: Tensor, z: Tensor, same: Tensor, counts: Tensor) -> Tensor:
    """Return the gradient (P, B, D) of censoring.mige from scores (2, P, B, D) in groups and in contexts.

    Both scores are corrected by project_scores; their difference is divided by the number of rows. z: (P, B, D);
    same: (2, P, B, B) masks; counts: (P, B) mask of rows, at most MAX_REGISTER_ROWS.
    """
    members, rows, width = z.shape
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    across = min(32, tile(width))
    group, context = (_mask(mask, members, rows, rows) for mask in same)
    _kernels().score_differences[(members, -(-width // across))](
        Argument(scores, (2, members, rows, width)), Argument(z, z.shape), group, context, _mask(counts, members, rows),
        out, rows, width, TILE=tile(rows), ACROSS=across, num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


def median_distances(d2: Tensor, mask: Tensor) -> Tensor:
    """Compute kernel_matrices.median_distances: (P, B, B), (R·P, B, B) -> (R·P, B), B ≤ MAX_REGISTER_ROWS."""
    (members, rows, _), masks = d2.shape, len(mask)
    out = d2.new_empty(masks, rows)
    block = tile(rows)
    _kernels().medians[(members, masks // members)](
        Argument(d2, (members, rows, rows)), _masks(mask, d2), out, rows, BLOCK=block, num_warps=4
    )
    return out


def perplexity_scales(
    d2: Tensor, mask: Tensor, largest: float, smallest: float, *, bracket: float, steps: int
) -> Tensor:
    """Compute censoring.kernel_matrices.perplexity_scales: (P, B, B), (R·P, B, B) -> (R·P, B).

    largest, smallest: limits of the perplexity; log β is searched in ±bracket by a number of bisection steps
    """
    (members, rows, _), masks = d2.shape, len(mask)
    out = d2.new_empty(masks, rows)
    block = tile(rows)
    _kernels().perplexity[(rows, members, masks // members)](
        Argument(d2, (members, rows, rows)), _masks(mask, d2), out, rows, float(largest), smallest, bracket, steps,
        BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return out


def mean_discrepancy(
    d2: Tensor, beta: Tensor, valid: Tensor, context: Tensor, group: Tensor, context_rows: Tensor, group_rows: Tensor,
    context_groups: Tensor, *, paired: bool,
) -> Tensor:  # fmt: skip
    """Compute censoring.mmd.mean_discrepancy: squared distances (P, B, B), inverse scales (P, B) -> (P,).

    paired: a pair has the mean of the inverse scales of its rows; otherwise all rows of a context have one scale.
    """
    each, square = d2.shape[:2], d2.shape
    numbers = (Argument(number, each) for number in (context_rows, group_rows, context_groups))
    fields = (_mask(valid, *each), _mask(context, *square), _mask(group, *square), *numbers)
    return apply_one(_WeightedKernelSum, d2, beta, fields, None, paired)


def pairwise_discrepancy(
    d2: Tensor, beta: Tensor, context: Tensor, group: Tensor, selection: Tensor, group_rows: Tensor, *, paired: bool
) -> Tensor:
    """Compute censoring.mmd.pairwise_discrepancy: squared distances (P, B, B), inverse scales (P, B) -> (P,)."""
    masks = (_mask(mask, *d2.shape) for mask in (context, group, selection))
    fields = (*masks, Argument(group_rows, d2.shape[:2]))
    return apply_one(_WeightedKernelSum, d2, beta, fields, d2.new_empty(d2.shape[:2]), paired)


class _WeightedKernelSum(torch.autograd.Function):
    """Weighted sum of the entries of a kernel matrix; the forward pass also computes the derivatives."""

    @staticmethod
    def forward(
        ctx: Any, d2: Tensor, beta: Tensor, fields: tuple[Argument, ...], totals: Tensor | None, paired: bool
    ) -> Tensor:
        rows = d2.shape[-1]
        has_gradient = ctx.needs_input_grad[0]
        values = d2.new_empty(d2.shape[:2])
        slopes = torch.empty_like(d2, memory_format=torch.contiguous_format) if has_gradient else values
        launch, extra = (_kernels().mmd_rows, ()) if totals is None else (_kernels().pairwise_rows, (totals,))
        block = tile(rows)
        launch[(values.numel(),)](
            Argument(d2, (len(d2), rows, rows)), Argument(beta, (len(d2), rows)), *fields, values, *extra, slopes, rows,
            PAIRED=paired, SLOPES=has_gradient, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        number = None if totals is None else totals.sum(-1).round().clamp(min=1)
        ctx.save_for_backward(slopes, number)
        value = values.sum(-1)
        return value if number is None else value / number

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slopes, number = ctx.saved_tensors
        grad = grad if number is None else grad / number
        return grad[:, None, None] * slopes, None, None, None, None


def pairwise_distances(z: Tensor) -> Tensor:
    """Return squared distances |z_i − z_j|² of points near the origin, (P, B, D) -> (P, B, B), 0 on the diagonal.

    Lengths and inner products come from one product, so they are the distances of the rounded points.
    """
    return apply_one(_Distances, z)


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        product = torch.bmm(z, z.mT)
        d2 = torch.empty_like(product)
        _kernels().distances[_tiles(product)](
            Argument(product, product.shape), d2, d2.shape[-1], TILE=_TILE, BLOCK=_WIDTH, num_warps=4
        )
        ctx.save_for_backward(z, d2)
        return d2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        z, d2 = ctx.saved_tensors
        pull, sums = torch.empty_like(d2), d2.new_empty(d2.shape[:2])
        _kernels().distance_pulls[_tiles(d2)](
            Argument(grad, d2.shape), d2, pull, sums, d2.shape[-1], TILE=_TILE, BLOCK=_WIDTH, num_warps=4
        )
        return torch.baddbmm(sums[..., None] * z, pull, z, alpha=-1)


def _tiles(matrices: Tensor) -> tuple[int, int]:
    """Return the grid over (P, B, B) of programs for _TILE rows each."""
    return -(-matrices.shape[1] // _TILE), len(matrices)
