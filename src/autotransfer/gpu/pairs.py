"""Launchers of the censors' kernels on the B×B pairs of rows of a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import tile
from .autograd import apply_one
from .loading import Argument, load_kernels

MAX_REGISTER_ROWS = 128  # largest number of rows whose pairs fit into the registers of a program
_TILE, _WIDTH = 16, 64  # rows and columns of a tile of distances
_kernels = partial(load_kernels, "pair_kernels")


def _warps(block: int) -> int:
    """Return the number of warps of a program for one row of pairs."""
    return min(max(block // 256, 1), 8)


def _mask(mask: Tensor, *shape: int) -> Argument:
    return Argument(mask, shape, torch.bool)


def find_groups(context: Tensor, nuisance: Tensor, min_rows: int) -> tuple[Tensor, ...]:
    """Compute the fields of censoring.groups.Groups from labels (P, B), with sizes in float32."""
    members, rows = context.shape
    labels = Argument(context, context.shape, torch.int64), Argument(nuisance, context.shape, torch.int64)
    sizes = torch.empty(members, rows, dtype=torch.int32, device=context.device)
    valid = torch.empty(members, rows, dtype=torch.bool, device=context.device)
    # The masks are separate tensors, because a kernel is compiled again for an address that is not a multiple of 16.
    masks = [torch.empty(members, rows, rows, dtype=torch.bool, device=context.device) for _ in range(2)]
    row_counts = [torch.empty(members, rows, device=context.device) for _ in range(3)]
    grid, block = (members * rows,), tile(rows)
    _kernels().group_sizes[grid](*labels, sizes, rows, BLOCK=block, num_warps=_warps(block))
    mask_bytes = (mask.view(torch.uint8) for mask in (valid, *masks))
    _kernels().group_masks[grid](
        *labels, sizes, *mask_bytes, *row_counts, rows, min_rows, BLOCK=block, num_warps=_warps(block)
    )
    return (valid, *masks, *row_counts)


def _masks(mask: Tensor, d2: Tensor) -> Argument:
    """Return the argument of R masks per matrix of distances (P, B, B): (R·P, B, B)."""
    members, rows, _ = d2.shape
    return _mask(mask, len(mask) // members * members, rows, rows)


def score_matrices(d2: Tensor, beta: Tensor, mask: Tensor, *, by_row: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the matrices of score estimators from distances (P, B, B), inverse scales (R·P, B) and masks (R·P, B, B).

    Results are the normalized kernel K̃ = D^{-1/2} K D^{-1/2}, weights D^{-1/2} W with W = 2βK (R·P, B, B), row sums of
    weights, and block sizes n (R·P, B). Masks r·P + p belong to distances p. by_row: whether the inverse scale of a
    pair is the mean over its rows; otherwise all rows of a block have one scale.
    """
    (members, rows, _), n_masks = d2.shape, len(mask)
    kernel, weights = d2.new_empty(n_masks, rows, rows), d2.new_empty(n_masks, rows, rows)
    sums, sizes = d2.new_empty(n_masks, rows), d2.new_empty(n_masks, rows)
    block = tile(rows)
    _kernels().score_matrices[(rows, members, n_masks // members)](
        Argument(d2, (members, rows, rows)), Argument(beta, (n_masks, rows)), _masks(mask, d2), kernel, weights, sums,
        sizes, rows, BY_ROW=by_row, BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return kernel, weights, sums, sizes


def score_differences(scores: Tensor, z: Tensor, same: Tensor, valid: Tensor) -> Tensor:
    """Return the gradient (P, B, D) of censoring.mige from scores (2, P, B, D) in groups and in contexts.

    Scores are corrected by project_scores, and their difference is divided by the number of valid rows. z: (P, B, D);
    same: (2, P, B, B) masks; valid: (P, B) bool, B ≤ MAX_REGISTER_ROWS.
    """
    members, rows, width = z.shape
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    across = min(32, tile(width))
    group, context = (_mask(mask, members, rows, rows) for mask in same)
    _kernels().score_differences[(members, -(-width // across))](
        Argument(scores, (2, members, rows, width)), Argument(z, z.shape), group, context, _mask(valid, members, rows),
        out, rows, width, TILE=tile(rows), ACROSS=across, num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


def median_distances(d2: Tensor, mask: Tensor) -> Tensor:
    """Compute kernel_matrices.median_distances: (P, B, B), (R·P, B, B) -> (R·P, B), B ≤ MAX_REGISTER_ROWS."""
    (members, rows, _), n_masks = d2.shape, len(mask)
    out = d2.new_empty(n_masks, rows)
    block = tile(rows)
    _kernels().medians[(members, n_masks // members)](
        Argument(d2, (members, rows, rows)), _masks(mask, d2), out, rows, BLOCK=block, num_warps=4
    )
    return out


def perplexity_scales(
    d2: Tensor, mask: Tensor, largest: float, smallest: float, *, bracket: float, steps: int
) -> Tensor:
    """Compute censoring.kernel_matrices.perplexity_scales: (P, B, B), (R·P, B, B) -> (R·P, B).

    largest, smallest: limits of the perplexity; log β is searched in ±bracket by a number of bisection steps
    """
    (members, rows, _), n_masks = d2.shape, len(mask)
    out = d2.new_empty(n_masks, rows)
    block = tile(rows)
    _kernels().perplexity[(rows, members, n_masks // members)](
        Argument(d2, (members, rows, rows)), _masks(mask, d2), out, rows, float(largest), smallest, bracket, steps,
        BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return out


def mean_discrepancy(
    d2: Tensor, beta: Tensor, valid: Tensor, context: Tensor, group: Tensor, context_rows: Tensor, group_rows: Tensor,
    context_groups: Tensor, *, by_row: bool,
) -> Tensor:  # fmt: skip
    """Compute censoring.mmd.mean_discrepancy: squared distances (P, B, B), inverse scales (P, B) -> (P,).

    by_row: whether the inverse scale of a pair is the mean over its rows; otherwise rows of a context have one scale.
    """
    per_row, per_pair = d2.shape[:2], d2.shape
    counts = (Argument(count, per_row) for count in (context_rows, group_rows, context_groups))
    fields = (_mask(valid, *per_row), _mask(context, *per_pair), _mask(group, *per_pair), *counts)
    return apply_one(_WeightedKernelSum, d2, beta, fields, None, by_row)


def pairwise_discrepancy(
    d2: Tensor, beta: Tensor, context: Tensor, group: Tensor, selection: Tensor, group_rows: Tensor, *, by_row: bool
) -> Tensor:
    """Compute censoring.mmd.pairwise_discrepancy: squared distances (P, B, B), inverse scales (P, B) -> (P,)."""
    masks = (_mask(mask, *d2.shape) for mask in (context, group, selection))
    fields = (*masks, Argument(group_rows, d2.shape[:2]))
    return apply_one(_WeightedKernelSum, d2, beta, fields, d2.new_empty(d2.shape[:2]), by_row)


class _WeightedKernelSum(torch.autograd.Function):
    """Weighted sum of the entries of a kernel matrix, with derivatives computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, d2: Tensor, beta: Tensor, fields: tuple[Argument, ...], pair_shares: Tensor | None, by_row: bool
    ) -> Tensor:
        rows = d2.shape[-1]
        has_gradient = ctx.needs_input_grad[0]
        values = d2.new_empty(d2.shape[:2])
        slopes = torch.empty_like(d2, memory_format=torch.contiguous_format) if has_gradient else values
        name, extra = ("mmd_rows", ()) if pair_shares is None else ("pairwise_rows", (pair_shares,))
        block = tile(rows)
        getattr(_kernels(), name)[(values.numel(),)](
            Argument(d2, (len(d2), rows, rows)), Argument(beta, (len(d2), rows)), *fields, values, *extra, slopes, rows,
            BY_ROW=by_row, SLOPES=has_gradient, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        n_pairs = None if pair_shares is None else pair_shares.sum(-1).round().clamp(min=1)
        ctx.save_for_backward(slopes, n_pairs)
        value = values.sum(-1)
        return value if n_pairs is None else value / n_pairs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slopes, n_pairs = ctx.saved_tensors
        grad = grad if n_pairs is None else grad / n_pairs
        return grad[:, None, None] * slopes, None, None, None, None


def pairwise_distances(z: Tensor) -> Tensor:
    """Return squared distances |z_i − z_j|² of points near the origin, (P, B, D) -> (P, B, B), 0 on the diagonal.

    Lengths and inner products are results of one matrix product, so distances are exact for rounded points.
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
        weights, sums = torch.empty_like(d2), d2.new_empty(d2.shape[:2])
        _kernels().distance_gradients[_tiles(d2)](
            Argument(grad, d2.shape), d2, weights, sums, d2.shape[-1], TILE=_TILE, BLOCK=_WIDTH, num_warps=4
        )
        return torch.baddbmm(sums[..., None] * z, weights, z, alpha=-1)


def _tiles(matrices: Tensor) -> tuple[int, int]:
    """Return the grid of programs that compute _TILE rows of matrices (P, B, B)."""
    return -(-matrices.shape[1] // _TILE), len(matrices)
