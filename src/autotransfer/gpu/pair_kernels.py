"""Triton kernels on the B×B pairs of rows of a batch, which `pairs` launches. The import needs Triton.

Masks are bytes. If several masks share one matrix of distances, axis 1 of the grid counts members and axis 2 the masks
of a member, so that kernels are not compiled again for other numbers of either.
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
    mine = tl.load(context + row)
    same = inside & (tl.load(context + first + lane, mask=inside, other=-1) == mine)
    same = same & (tl.load(nuisance + first + lane, mask=inside, other=-1) == tl.load(nuisance + row))
    size = tl.sum(tl.where(same, 1, 0), 0)
    tl.store(sizes + row, tl.where(mine >= 0, size, 0))


@triton.jit
def group_masks(
    context, nuisance, sizes, counts, context_mask, group_mask, context_rows, group_rows, context_groups, rows,
    min_rows, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute masks and sizes of the context and group of a row; one program per row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    mine = tl.load(context + row)
    size = tl.load(sizes + row)
    row_sizes = tl.load(sizes + first + lane, mask=inside, other=0)
    shared = inside & (tl.load(context + first + lane, mask=inside, other=-1) == mine) & (mine >= 0)
    enough = shared & (row_sizes >= min_rows) & (row_sizes > 0)
    # A group of n rows contributes n times 1/n.
    share = tl.where(enough, 1.0 / tl.maximum(row_sizes, 1).to(tl.float32), 0.0)
    groups = tl.floor(tl.sum(share, 0) + 0.5)
    counted = (mine >= 0) & (size >= min_rows) & (groups >= 2.0)
    both = enough & counted
    same_group = both & (tl.load(nuisance + first + lane, mask=inside, other=-1) == tl.load(nuisance + row))
    tl.store(context_mask + row * rows + lane, tl.where(both, 1, 0).to(tl.uint8), mask=inside)
    tl.store(group_mask + row * rows + lane, tl.where(same_group, 1, 0).to(tl.uint8), mask=inside)
    tl.store(counts + row, tl.where(counted, 1, 0).to(tl.uint8))
    tl.store(context_rows + row, tl.maximum(tl.sum(tl.where(both, 1, 0), 0), 1).to(tl.float32))
    tl.store(group_rows + row, tl.where(counted, size, 1).to(tl.float32))
    tl.store(context_groups + row, tl.where(counted, groups, 1.0))


@triton.jit
def score_matrices(d2, beta, mask, normal, pull, sums, sizes, rows, PAIRED: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the matrices of score estimators for one row of a mask; all rows of a block have equal n."""
    i = tl.program_id(0)
    member = tl.program_id(1).to(tl.int64)
    at = (tl.program_id(2) * tl.num_programs(1) + member) * rows  # the first row of this mask
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    place = (at + i) * rows + lane
    same = tl.load(mask + place, mask=inside, other=0) != 0
    n = tl.maximum(tl.sum(tl.where(same, 1, 0), 0), 1).to(tl.float32)
    root = 1.0 / tl.sqrt(n)
    scale = tl.load(beta + at + i)
    if PAIRED:
        scale = (scale + tl.load(beta + at + lane, mask=inside, other=0.0)) * 0.5
    distance = tl.load(d2 + (member * rows + i) * rows + lane, mask=inside, other=0.0)
    gram = tl.exp(-scale * distance)
    slope = tl.where(same, 2.0 * scale * gram * root, 0.0)
    tl.store(normal + place, tl.where(same, gram * (root * root), 0.0), mask=inside)
    tl.store(pull + place, slope, mask=inside)
    tl.store(sums + at + i, tl.sum(slope, 0))
    tl.store(sizes + at + i, n)


