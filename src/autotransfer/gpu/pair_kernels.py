"""Triton kernels on the B×B pairs of rows of a batch, launched by `pairs`. The import needs Triton.

Masks are bytes. If several masks share one matrix of distances, axis 1 of the grid is the member and axis 2 the mask of
the member, so that kernels are not compiled again if these numbers change.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def group_sizes(context, nuisance, sizes, rows, BLOCK: tl.constexpr):
    """Count the rows that share both labels of a row, 0 for padding; one program per row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    row_context = tl.load(context + row)
    same = inside & (tl.load(context + first + lane, mask=inside, other=-1) == row_context)
    same = same & (tl.load(nuisance + first + lane, mask=inside, other=-1) == tl.load(nuisance + row))
    size = tl.sum(tl.where(same, 1, 0), 0)
    tl.store(sizes + row, tl.where(row_context >= 0, size, 0))


@triton.jit
def group_masks(
    context, nuisance, sizes, valid, context_mask, group_mask, context_rows, group_rows, context_groups, rows,
    min_rows, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the fields of censoring.groups.Groups for a row; one program per row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    row_context = tl.load(context + row)
    size = tl.load(sizes + row)
    row_sizes = tl.load(sizes + first + lane, mask=inside, other=0)
    shared = inside & (tl.load(context + first + lane, mask=inside, other=-1) == row_context) & (row_context >= 0)
    is_large = shared & (row_sizes >= min_rows) & (row_sizes > 0)
    # The n rows of a group contribute 1/n each, so the sum is the number of groups.
    share = tl.where(is_large, 1.0 / tl.maximum(row_sizes, 1).to(tl.float32), 0.0)
    n_groups = tl.floor(tl.sum(share, 0) + 0.5)
    is_valid = (row_context >= 0) & (size >= min_rows) & (n_groups >= 2.0)
    both_valid = is_large & is_valid
    same_group = both_valid & (tl.load(nuisance + first + lane, mask=inside, other=-1) == tl.load(nuisance + row))
    tl.store(context_mask + row * rows + lane, tl.where(both_valid, 1, 0).to(tl.uint8), mask=inside)
    tl.store(group_mask + row * rows + lane, tl.where(same_group, 1, 0).to(tl.uint8), mask=inside)
    tl.store(valid + row, tl.where(is_valid, 1, 0).to(tl.uint8))
    tl.store(context_rows + row, tl.maximum(tl.sum(tl.where(both_valid, 1, 0), 0), 1).to(tl.float32))
    tl.store(group_rows + row, tl.where(is_valid, size, 1).to(tl.float32))
    tl.store(context_groups + row, tl.where(is_valid, n_groups, 1.0))


@triton.jit
def score_matrices(d2, beta, mask, kernel, weights, sums, sizes, rows, BY_ROW: tl.constexpr, BLOCK: tl.constexpr):
    """Compute one row of the matrices of score estimators (see pairs.score_matrices)."""
    i = tl.program_id(0)
    member = tl.program_id(1).to(tl.int64)
    first = (tl.program_id(2) * tl.num_programs(1) + member) * rows  # first row of the mask
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    index = (first + i) * rows + lane
    same = tl.load(mask + index, mask=inside, other=0) != 0
    n = tl.maximum(tl.sum(tl.where(same, 1, 0), 0), 1).to(tl.float32)
    inv_root = 1.0 / tl.sqrt(n)
    scale = tl.load(beta + first + i)
    if BY_ROW:
        scale = (scale + tl.load(beta + first + lane, mask=inside, other=0.0)) * 0.5
    distance = tl.load(d2 + (member * rows + i) * rows + lane, mask=inside, other=0.0)
    gram = tl.exp(-scale * distance)
    weight = tl.where(same, 2.0 * scale * gram * inv_root, 0.0)
    tl.store(kernel + index, tl.where(same, gram * (inv_root * inv_root), 0.0), mask=inside)  # a block has one n
    tl.store(weights + index, weight, mask=inside)
    tl.store(sums + first + i, tl.sum(weight, 0))
    tl.store(sizes + first + i, n)


@triton.jit
def _sum_masked(mask, x):
    """Sum the masked rows of x; x is split into two parts, because tensor cores round factors to 11 bits."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return tl.dot(mask, high, tl.dot(mask, x - high, input_precision="tf32"), input_precision="tf32")


@triton.jit
def _project_scores(score, z, block, context):
    """Compute censoring.mige.project_scores."""
    size = tl.sum(block, 1)[:, None]
    n = tl.maximum(size, 1.0)
    z = tl.where(size > 0.0, z - _sum_masked(block, z) / n, 0.0)
    score = tl.where(size > 0.0, score - _sum_masked(block, score) / n, 0.0)
    spread = _sum_masked(context, z * z)
    excess = _sum_masked(context, score * z) + tl.sum(context, 1)[:, None]
    return score - z * excess / tl.where(spread > 0.0, spread, 1.0)


@triton.jit
def score_differences(scores, z, group, context, valid, out, rows, width, TILE: tl.constexpr, ACROSS: tl.constexpr):
    """Compute (score in groups − score in contexts) / number of valid rows for ACROSS columns of a member."""
    member = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    k = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)[None, :]
    inside = (i < rows) & (j < rows)
    pair_index = (member * rows + i) * rows + j
    in_group = tl.load(group + pair_index, mask=inside, other=0).to(tl.float32)
    in_context = tl.load(context + pair_index, mask=inside, other=0).to(tl.float32)
    exists = (i < rows) & (k < width)
    value_index = (member * rows + i) * width + k
    sample = tl.load(z + value_index, mask=exists, other=0.0)
    group_score = tl.load(scores + value_index, mask=exists, other=0.0)
    offset = tl.num_programs(0).to(tl.int64) * rows * width
    context_score = tl.load(scores + offset + value_index, mask=exists, other=0.0)
    group_score = _project_scores(group_score, sample, in_group, in_context)
    context_score = _project_scores(context_score, sample, in_context, in_context)
    row = tl.arange(0, TILE)
    n_valid = tl.sum(tl.load(valid + member * rows + row, mask=row < rows, other=0).to(tl.float32), 0)
    tl.store(out + value_index, (group_score - context_score) / tl.maximum(n_valid, 1.0), mask=exists)


@triton.jit
def medians(d2, mask, out, rows, BLOCK: tl.constexpr):
    """Compute the median distance of every block of a mask with all pairs in registers; one program per mask.

    Nonnegative floats are ordered like their bit patterns. A binary search over the bits, from the highest on, finds
    the lower of the two middle values of each block.
    """
    member = tl.program_id(0).to(tl.int64)
    first = (tl.program_id(1) * tl.num_programs(0) + member) * rows
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (i < rows) & (j < rows)
    same = tl.load(mask + (first + i) * rows + j, mask=inside, other=0) != 0
    value = tl.load(d2 + (member * rows + i) * rows + j, mask=inside, other=0.0)
    # The sign of −0 is removed. The largest pattern, a NaN, marks pairs outside all blocks.
    pair = same & (i < j)
    pattern = tl.minimum(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7FFFFFFE)
    pattern = tl.where(pair, pattern, 0x7FFFFFFF)
    # Sums are over axis 0, because one thread holds most of a column. Column j belongs to the block of row j.
    size = tl.sum(tl.where(same, 1, 0), 0)
    n_pairs = size * (size - 1) // 2
    rank = (tl.maximum(n_pairs - 1, 0) // 2 + 1).to(tl.float32)
    # Bits that are equal in all pairs are not searched.
    smallest = tl.min(tl.min(pattern, 0), 0)
    differing_bits = smallest ^ tl.max(tl.max(tl.where(pair, pattern, 0), 0), 0)
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    bit = 1 << 30
    while bit > differing_bits:
        low += bit & smallest
        bit = bit // 2
    # A product with the mask adds up the counts of a block's columns. Counts up to 128 are exact in float16. Counts are
    # repeated in 16 rows for tensor cores.
    blocks = same.to(tl.float16)
    ones = tl.full((16, BLOCK), 1.0, tl.float16)
    while bit > 0:
        candidate = low + bit
        n_below = tl.sum(tl.where(pattern < candidate[None, :], 1.0, 0.0), 0).to(tl.float16)
        total = tl.max(tl.dot(ones * n_below[None, :], blocks), 0)
        low = tl.where(total < rank, candidate, low)
        bit = bit // 2
    n_up_to_low = tl.sum(tl.where(pattern <= low[None, :], 1, 0), 0)
    n_up_to_low = tl.sum(tl.where(same, n_up_to_low[:, None], 0), 0)
    next_value = tl.min(tl.where(pattern > low[None, :], pattern, 0x7FFFFFFF), 0)
    next_value = tl.min(tl.where(same, next_value[:, None], 0x7FFFFFFF), 0)
    high = tl.where(n_up_to_low > n_pairs // 2, low, next_value)
    median = (tl.sqrt(low.to(tl.float32, bitcast=True)) + tl.sqrt(high.to(tl.float32, bitcast=True))) * 0.5
    row = tl.arange(0, BLOCK)
    tl.store(out + first + row, tl.where(n_pairs > 0, median, 0.0), mask=row < rows)


@triton.jit
def perplexity(d2, mask, out, rows, largest, smallest, bracket, steps, BLOCK: tl.constexpr):
    """Search the log β at which a row of a mask has its perplexity, by bisection; one program per row.

    The smallest distance is subtracted from distances, which are then divided by the mean distance.
    """
    i = tl.program_id(0)
    member = tl.program_id(1).to(tl.int64)
    first = (tl.program_id(2) * tl.num_programs(1) + member) * rows
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    is_neighbor = (tl.load(mask + (first + i) * rows + lane, mask=inside, other=0) != 0) & (lane != i)
    distance = tl.load(d2 + (member * rows + i) * rows + lane, mask=inside, other=0.0)
    n_neighbors = tl.sum(tl.where(is_neighbor, 1.0, 0.0), 0)
    mean = tl.sum(tl.where(is_neighbor, distance, 0.0), 0) / tl.maximum(n_neighbors, 1.0)
    mean = tl.where(mean > 0.0, mean, 1.0)
    smallest_distance = tl.min(tl.where(is_neighbor, distance, float("inf")), 0)
    nearness = tl.where(is_neighbor, (smallest_distance - distance) / mean, -1e30)
    target_entropy = tl.log(tl.minimum(tl.maximum(n_neighbors / 3.0, smallest), largest))
    low, high = -bracket, bracket
    for _ in range(steps):
        middle = (low + high) / 2
        scaled = tl.exp(middle) * nearness
        weight = tl.exp(scaled)
        total = tl.maximum(tl.sum(weight, 0), 1e-37)
        entropy = tl.log(total) - tl.sum(weight * scaled, 0) / total
        low = tl.where(entropy > target_entropy, middle, low)
        high = tl.where(entropy > target_entropy, high, middle)
    beta = tl.exp((low + high) / 2) / mean
    tl.store(out + first + i, tl.where(n_neighbors > 1.0, beta, 0.5 / mean))


@triton.jit
def _rbf_row(d2, beta, row, first, lane, inside, rows, BY_ROW: tl.constexpr):
    """Return exp(−β d²) (BLOCK,) between a row and all rows of a batch, 0 for the row itself; and β (BLOCK,) or ()."""
    scale = tl.load(beta + row)
    if BY_ROW:
        scale = (scale + tl.load(beta + first + lane, mask=inside, other=0.0)) * 0.5
    distance = tl.load(d2 + row * rows + lane, mask=inside, other=0.0)
    return tl.where(inside & (first + lane != row), tl.exp(-scale * distance), 0.0), scale


@triton.jit
def mmd_rows(
    d2, beta, valid, context, group, context_rows, group_rows, context_groups, values, slopes, rows,
    BY_ROW: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a row's terms of MMD, and derivatives with respect to distances; one program per row.

    MMD is a weighted sum of K_ij. The weight is u_i for rows i and j of one context, and u_i + v_i for one group.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    gram, scale = _rbf_row(d2, beta, row, first, lane, inside, rows, BY_ROW)
    # All groups have equal weight; the weight of a context is its number of groups.
    lane_valid = tl.load(valid + first + lane, mask=inside, other=0) != 0
    in_group = tl.load(group_rows + first + lane, mask=inside, other=1.0)
    in_context = tl.load(context_rows + first + lane, mask=inside, other=1.0)
    n_groups = tl.load(context_groups + first + lane, mask=inside, other=1.0)
    group_total = tl.maximum(tl.sum(tl.where(lane_valid, 1.0 / in_group, 0.0), 0), 1.0)
    context_total = tl.maximum(tl.sum(tl.where(lane_valid, n_groups / in_context, 0.0), 0), 1.0)
    is_valid = tl.load(valid + row).to(tl.float32)
    in_group, in_context = tl.load(group_rows + row), tl.load(context_rows + row)
    per_group = is_valid / in_group / group_total
    per_context = is_valid * tl.load(context_groups + row) / in_context / context_total
    u = (per_context - 2.0 * per_group) / tl.maximum(in_context - 1.0, 1.0)
    v = per_group / tl.maximum(in_group - 1.0, 1.0)
    index = row * rows + lane
    weight = tl.where(tl.load(context + index, mask=inside, other=0) != 0, u, 0.0)
    weight += tl.where(tl.load(group + index, mask=inside, other=0) != 0, v, 0.0)
    tl.store(values + row, tl.sum(weight * gram, 0))
    if SLOPES:
        tl.store(slopes + index, -scale * weight * gram, mask=inside)


@triton.jit
def pairwise_rows(
    d2, beta, context, group, selection, group_rows, values, pair_shares, slopes, rows,
    BY_ROW: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a row's terms of the sum over selected pairs of groups, and derivatives with respect to distances.

    The sum of `pair_shares` over rows is the number of selected pairs, by which values and slopes must be divided.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    gram, scale = _rbf_row(d2, beta, row, first, lane, inside, rows, BY_ROW)
    index = row * rows + lane
    same_group = tl.load(group + index, mask=inside, other=0) != 0
    other_group = (tl.load(context + index, mask=inside, other=0) != 0) & (same_group == 0)
    selected = other_group & (tl.load(selection + index, mask=inside, other=0) != 0)
    # The masks are symmetric, but a pair may be selected in the reverse order only.
    transposed = (first + lane) * rows + (row - first)
    selected_reversed = other_group & (tl.load(selection + transposed, mask=inside, other=0) != 0)
    size = tl.load(group_rows + row)
    share = 1.0 / (size * tl.load(group_rows + first + lane, mask=inside, other=1.0))
    cross = tl.where(selected, share, 0.0)
    total = tl.sum(cross, 0)
    within = (total + tl.sum(tl.where(selected_reversed, share, 0.0), 0)) / tl.maximum(size - 1.0, 1.0)
    weight = tl.where(same_group, within, 0.0) - 2.0 * cross
    tl.store(values + row, tl.sum(weight * gram, 0))
    tl.store(pair_shares + row, total)
    if SLOPES:
        tl.store(slopes + index, -scale * weight * gram, mask=inside)


@triton.jit
def distances(product, d2, rows, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute |z_i − z_j|² from the products z_i · z_j for TILE rows; negative values and the diagonal become 0."""
    first = tl.program_id(1).to(tl.int64) * rows * rows
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    square_i = tl.load(product + first + i * (rows + 1), mask=i < rows, other=0.0)
    for start in range(0, rows, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        inside = (i < rows) & (j < rows)
        square_j = tl.load(product + first + j * (rows + 1), mask=j < rows, other=0.0)
        value = square_i + square_j - 2.0 * tl.load(product + first + i * rows + j, mask=inside, other=0.0)
        tl.store(d2 + first + i * rows + j, tl.where((value < 0.0) | (i == j), 0.0, value), mask=inside)


@triton.jit
def distance_gradients(grad, d2, weights, sums, rows, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute weights 2 (G + Gᵀ) and their row sums for TILE rows; G is the gradient, or 0 if the distance is 0."""
    member = tl.program_id(1).to(tl.int64)
    first = member * rows * rows
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = row[:, None]
    total = tl.zeros((TILE, BLOCK), dtype=tl.float32)
    for start in range(0, rows, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        inside = (i < rows) & (j < rows)
        ij, ji = first + i * rows + j, first + j * rows + i
        g_ij = tl.load(grad + ij, mask=inside, other=0.0)
        g_ij = tl.where(tl.load(d2 + ij, mask=inside, other=0.0) == 0.0, 0.0, g_ij)
        g_ji = tl.load(grad + ji, mask=inside, other=0.0)
        g_ji = tl.where(tl.load(d2 + ji, mask=inside, other=0.0) == 0.0, 0.0, g_ji)
        weight = 2.0 * (g_ij + g_ji)
        total += weight
        tl.store(weights + ij, weight, mask=inside)
    tl.store(sums + member * rows + row, tl.sum(total, 1), mask=row < rows)
