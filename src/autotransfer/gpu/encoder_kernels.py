"""Triton kernels of encoders and of linear systems, launched by functions of `gpu`. The import needs Triton.

Tests compare each kernel with torch operations.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(
    a, b, out, group, m, n, k, length, a_batch, a_row, a_column, b_batch, b_row, b_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Store in out[s, p] partial sum s of a[p] @ b[group[p]], or of a[p] @ b[p] unless SHARED, over `length` terms.

    A program computes all m rows and TILE_N columns of a partial sum.
    """
    batch = tl.program_id(0).to(tl.int64)
    source = tl.load(group + batch) if SHARED else batch
    rows = tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    begin = tl.program_id(2) * length
    for start in range(begin, tl.minimum(begin + length, k), TILE_K):
        term = start + inner
        left = tl.load(
            a + batch * a_batch + rows[:, None] * a_row + term[None, :] * a_column,
            mask=(rows[:, None] < m) & (term[None, :] < k), other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + source * b_batch + term[:, None] * b_row + columns[None, :] * b_column,
            mask=(term[:, None] < k) & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        total += tl.dot(left, right, input_precision="tf32")
    target = out + ((tl.program_id(2) * tl.num_programs(0) + batch) * m + rows[:, None]) * n + columns[None, :]
    tl.store(target, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def _elu(v, mean, scale, shift):
    """Return ELU and the derivative of ELU at the normalized signal."""
    h = (v - mean) * scale + shift
    slope = tl.exp(tl.minimum(h, 0.0))
    return tl.maximum(h, 0.0) + slope - 1.0, slope


@triton.jit
def _dropout(drop, member):
    """Return the threshold below which draws drop a unit, and the factor by which kept units are multiplied."""
    probability = tl.load(drop + member)
    # Adding and subtracting 3·2²² rounds to the nearest integer, half to even.
    return ((probability * 65536.0 + 12582912.0) - 12582912.0).to(tl.int32) - 32768, 1.0 / (1.0 - probability)


@triton.jit
def norm_pool_forward(
    v, gamma, beta, draws, group, drop, out, squares, means, variances, features, batch, eps, TIMES: tl.constexpr,
    POOL: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute mean and variance of batch × TIMES samples of a member's feature, then pool units, in one program.

    WIDTH is the smallest power of 2 that is at least POOL. BLOCK samples are processed at once.
    """
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    n = batch * TIMES
    lane = tl.arange(0, BLOCK)
    # The first sample is subtracted before summing, so that a large offset does not cancel.
    origin = tl.load(v + row * n)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    spread = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        sample = start + lane
        value = tl.load(v + row * n + sample, mask=sample < n, other=origin) - origin
        total += value
        spread += value * value
    mean = tl.sum(total) / n
    variance = tl.maximum(tl.sum(spread) / n - mean * mean, 0.0)
    mean += origin
    tl.store(means + row, mean)
    tl.store(variances + row, variance)

    steps: tl.constexpr = TIMES // POOL
    units = batch * steps
    scale = tl.load(gamma + row) / tl.sqrt(variance + eps)
    shift = tl.load(beta + row)
    source = tl.load(group + member) if SHARED else member
    threshold, keep_scale = _dropout(drop, member)
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        inside = unit < units
        first = unit * POOL if TIMES % POOL == 0 else unit // steps * TIMES + unit % steps * POOL
        is_used = inside[:, None] & (i < POOL)
        signal = tl.load(v + row * n + first[:, None] + i, mask=is_used, other=0.0)
        if SQUARED:
            tl.store(squares + row * units + unit, tl.sum(signal * signal, 1) / POOL, mask=inside)
        value, _ = _elu(signal, mean, scale, shift)
        pooled = tl.sum(tl.where(is_used, value, 0.0), 1)
        draw = tl.load(draws + (source * features + feature) * units + unit, mask=inside, other=0)
        pooled = tl.where(draw.to(tl.int32) >= threshold, pooled / POOL * keep_scale, 0.0)
        tl.store(out + row * units + unit, pooled, mask=inside)


@triton.jit
def elu_pool(
    v, scales, shifts, out, squares, batch, TIMES: tl.constexpr, POOL: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK // WIDTH pooled units of ELU(scale · v + shift), without dropout."""
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // POOL
    n, units = batch * TIMES, batch * steps
    unit = tl.program_id(1) * (BLOCK // WIDTH) + tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    inside = unit < units
    first = unit * POOL if TIMES % POOL == 0 else unit // steps * TIMES + unit % steps * POOL
    is_used = inside[:, None] & (i < POOL)
    signal = tl.load(v + row * n + first[:, None] + i, mask=is_used, other=0.0)
    if SQUARED:
        tl.store(squares + row * units + unit, tl.sum(signal * signal, 1) / POOL, mask=inside)
    value, _ = _elu(signal, 0.0, tl.load(scales + row), tl.load(shifts + row))
    tl.store(out + row * units + unit, tl.sum(tl.where(is_used, value, 0.0), 1) / POOL, mask=inside)


@triton.jit
def norm_pool_backward(
    grad, grad_squares, v, gamma, beta, draws, group, drop, means, variances, grad_v, grad_gamma, grad_beta, features,
    batch, eps, TIMES: tl.constexpr, POOL: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of norm_pool_forward: first sums over a feature, then the gradient of every sample.

    Samples at the end of a window that are not pooled form a unit with gradient 0.
    """
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    steps: tl.constexpr = TIMES // POOL
    all_steps: tl.constexpr = (TIMES + POOL - 1) // POOL
    n, units = batch * TIMES, batch * steps
    mean = tl.load(means + row)
    inverse = 1.0 / tl.sqrt(tl.load(variances + row) + eps)
    scale = tl.load(gamma + row) * inverse
    shift = tl.load(beta + row)
    source = tl.load(group + member) if SHARED else member
    row_draws = draws + (source * features + feature) * units
    threshold, keep_scale = _dropout(drop, member)
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    total = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    total_v = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    for start in range(0, batch * all_steps, BLOCK // WIDTH):
        unit, is_pooled, sample, is_used = _locate_units(start + lane, i, units, TIMES, POOL)
        value = tl.load(v + row * n + sample, mask=is_used, other=0.0)
        g = _unpool_gradient(grad + row * units, row_draws, unit, is_pooled, threshold, keep_scale / POOL)
        _, slope = _elu(value, mean, scale, shift)
        slope = tl.where(is_used, slope, 0.0)
        total += g * tl.sum(slope, 1)
        total_v += g * tl.sum(slope * (value - mean), 1)
    sum_g, sum_g_v = tl.sum(total), tl.sum(total_v)
    tl.store(grad_beta + row, sum_g)
    tl.store(grad_gamma + row, sum_g_v * inverse)
    mean_term, projection = scale * sum_g / n, scale * inverse * inverse * sum_g_v / n
    for start in range(0, batch * all_steps, BLOCK // WIDTH):
        unit, is_pooled, sample, is_used = _locate_units(start + lane, i, units, TIMES, POOL)
        value = tl.load(v + row * n + sample, mask=is_used, other=0.0)
        g = _unpool_gradient(grad + row * units, row_draws, unit, is_pooled, threshold, keep_scale / POOL)
        _, slope = _elu(value, mean, scale, shift)
        grad_value = scale * g[:, None] * slope - mean_term - projection * (value - mean)
        if SQUARED:
            grad_square = tl.load(grad_squares + row * units + unit, mask=is_pooled, other=0.0)
            grad_value += 2.0 / POOL * value * grad_square[:, None]
        tl.store(grad_v + row * n + sample, grad_value, mask=is_used)


@triton.jit
def segments_forward(
    v, level, square, means, batch, TIMES: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute the mean of a signal, then mean and mean square of the centered segments, in one program.

    WIDTH is the smallest power of 2 that is at least LENGTH. BLOCK samples are processed at once.
    """
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // LENGTH
    n, units = batch * TIMES, batch * steps
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    origin = tl.load(v + row * n)  # subtracted before summing, so that a large offset does not cancel
    total = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        first = unit * LENGTH if TIMES % LENGTH == 0 else unit // steps * TIMES + unit % steps * LENGTH
        is_used = (unit < units)[:, None] & (i < LENGTH)
        total += tl.sum(tl.load(v + row * n + first[:, None] + i, mask=is_used, other=origin) - origin, 1)
    mean = tl.sum(total) / (units * LENGTH) + origin
    tl.store(means + row, mean)
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        first = unit * LENGTH if TIMES % LENGTH == 0 else unit // steps * TIMES + unit % steps * LENGTH
        inside = unit < units
        is_used = inside[:, None] & (i < LENGTH)
        value = tl.load(v + row * n + first[:, None] + i, mask=is_used, other=mean) - mean
        tl.store(level + row * units + unit, tl.sum(value, 1) / LENGTH, mask=inside)
        tl.store(square + row * units + unit, tl.sum(value * value, 1) / LENGTH, mask=inside)


@triton.jit
def segments_backward(
    grad_level, grad_square, v, level, means, grad_v, batch, TIMES: tl.constexpr, LENGTH: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of segments_forward. The mean gradient is subtracted, because signals are centered."""
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // LENGTH
    all_steps: tl.constexpr = (TIMES + LENGTH - 1) // LENGTH
    n, units = batch * TIMES, batch * steps
    mean = tl.load(means + row)
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    total = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        inside = unit < units
        slope = 2.0 * tl.load(grad_square + row * units + unit, mask=inside, other=0.0)
        total += tl.load(grad_level + row * units + unit, mask=inside, other=0.0)
        total += slope * tl.load(level + row * units + unit, mask=inside, other=0.0)
    average = tl.sum(total) / units
    for start in range(0, batch * all_steps, BLOCK // WIDTH):
        unit, is_segment, sample, is_used = _locate_units(start + lane, i, units, TIMES, LENGTH)
        slope = 2.0 * tl.load(grad_square + row * units + unit, mask=is_segment, other=0.0)
        constant = tl.load(grad_level + row * units + unit, mask=is_segment, other=0.0) - average
        value = tl.load(v + row * n + sample, mask=is_used, other=mean) - mean
        grad_value = (constant[:, None] + slope[:, None] * value) / LENGTH
        tl.store(grad_v + row * n + sample, tl.where(is_segment[:, None], grad_value, 0.0), mask=is_used)


@triton.jit
def _locate_units(index, i, units, TIMES: tl.constexpr, POOL: tl.constexpr):
    """Return the units with these indices, whether units are pooled, indices of samples and a mask of samples.

    If POOL does not divide TIMES, the remaining samples of a window are one more unit, which is not pooled.
    """
    steps: tl.constexpr = TIMES // POOL
    if TIMES % POOL == 0:
        unit, is_pooled, first = index, index < units, index * POOL
        is_used = is_pooled[:, None] & (i < POOL)
    else:
        window, step = index // (steps + 1), index % (steps + 1)
        unit, first = window * steps + step, window * TIMES + step * POOL
        inside = window * steps < units
        is_pooled = inside & (step < steps)
        is_used = inside[:, None] & (i < POOL) & (step[:, None] * POOL + i < TIMES)
    return unit, is_pooled, first[:, None] + i, is_used


@triton.jit
def _unpool_gradient(grad, row_draws, unit, is_pooled, threshold, factor):
    """Return factor · gradient of the pooled units, 0 for units that are dropped or not pooled."""
    draw = tl.load(row_draws + unit, mask=is_pooled, other=0)
    g = tl.load(grad + unit, mask=is_pooled, other=0.0)
    return tl.where(is_pooled & (draw.to(tl.int32) >= threshold), g * factor, 0.0)


@triton.jit
def _split(x):
    """Split x into two float16 numbers with 22 bits in total; the second number is multiplied by 2048."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)


@triton.jit
def _multiply_split(a_high, a_low, b_high, b_low):
    low_terms = tl.dot(a_low, b_high, tl.dot(a_high, b_low))
    return tl.dot(a_high, b_high, low_terms * (1.0 / 2048.0))


@triton.jit
def sign(matrix, out, coefficients, rows, STEPS: tl.constexpr, TILE: tl.constexpr):
    """Apply polynomials a x + b x³ + c x⁵, one after another, to a symmetric matrix that stays on the chip."""
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    index = batch * rows * rows + i * rows + j
    inside = (i < rows) & (j < rows)
    x = tl.load(matrix + index, mask=inside, other=0.0)
    for step in range(STEPS):
        a = tl.load(coefficients + 3 * step)
        b = tl.load(coefficients + 3 * step + 1)
        c = tl.load(coefficients + 3 * step + 2)
        x_high, x_low = _split(x)
        square = _multiply_split(x_high, x_low, x_high, x_low)
        high, low = _split(square)
        high, low = _split(b * square + c * _multiply_split(high, low, high, low))
        x = a * x + _multiply_split(high, low, x_high, x_low)
    tl.store(out + index, (x + tl.trans(x)) / 2, mask=inside)


@triton.jit
def _inverse(x, SIDE: tl.constexpr):
    """Invert a positive definite matrix by Gauss-Jordan elimination."""
    i, j = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    for k in range(SIDE):
        row = tl.sum(tl.where(i == k, x, 0.0), 0)[None, :]
        column = tl.sum(tl.where(j == k, x, 0.0), 1)[:, None]
        pivot = tl.sum(tl.where(j == k, row, 0.0), 1)[:, None]
        other_rows = tl.where(j == k, -column / pivot, x - column * row / pivot)
        x = tl.where(i == k, tl.where(j == k, 1.0 / pivot, row / pivot), other_rows)
    return x


@triton.jit
def solve(matrix, vectors, rows, width, TILE: tl.constexpr, BLOCK: tl.constexpr, ACROSS: tl.constexpr):
    """Replace vectors by matrix⁻¹ vectors by blockwise elimination; the matrix is overwritten.

    A program solves one system. Barriers separate writes of its threads from reads by other threads.
    """
    batch = tl.program_id(0).to(tl.int64)
    matrix += batch * rows * rows
    vectors += batch * rows * width
    down, across = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    i, j, side = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :], tl.arange(0, ACROSS)[None, :]
    for start in range(0, rows, BLOCK):
        d, e = start + down, start + across
        block = tl.load(matrix + d * rows + e, mask=(d < rows) & (e < rows), other=0.0)
        inverse = _inverse(tl.where((d >= rows) & (d == e), 1.0, block), BLOCK)
        tl.store(matrix + d * rows + e, inverse, mask=(d < rows) & (e < rows))  # for the backward pass
        below = (i >= start + BLOCK) & (i < rows)
        column = tl.load(matrix + i * rows + e, mask=below & (e < rows), other=0.0)
        multiplier = tl.dot(column, inverse, input_precision="tf32x3")
        for first in range(start + BLOCK, rows, ACROSS):
            k = first + side
            factor = tl.load(matrix + d * rows + k, mask=(d < rows) & (k < rows), other=0.0)
            remainder = tl.load(matrix + i * rows + k, mask=below & (k < rows), other=0.0)
            remainder -= tl.dot(multiplier, factor, input_precision="tf32x3")
            tl.store(matrix + i * rows + k, remainder, mask=below & (k < rows))
        for first in range(0, width, ACROSS):
            k = first + side
            right = tl.load(vectors + d * width + k, mask=(d < rows) & (k < width), other=0.0)
            remainder = tl.load(vectors + i * width + k, mask=below & (k < width), other=0.0)
            remainder -= tl.dot(multiplier, right, input_precision="tf32x3")
            tl.store(vectors + i * width + k, remainder, mask=below & (k < width))
        tl.debug_barrier()
    blocks = tl.cdiv(rows, BLOCK)
    for step in range(blocks):
        start = (blocks - 1 - step) * BLOCK
        d, e = start + down, start + across
        inverse = tl.load(matrix + d * rows + e, mask=(d < rows) & (e < rows), other=0.0)
        upper = tl.load(matrix + d * rows + j, mask=(d < rows) & (j >= start + BLOCK) & (j < rows), other=0.0)
        in_lower_rows = (i >= start + BLOCK) & (i < rows)
        for first in range(0, width, ACROSS):
            k = first + side
            lower_solution = tl.load(vectors + i * width + k, mask=in_lower_rows & (k < width), other=0.0)
            right_side = tl.load(vectors + d * width + k, mask=(d < rows) & (k < width), other=0.0)
            right_side -= tl.dot(upper, lower_solution, input_precision="tf32x3")
            solution = tl.dot(inverse, right_side, input_precision="tf32x3")
            tl.store(vectors + d * width + k, solution, mask=(d < rows) & (k < width))
        tl.debug_barrier()


@triton.jit
def accelerate(matrix, vectors, steps, rates, out, rows, width, TILE: tl.constexpr, ACROSS: tl.constexpr):
    """Iterate x ← x + m (x − previous x) + ω (vectors − matrix x) from 0, `steps` times in each system.

    `rates` holds (m, ω) of every step. A program computes ACROSS columns of one system.
    """
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    k = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)[None, :]
    index, inside = batch * rows * width + i * width + k, (i < rows) & (k < width)
    system = tl.load(matrix + batch * rows * rows + i * rows + j, mask=(i < rows) & (j < rows), other=0.0)
    target = tl.load(vectors + index, mask=inside, other=0.0)
    x = tl.zeros((TILE, ACROSS), dtype=tl.float32)
    previous = tl.zeros((TILE, ACROSS), dtype=tl.float32)
    for step in range(tl.load(steps + batch)):
        momentum, rate = tl.load(rates + 2 * step), tl.load(rates + 2 * step + 1)
        product = tl.dot(system, x, input_precision="tf32x3")
        next_x = x + momentum * (x - previous) + rate * (target - product)
        previous = x
        x = next_x
    tl.store(out + index, x, mask=inside)


@triton.jit
def sum_scaled_rows(
    table, rows, factors, linear, out, batch, channels, width, length, TILE_B: tl.constexpr, TILE: tl.constexpr
):
    """Store in out[s, g] partial sums over b and c of table[rows[g, b], c] · f, with f = factors[g, b, c].

    f is squared in columns that are not linear. Partial sum s is over `length` pairs (b, c).
    """
    group = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    is_linear = tl.load(linear + column, mask=column < width, other=0) != 0
    b = tl.arange(0, TILE_B)[:, None]
    total = tl.zeros((TILE_B, TILE), dtype=tl.float32)
    begin = tl.program_id(2) * length
    end = tl.minimum(begin + length, batch * channels)
    for start in range(begin, end, TILE_B):
        index = start + b
        inside = index < end
        row = tl.load(rows + group * batch + index // channels, mask=inside, other=0).to(tl.int64)
        factor = tl.load(factors + group * batch * channels + index, mask=inside, other=0.0)
        source = table + (row * channels + index % channels) * width + column
        value = tl.load(source, mask=inside & (column < width), other=0.0)
        total += value * tl.where(is_linear, factor, factor * factor)
    target = out + (tl.program_id(2) * tl.num_programs(0) + group) * width + column
    tl.store(target, tl.sum(total, 0)[None, :], mask=column < width)