@triton.jit
def _sums(mask, x):
    """Sum the masked rows of x, which is split in two because factors are rounded to 11 bits."""
    high = (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return tl.dot(mask, high, tl.dot(mask, x - high, input_precision="tf32"), input_precision="tf32")


@triton.jit
def _obeying(score, z, block, context):
    """Compute censoring.mige.project_scores."""
    size = tl.sum(block, 1)[:, None]
    n = tl.maximum(size, 1.0)
    z = tl.where(size > 0.0, z - _sums(block, z) / n, 0.0)
    score = tl.where(size > 0.0, score - _sums(block, score) / n, 0.0)
    spread = _sums(context, z * z)
    excess = _sums(context, score * z) + tl.sum(context, 1)[:, None]
    return score - z * excess / tl.where(spread > 0.0, spread, 1.0)


@triton.jit
def score_differences(scores, z, group, context, counts, out, rows, width, TILE: tl.constexpr, ACROSS: tl.constexpr):
    """Compute (score in groups − score in contexts) / number of counted rows for ACROSS columns of a member."""
    member = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    k = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)[None, :]
    inside = (i < rows) & (j < rows)
    place = (member * rows + i) * rows + j
    in_group = tl.load(group + place, mask=inside, other=0).to(tl.float32)
    in_context = tl.load(context + place, mask=inside, other=0).to(tl.float32)
    there = (i < rows) & (k < width)
    place = (member * rows + i) * width + k
    sample = tl.load(z + place, mask=there, other=0.0)
    first = tl.load(scores + place, mask=there, other=0.0)
    second = tl.load(scores + tl.num_programs(0).to(tl.int64) * rows * width + place, mask=there, other=0.0)
    first = _obeying(first, sample, in_group, in_context)
    second = _obeying(second, sample, in_context, in_context)
    row = tl.arange(0, TILE)
    number = tl.sum(tl.load(counts + member * rows + row, mask=row < rows, other=0).to(tl.float32), 0)
    tl.store(out + place, (first - second) / tl.maximum(number, 1.0), mask=there)


