"""Triton kernels of encoders and of linear systems, which functions of `gpu` launch. The import needs Triton.

Tests compare each kernel with torch operations.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(
    a, b, out, which, m, n, k, share, a_batch, a_row, a_column, b_batch, b_row, b_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Store partial sums of a[p] @ b[which[p]], or b[p] unless SHARED, in out[s, p] for shares s of the k terms.

    A program computes all m rows and TILE_N columns of a partial sum.
    """
    batch = tl.program_id(0).to(tl.int64)
    source = tl.load(which + batch) if SHARED else batch
    rows = tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    begin = tl.program_id(2) * share
    for start in range(begin, tl.minimum(begin + share, k), TILE_K):
        at = start + inner
        left = tl.load(
            a + batch * a_batch + rows[:, None] * a_row + at[None, :] * a_column,
            mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + source * b_batch + at[:, None] * b_row + columns[None, :] * b_column,
            mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        total += tl.dot(left, right, input_precision="tf32")
    place = out + ((tl.program_id(2) * tl.num_programs(0) + batch) * m + rows[:, None]) * n + columns[None, :]
    tl.store(place, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def _elu_of(v, mean, scale, shift):
    """Return ELU of the normalized signal and its derivative."""
    h = (v - mean) * scale + shift
    slope = tl.exp(tl.minimum(h, 0.0))
    return tl.maximum(h, 0.0) + slope - 1.0, slope


@triton.jit
def _dropout(drop, member):
    """Return the smallest draw of a kept unit and the factor by which kept units are multiplied."""
    share = tl.load(drop + member)
    # Adding and subtracting 3·2²² rounds to the nearest integer, half to even.
    return ((share * 65536.0 + 12582912.0) - 12582912.0).to(tl.int32) - 32768, 1.0 / (1.0 - share)


@triton.jit
def norm_pool_forward(
    v, gamma, beta, draws, group, drop, out, squares, means, variances, features, batch, eps, TIMES: tl.constexpr,
    POOL: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SHARED: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute the statistics of batch × TIMES samples of a member's feature, then its pooled units, in one program.

    WIDTH is the smallest power of 2 that is at least POOL. BLOCK samples are processed at once.
    """
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    n = batch * TIMES
    lane = tl.arange(0, BLOCK)
    # The first sample is subtracted before summing, so that a large offset does not cancel.
    middle = tl.load(v + row * n)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    spread = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + lane
        value = tl.load(v + row * n + at, mask=at < n, other=middle) - middle
        total += value
        spread += value * value
    mean = tl.sum(total) / n
    variance = tl.maximum(tl.sum(spread) / n - mean * mean, 0.0)
    mean += middle
    tl.store(means + row, mean)
    tl.store(variances + row, variance)

    steps: tl.constexpr = TIMES // POOL
    units = batch * steps
    scale = tl.load(gamma + row) / tl.sqrt(variance + eps)
    shift = tl.load(beta + row)
    source = tl.load(group + member) if SHARED else member
    least, gain = _dropout(drop, member)
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        inside = unit < units
        first = unit * POOL if TIMES % POOL == 0 else unit // steps * TIMES + unit % steps * POOL
        used = inside[:, None] & (i < POOL)
        signal = tl.load(v + row * n + first[:, None] + i, mask=used, other=0.0)
        if SQUARED:
            tl.store(squares + row * units + unit, tl.sum(signal * signal, 1) / POOL, mask=inside)
        value, _ = _elu_of(signal, mean, scale, shift)
        pooled = tl.sum(tl.where(used, value, 0.0), 1)
        draw = tl.load(draws + (source * features + feature) * units + unit, mask=inside, other=0)
        pooled = tl.where(draw.to(tl.int32) >= least, pooled / POOL * gain, 0.0)
        tl.store(out + row * units + unit, pooled, mask=inside)


@triton.jit
def elu_pool(
    v, scales, shifts, out, squares, batch, TIMES: tl.constexpr, POOL: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK // WIDTH units of norm_pool_forward with known scale and shift, without dropout."""
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // POOL
    n, units = batch * TIMES, batch * steps
    unit = tl.program_id(1) * (BLOCK // WIDTH) + tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    inside = unit < units
    first = unit * POOL if TIMES % POOL == 0 else unit // steps * TIMES + unit % steps * POOL
    used = inside[:, None] & (i < POOL)
    signal = tl.load(v + row * n + first[:, None] + i, mask=used, other=0.0)
    if SQUARED:
        tl.store(squares + row * units + unit, tl.sum(signal * signal, 1) / POOL, mask=inside)
    value, _ = _elu_of(signal, 0.0, tl.load(scales + row), tl.load(shifts + row))
    tl.store(out + row * units + unit, tl.sum(tl.where(used, value, 0.0), 1) / POOL, mask=inside)


@triton.jit
def norm_pool_backward(
    grad, grad_squares, v, gamma, beta, draws, group, drop, means, variances, grad_v, grad_gamma, grad_beta, features,
    batch, eps, TIMES: tl.constexpr, POOL: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, SQUARED: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of norm_pool_forward: first sums over the row, then the gradient of every sample.

    Samples at the end of a window that are not pooled form a unit with gradient 0.
    """
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    steps: tl.constexpr = TIMES // POOL
    places: tl.constexpr = (TIMES + POOL - 1) // POOL
    n, units = batch * TIMES, batch * steps
    mean = tl.load(means + row)
    inverse = 1.0 / tl.sqrt(tl.load(variances + row) + eps)
    scale = tl.load(gamma + row) * inverse
    shift = tl.load(beta + row)
    source = tl.load(group + member) if SHARED else member
    own_draws = draws + (source * features + feature) * units
    least, gain = _dropout(drop, member)
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    total = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    along = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    for start in range(0, batch * places, BLOCK // WIDTH):
        unit, pooled, at, used = _units(start + lane, i, units, TIMES, POOL)
        value = tl.load(v + row * n + at, mask=used, other=0.0)
        g = _unit_gradient(grad + row * units, own_draws, unit, pooled, least, gain / POOL)
        _, slope = _elu_of(value, mean, scale, shift)
        slope = tl.where(used, slope, 0.0)
        total += g * tl.sum(slope, 1)
        along += g * tl.sum(slope * (value - mean), 1)
    sum_g, sum_along = tl.sum(total), tl.sum(along)
    tl.store(grad_beta + row, sum_g)
    tl.store(grad_gamma + row, sum_along * inverse)
    level, pull = scale * sum_g / n, scale * inverse * inverse * sum_along / n
    for start in range(0, batch * places, BLOCK // WIDTH):
        unit, pooled, at, used = _units(start + lane, i, units, TIMES, POOL)
        value = tl.load(v + row * n + at, mask=used, other=0.0)
        g = _unit_gradient(grad + row * units, own_draws, unit, pooled, least, gain / POOL)
        _, slope = _elu_of(value, mean, scale, shift)
        slope_v = scale * g[:, None] * slope - level - pull * (value - mean)
        if SQUARED:
            of_squares = tl.load(grad_squares + row * units + unit, mask=pooled, other=0.0)
            slope_v += 2.0 / POOL * value * of_squares[:, None]
        tl.store(grad_v + row * n + at, slope_v, mask=used)


@triton.jit
def segments_forward(
    v, level, square, means, batch, TIMES: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Compute the mean of a signal, then mean and mean square of its centered segments, in one program.

    WIDTH is the smallest power of 2 that is at least LENGTH. BLOCK samples are processed at once.
    """
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // LENGTH
    n, units = batch * TIMES, batch * steps
    lane = tl.arange(0, BLOCK // WIDTH)
    i = tl.arange(0, WIDTH)[None, :]
    middle = tl.load(v + row * n)  # subtracted before summing, so that a large offset does not cancel
    total = tl.zeros((BLOCK // WIDTH,), dtype=tl.float32)
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        first = unit * LENGTH if TIMES % LENGTH == 0 else unit // steps * TIMES + unit % steps * LENGTH
        used = (unit < units)[:, None] & (i < LENGTH)
        total += tl.sum(tl.load(v + row * n + first[:, None] + i, mask=used, other=middle) - middle, 1)
    mean = tl.sum(total) / (units * LENGTH) + middle
    tl.store(means + row, mean)
    for start in range(0, units, BLOCK // WIDTH):
        unit = start + lane
        first = unit * LENGTH if TIMES % LENGTH == 0 else unit // steps * TIMES + unit % steps * LENGTH
        inside = unit < units
        used = inside[:, None] & (i < LENGTH)
        value = tl.load(v + row * n + first[:, None] + i, mask=used, other=mean) - mean
        tl.store(level + row * units + unit, tl.sum(value, 1) / LENGTH, mask=inside)
        tl.store(square + row * units + unit, tl.sum(value * value, 1) / LENGTH, mask=inside)


@triton.jit
def segments_backward(
    grad_level, grad_square, v, level, means, grad_v, batch, TIMES: tl.constexpr, LENGTH: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of segments_forward; centering subtracts its mean, which follows from the segments."""
    row = tl.program_id(0).to(tl.int64)
    steps: tl.constexpr = TIMES // LENGTH
    places: tl.constexpr = (TIMES + LENGTH - 1) // LENGTH
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
    for start in range(0, batch * places, BLOCK // WIDTH):
        unit, whole, at, used = _units(start + lane, i, units, TIMES, LENGTH)
        slope = 2.0 * tl.load(grad_square + row * units + unit, mask=whole, other=0.0)
        constant = tl.load(grad_level + row * units + unit, mask=whole, other=0.0) - average
        value = tl.load(v + row * n + at, mask=used, other=mean) - mean
        slope_v = (constant[:, None] + slope[:, None] * value) / LENGTH
        tl.store(grad_v + row * n + at, tl.where(whole[:, None], slope_v, 0.0), mask=used)


@triton.jit
def _units(place, i, units, TIMES: tl.constexpr, POOL: tl.constexpr):
    """Return the units at `place`, whether they were pooled, their samples and a mask of existing samples."""
    steps: tl.constexpr = TIMES // POOL
    if TIMES % POOL == 0:
        unit, pooled, first = place, place < units, place * POOL
        used = pooled[:, None] & (i < POOL)
    else:
        window, step = place // (steps + 1), place % (steps + 1)
        unit, first = window * steps + step, window * TIMES + step * POOL
        inside = window * steps < units
        pooled = inside & (step < steps)
        used = inside[:, None] & (i < POOL) & (step[:, None] * POOL + i < TIMES)
    return unit, pooled, first[:, None] + i, used


@triton.jit
def _unit_gradient(grad, own_draws, unit, pooled, least, gain):
    """Return the gradient of a sample from that of its pooled unit, 0 for dropped units."""
    draw = tl.load(own_draws + unit, mask=pooled, other=0)
    g = tl.load(grad + unit, mask=pooled, other=0.0)
    return tl.where(pooled & (draw.to(tl.int32) >= least), g * gain, 0.0)


@triton.jit
def _halves(x):
    """Split x into two float16 numbers with 22 bits; the second is scaled by 2048, so that it does not underflow."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)


@triton.jit
def _multiply_halves(a_high, a_low, b_high, b_low):
    rest = tl.dot(a_low, b_high, tl.dot(a_high, b_low))
    return tl.dot(a_high, b_high, rest * (1.0 / 2048.0))


@triton.jit
def sign(matrix, out, coefficients, rows, STEPS: tl.constexpr, TILE: tl.constexpr):
    """Apply polynomials a x + b x³ + c x⁵ to a symmetric matrix that stays on the chip."""
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    place = batch * rows * rows + i * rows + j
    inside = (i < rows) & (j < rows)
    x = tl.load(matrix + place, mask=inside, other=0.0)
    for step in range(STEPS):
        a = tl.load(coefficients + 3 * step)
        b = tl.load(coefficients + 3 * step + 1)
        c = tl.load(coefficients + 3 * step + 2)
        x_high, x_low = _halves(x)
        square = _multiply_halves(x_high, x_low, x_high, x_low)
        high, low = _halves(square)
        high, low = _halves(b * square + c * _multiply_halves(high, low, high, low))
        x = a * x + _multiply_halves(high, low, x_high, x_low)
    tl.store(out + place, (x + tl.trans(x)) / 2, mask=inside)


@triton.jit
def _inverse(x, SIDE: tl.constexpr):
    """Invert a positive definite matrix by Gauss-Jordan elimination."""
    i, j = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    for k in range(SIDE):
        row = tl.sum(tl.where(i == k, x, 0.0), 0)[None, :]
        column = tl.sum(tl.where(j == k, x, 0.0), 1)[:, None]
        pivot = tl.sum(tl.where(j == k, row, 0.0), 1)[:, None]
        others = tl.where(j == k, -column / pivot, x - column * row / pivot)
        x = tl.where(i == k, tl.where(j == k, 1.0 / pivot, row / pivot), others)
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
        share = tl.dot(column, inverse, input_precision="tf32x3")
        for first in range(start + BLOCK, rows, ACROSS):
            k = first + side
            factor = tl.load(matrix + d * rows + k, mask=(d < rows) & (k < rows), other=0.0)
            rest = tl.load(matrix + i * rows + k, mask=below & (k < rows), other=0.0)
            rest -= tl.dot(share, factor, input_precision="tf32x3")
            tl.store(matrix + i * rows + k, rest, mask=below & (k < rows))
        for first in range(0, width, ACROSS):
            k = first + side
            right = tl.load(vectors + d * width + k, mask=(d < rows) & (k < width), other=0.0)
            rest = tl.load(vectors + i * width + k, mask=below & (k < width), other=0.0)
            rest -= tl.dot(share, right, input_precision="tf32x3")
            tl.store(vectors + i * width + k, rest, mask=below & (k < width))
        tl.debug_barrier()
    blocks = tl.cdiv(rows, BLOCK)
    for back in range(blocks):
        start = (blocks - 1 - back) * BLOCK
        d, e = start + down, start + across
        inverse = tl.load(matrix + d * rows + e, mask=(d < rows) & (e < rows), other=0.0)
        beyond = tl.load(matrix + d * rows + j, mask=(d < rows) & (j >= start + BLOCK) & (j < rows), other=0.0)
        for first in range(0, width, ACROSS):
            k = first + side
            known = tl.load(vectors + i * width + k, mask=(i >= start + BLOCK) & (i < rows) & (k < width), other=0.0)
            remaining = tl.load(vectors + d * width + k, mask=(d < rows) & (k < width), other=0.0)
            remaining -= tl.dot(beyond, known, input_precision="tf32x3")
            solved = tl.dot(inverse, remaining, input_precision="tf32x3")
            tl.store(vectors + d * width + k, solved, mask=(d < rows) & (k < width))
        tl.debug_barrier()


@triton.jit
def accelerate(matrix, vectors, steps, rates, out, rows, width, TILE: tl.constexpr, ACROSS: tl.constexpr):
    """Iterate x ← x + m (x − previous x) + ω (vectors − matrix x) from 0 for `steps` of each system.

    Rates holds (m, ω) of every step. A program holds one matrix and ACROSS columns.
    """
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    k = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)[None, :]
    place, inside = batch * rows * width + i * width + k, (i < rows) & (k < width)
    system = tl.load(matrix + batch * rows * rows + i * rows + j, mask=(i < rows) & (j < rows), other=0.0)
    target = tl.load(vectors + place, mask=inside, other=0.0)
    x = tl.zeros((TILE, ACROSS), dtype=tl.float32)
    before = tl.zeros((TILE, ACROSS), dtype=tl.float32)
    for step in range(tl.load(steps + batch)):
        momentum, rate = tl.load(rates + 2 * step), tl.load(rates + 2 * step + 1)
        product = tl.dot(system, x, input_precision="tf32x3")
        coming = x + momentum * (x - before) + rate * (target - product)
        before = x
        x = coming
    tl.store(out + place, x, mask=inside)


@triton.jit
def sum_scaled_rows(
    table, rows, factors, linear, out, batch, channels, width, share, TILE_B: tl.constexpr, TILE: tl.constexpr
):
    """Store partial sums over b and c of table[rows[g, b], c] · f in out[s, g], with f = factors[g, b, c].

    In columns that are not linear f is squared. Shares s divide the channels of a group's rows.
    """
    group = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    once = tl.load(linear + column, mask=column < width, other=0) != 0
    b = tl.arange(0, TILE_B)[:, None]
    total = tl.zeros((TILE_B, TILE), dtype=tl.float32)
    begin = tl.program_id(2) * share
    end = tl.minimum(begin + share, batch * channels)
    for start in range(begin, end, TILE_B):
        at = start + b
        inside = at < end
        row = tl.load(rows + group * batch + at // channels, mask=inside, other=0).to(tl.int64)
        factor = tl.load(factors + group * batch * channels + at, mask=inside, other=0.0)
        place = table + (row * channels + at % channels) * width + column
        value = tl.load(place, mask=inside & (column < width), other=0.0)
        total += value * tl.where(once, factor, factor * factor)
    place = out + (tl.program_id(2) * tl.num_programs(0) + group) * width + column
    tl.store(place, tl.sum(total, 0)[None, :], mask=column < width)