@triton.jit
def medians(d2, mask, out, rows, BLOCK: tl.constexpr):
    """Compute the median distance of every block of a mask with all pairs in registers; one program per mask.

    Nonnegative floats are ordered like their bit patterns. A binary search over the bits, from the highest on, finds
    the lower of the two middle values of each block.
    """
    member = tl.program_id(0).to(tl.int64)
    at = (tl.program_id(1) * tl.num_programs(0) + member) * rows
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (i < rows) & (j < rows)
    same = tl.load(mask + (at + i) * rows + j, mask=inside, other=0) != 0
    value = tl.load(d2 + (member * rows + i) * rows + j, mask=inside, other=0.0)
    # The sign of 0 is removed. The largest pattern, a NaN, marks pairs that do not belong to a block.
    pair = same & (i < j)
    pattern = tl.minimum(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7FFFFFFE)
    pattern = tl.where(pair, pattern, 0x7FFFFFFF)
    # Sums run over axis 0, most of which one thread holds; column j belongs to the block of row j.
    size = tl.sum(tl.where(same, 1, 0), 0)
    pairs = size * (size - 1) // 2
    rank = (tl.maximum(pairs - 1, 0) // 2 + 1).to(tl.float32)
    # Bits that are equal in all pairs are not searched.
    smallest = tl.min(tl.min(pattern, 0), 0)
    differing = smallest ^ tl.max(tl.max(tl.where(pair, pattern, 0), 0), 0)
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    bit = 1 << 30
    while bit > differing:
        low += bit & smallest
        bit = bit // 2
    # A product with the mask sums the counts of the columns of a block. Counts up to 128 are exact in float16, and
    # tensor cores need 16 rows.
    blocks = same.to(tl.float16)
    ones = tl.full((16, BLOCK), 1.0, tl.float16)
    while bit > 0:
        tried = low + bit
        below = tl.sum(tl.where(pattern < tried[None, :], 1.0, 0.0), 0).to(tl.float16)
        total = tl.max(tl.dot(ones * below[None, :], blocks), 0)
        low = tl.where(total < rank, tried, low)
        bit = bit // 2
    upto = tl.sum(tl.where(pattern <= low[None, :], 1, 0), 0)
    upto = tl.sum(tl.where(same, upto[:, None], 0), 0)
    after = tl.min(tl.where(pattern > low[None, :], pattern, 0x7FFFFFFF), 0)
    after = tl.min(tl.where(same, after[:, None], 0x7FFFFFFF), 0)
    high = tl.where(upto > pairs // 2, low, after)
    median = (tl.sqrt(low.to(tl.float32, bitcast=True)) + tl.sqrt(high.to(tl.float32, bitcast=True))) * 0.5
    row = tl.arange(0, BLOCK)
    tl.store(out + at + row, tl.where(pairs > 0, median, 0.0), mask=row < rows)


@triton.jit
def perplexity(d2, mask, out, rows, largest, smallest, bracket, steps, BLOCK: tl.constexpr):
    """Search log β for the target entropy of one row of a mask by bisection; one program per row.

    The nearest distance is subtracted from distances, which are divided by their mean.
    """
    i = tl.program_id(0)
    member = tl.program_id(1).to(tl.int64)
    at = (tl.program_id(2) * tl.num_programs(1) + member) * rows
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    others = (tl.load(mask + (at + i) * rows + lane, mask=inside, other=0) != 0) & (lane != i)
    distance = tl.load(d2 + (member * rows + i) * rows + lane, mask=inside, other=0.0)
    neighbors = tl.sum(tl.where(others, 1.0, 0.0), 0)
    mean = tl.sum(tl.where(others, distance, 0.0), 0) / tl.maximum(neighbors, 1.0)
    mean = tl.where(mean > 0.0, mean, 1.0)
    nearest = tl.min(tl.where(others, distance, float("inf")), 0)
    near = tl.where(others, (nearest - distance) / mean, -1e30)
    target_entropy = tl.log(tl.minimum(tl.maximum(neighbors / 3.0, smallest), largest))
    low, high = -bracket, bracket
    for _ in range(steps):
        middle = (low + high) / 2
        scaled = tl.exp(middle) * near
        weight = tl.exp(scaled)
        total = tl.maximum(tl.sum(weight, 0), 1e-37)
        entropy = tl.log(total) - tl.sum(weight * scaled, 0) / total
        low = tl.where(entropy > target_entropy, middle, low)
        high = tl.where(entropy > target_entropy, high, middle)
    beta = tl.exp((low + high) / 2) / mean
    tl.store(out + at + i, tl.where(neighbors > 1.0, beta, 0.5 / mean))


@triton.jit
def _rbf_row(d2, beta, row, first, lane, inside, rows, PAIRED: tl.constexpr):
    """Return exp(−β d²) (BLOCK,) of a row with the other rows of its batch, 0 with itself, and β (BLOCK,) or ()."""
    scale = tl.load(beta + row)
    if PAIRED:
        scale = (scale + tl.load(beta + first + lane, mask=inside, other=0.0)) * 0.5
    distance = tl.load(d2 + row * rows + lane, mask=inside, other=0.0)
    return tl.where(inside & (first + lane != row), tl.exp(-scale * distance), 0.0), scale


@triton.jit
def mmd_rows(
    d2, beta, counts, context, group, context_rows, group_rows, context_groups, values, slopes, rows,
    PAIRED: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the contribution of a row's pairs to MMD and its derivatives by the distances; one program per row.

    MMD is a weighted sum of K_ij: pairs of one context have the weight u_i, pairs of one group u_i + v_i.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    gram, scale = _rbf_row(d2, beta, row, first, lane, inside, rows, PAIRED)
    # All groups have equal weight; the weight of a context is its number of groups.
    counted = tl.load(counts + first + lane, mask=inside, other=0) != 0
    in_group = tl.load(group_rows + first + lane, mask=inside, other=1.0)
    in_context = tl.load(context_rows + first + lane, mask=inside, other=1.0)
    groups = tl.load(context_groups + first + lane, mask=inside, other=1.0)
    all_groups = tl.maximum(tl.sum(tl.where(counted, 1.0 / in_group, 0.0), 0), 1.0)
    all_contexts = tl.maximum(tl.sum(tl.where(counted, groups / in_context, 0.0), 0), 1.0)
    used = tl.load(counts + row).to(tl.float32)
    in_group, in_context = tl.load(group_rows + row), tl.load(context_rows + row)
    per_group = used / in_group / all_groups
    per_context = used * tl.load(context_groups + row) / in_context / all_contexts
    u = (per_context - 2.0 * per_group) / tl.maximum(in_context - 1.0, 1.0)
    v = per_group / tl.maximum(in_group - 1.0, 1.0)
    place = row * rows + lane
    weight = tl.where(tl.load(context + place, mask=inside, other=0) != 0, u, 0.0)
    weight += tl.where(tl.load(group + place, mask=inside, other=0) != 0, v, 0.0)
    tl.store(values + row, tl.sum(weight * gram, 0))
    if SLOPES:
        tl.store(slopes + place, -scale * weight * gram, mask=inside)


@triton.jit
def pairwise_rows(
    d2, beta, context, group, selection, group_rows, values, totals, slopes, rows,
    PAIRED: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the contribution of a row to the sum over selected pairs of groups and its derivatives.

    totals: the row's share of the number of selected pairs, by which value and slopes must be divided.
    """
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    inside = lane < rows
    first = row // rows * rows
    gram, scale = _rbf_row(d2, beta, row, first, lane, inside, rows, PAIRED)
    place = row * rows + lane
    same_group = tl.load(group + place, mask=inside, other=0) != 0
    others = (tl.load(context + place, mask=inside, other=0) != 0) & (same_group == 0)
    chosen = others & (tl.load(selection + place, mask=inside, other=0) != 0)
    # The masks are symmetric, the selection is not: a pair may be selected in the other order.
    turned = (first + lane) * rows + (row - first)
    chosen_by = others & (tl.load(selection + turned, mask=inside, other=0) != 0)
    size = tl.load(group_rows + row)
    share = 1.0 / (size * tl.load(group_rows + first + lane, mask=inside, other=1.0))
    pair = tl.where(chosen, share, 0.0)
    total = tl.sum(pair, 0)
    within = (total + tl.sum(tl.where(chosen_by, share, 0.0), 0)) / tl.maximum(size - 1.0, 1.0)
    weight = tl.where(same_group, within, 0.0) - 2.0 * pair
    tl.store(values + row, tl.sum(weight * gram, 0))
    tl.store(totals + row, total)
    if SLOPES:
        tl.store(slopes + place, -scale * weight * gram, mask=inside)


@triton.jit
def distances(product, d2, rows, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute |z_i − z_j|² ≥ 0 from the products z_i · z_j for TILE rows, 0 on the diagonal; NaN is kept."""
    at = tl.program_id(1).to(tl.int64) * rows * rows
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    square_i = tl.load(product + at + i * (rows + 1), mask=i < rows, other=0.0)
    for start in range(0, rows, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        inside = (i < rows) & (j < rows)
        square_j = tl.load(product + at + j * (rows + 1), mask=j < rows, other=0.0)
        value = square_i + square_j - 2.0 * tl.load(product + at + i * rows + j, mask=inside, other=0.0)
        tl.store(d2 + at + i * rows + j, tl.where((value < 0.0) | (i == j), 0.0, value), mask=inside)


@triton.jit
def distance_pulls(grad, d2, pull, sums, rows, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute H = 2 (G + Gᵀ) and its row sums for TILE rows; G is the gradient, 0 for distances of 0."""
    member = tl.program_id(1).to(tl.int64)
    at = member * rows * rows
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    i = row[:, None]
    total = tl.zeros((TILE, BLOCK), dtype=tl.float32)
    for start in range(0, rows, BLOCK):
        j = start + tl.arange(0, BLOCK)[None, :]
        inside = (i < rows) & (j < rows)
        here, turned = at + i * rows + j, at + j * rows + i
        g_ij = tl.load(grad + here, mask=inside, other=0.0)
        g_ij = tl.where(tl.load(d2 + here, mask=inside, other=0.0) == 0.0, 0.0, g_ij)
        g_ji = tl.load(grad + turned, mask=inside, other=0.0)
        g_ji = tl.where(tl.load(d2 + turned, mask=inside, other=0.0) == 0.0, 0.0, g_ji)
        both = 2.0 * (g_ij + g_ji)
        total += both
        tl.store(pull + here, both, mask=inside)
    tl.store(sums + member * rows + row, tl.sum(total, 1), mask=row < rows)
