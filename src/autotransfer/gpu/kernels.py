"""Triton kernels for a GPU. Imported only where Triton is; the functions beside launch them.

Each has a plain torch twin, which is its oracle in the tests.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiply(
    a, b, out, which, m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column, out_batch, out_row, out_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """out[p] = a[p] @ b[which[p]], without SHARED b[p]. A program makes all m rows and TILE_N columns of one."""
    batch = tl.program_id(0).to(tl.int64)
    source = tl.load(which + batch) if SHARED else batch
    rows = tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(0, k, TILE_K):
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
    place = out + batch * out_batch + rows[:, None] * out_row + columns[None, :] * out_column
    tl.store(place, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def _elu_of(v, mean, scale, shift):
    """ELU of the normalised signal, and its slope."""
    h = (v - mean) * scale + shift
    slope = tl.exp(tl.minimum(h, 0.0))
    return tl.maximum(h, 0.0) + slope - 1.0, slope


@triton.jit
def norm_pool_forward(
    v, gamma, beta, halves, group, threshold, boost, out, squares, means, variances, features, batch, eps,
    TIMES: tl.constexpr, POOL: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr, BLOCK: tl.constexpr,
    SQUARED: tl.constexpr,
):  # fmt: skip
    """One program for a member and feature: statistics of its batch × TIMES samples, then the pooled units.

    WIDTH is the power of 2 from POOL upwards, UNITS · WIDTH = BLOCK.
    """
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    n = batch * TIMES
    lane = tl.arange(0, BLOCK)
    # One pass: sums about the first sample, so that a large offset does not cancel.
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
    source = tl.load(group + member)
    least, gain = tl.load(threshold + member), tl.load(boost + member)
    lane = tl.arange(0, UNITS)
    i = tl.arange(0, WIDTH)[None, :]
    for start in range(0, units, UNITS):
        unit = start + lane
        inside = unit < units
        first = unit // steps * TIMES + unit % steps * POOL
        used = inside[:, None] & (i < POOL)
        signal = tl.load(v + row * n + first[:, None] + i, mask=used, other=0.0)
        if SQUARED:
            tl.store(squares + row * units + unit, tl.sum(signal * signal, 1) / POOL, mask=inside)
        value, _ = _elu_of(signal, mean, scale, shift)
        pooled = tl.sum(tl.where(used, value, 0.0), 1)
        draw = tl.load(halves + (source * features + feature) * units + unit, mask=inside, other=0)
        pooled = tl.where(draw.to(tl.int32) >= least, pooled / POOL * gain, 0.0)
        tl.store(out + row * units + unit, pooled, mask=inside)


@triton.jit
def _unit_gradient(grad, draws, at, n, least, gain, TIMES: tl.constexpr, POOL: tl.constexpr):
    """What the samples `at` of a row get of their pooled units' gradient; 0 for those that dropout or pooling drops."""
    steps: tl.constexpr = TIMES // POOL
    step = at % TIMES // POOL
    inside = (at < n) & (step < steps)
    unit = at // TIMES * steps + step
    draw = tl.load(draws + unit, mask=inside, other=0)
    g = tl.load(grad + unit, mask=inside, other=0.0)
    return tl.where(inside & (draw.to(tl.int32) >= least), g * gain, 0.0)


@triton.jit
def norm_pool_backward(
    grad, grad_squares, v, gamma, beta, halves, group, threshold, boost, means, variances, grad_v, grad_gamma,
    grad_beta, features, batch, eps, TIMES: tl.constexpr, POOL: tl.constexpr, BLOCK: tl.constexpr,
    SQUARED: tl.constexpr,
):  # fmt: skip
    """The gradients of norm_pool_forward: sums over the row first, then every sample."""
    row = tl.program_id(0).to(tl.int64)
    member, feature = row // features, row % features
    steps: tl.constexpr = TIMES // POOL
    n, units = batch * TIMES, batch * steps
    lane = tl.arange(0, BLOCK)
    mean = tl.load(means + row)
    inverse = 1.0 / tl.sqrt(tl.load(variances + row) + eps)
    scale = tl.load(gamma + row) * inverse
    shift = tl.load(beta + row)
    draws = halves + (tl.load(group + member) * features + feature) * units
    least, gain = tl.load(threshold + member), tl.load(boost + member) / POOL
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    along = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + lane
        value = tl.load(v + row * n + at, mask=at < n, other=0.0)
        _, slope = _elu_of(value, mean, scale, shift)
        g = slope * _unit_gradient(grad + row * units, draws, at, n, least, gain, TIMES, POOL)
        total += g
        along += g * (value - mean)
    sum_g, sum_along = tl.sum(total), tl.sum(along)
    tl.store(grad_beta + row, sum_g)
    tl.store(grad_gamma + row, sum_along * inverse)
    level, pull = scale * sum_g / n, scale * inverse * inverse * sum_along / n
    for start in range(0, n, BLOCK):
        at = start + lane
        value = tl.load(v + row * n + at, mask=at < n, other=0.0)
        _, slope = _elu_of(value, mean, scale, shift)
        g = slope * _unit_gradient(grad + row * units, draws, at, n, least, gain, TIMES, POOL)
        slope_v = scale * g - level - pull * (value - mean)
        if SQUARED:
            step = at % TIMES // POOL
            inside = (at < n) & (step < steps)
            unit = row * units + at // TIMES * steps + step
            slope_v += 2.0 / POOL * value * tl.load(grad_squares + unit, mask=inside, other=0.0)
        tl.store(grad_v + row * n + at, slope_v, mask=at < n)


@triton.jit
def correlate(
    x, w, out, rows, times, kernel, left, FLIPPED: tl.constexpr, TILE_R: tl.constexpr, TILE_I: tl.constexpr,
    TILE_T: tl.constexpr,
):  # fmt: skip
    """out[n, r, t] = sum over k of w[n, k] x[n, r, t + k - left], x being 0 outside; FLIPPED: w from its end.

    A tile of samples times a tile of the filter's Toeplitz matrix, which is never stored.
    """
    n = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * TILE_R + tl.arange(0, TILE_R)[:, None]
    begin = tl.program_id(2) * TILE_T
    t = tl.arange(0, TILE_T)[None, :]
    total = tl.zeros((TILE_R, TILE_T), dtype=tl.float32)
    for start in range(0, TILE_T + kernel - 1, TILE_I):
        i = start + tl.arange(0, TILE_I)
        source = begin - left + i[None, :]
        signal = tl.load(
            x + (n * rows + row) * times + source, mask=(row < rows) & (source >= 0) & (source < times), other=0.0
        )
        tap = i[:, None] - t
        known = (tap >= 0) & (tap < kernel)
        place = kernel - 1 - tap if FLIPPED else tap
        total += tl.dot(signal, tl.load(w + n * kernel + place, mask=known, other=0.0), input_precision="tf32")
    target = begin + t
    tl.store(out + (n * rows + row) * times + target, total, mask=(row < rows) & (target < times))


@triton.jit
def correlate_products(
    x, grad, out, rows, times, height, left, TILE_R: tl.constexpr, TILE_I: tl.constexpr, TILE_T: tl.constexpr
):
    """out[n, b, i, t] = sum over r of x[n, r, b·TILE_T - left + i] grad[n, r, b·TILE_T + t], for block b of times."""
    n = tl.program_id(0).to(tl.int64)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    i = tl.program_id(2) * TILE_I + tl.arange(0, TILE_I)[:, None]
    t = tl.arange(0, TILE_T)[None, :]
    source, target = block * TILE_T - left + i, block * TILE_T + t
    total = tl.zeros((TILE_I, TILE_T), dtype=tl.float32)
    for start in range(0, rows, TILE_R):
        row = start + tl.arange(0, TILE_R)
        # (TILE_I, TILE_R) and (TILE_R, TILE_T)
        signal = tl.load(
            x + (n * rows + row[None, :]) * times + source,
            mask=(row[None, :] < rows) & (source >= 0) & (source < times), other=0.0,
        )  # fmt: skip
        slope = tl.load(
            grad + (n * rows + row[:, None]) * times + target, mask=(row[:, None] < rows) & (target < times), other=0.0
        )
        total += tl.dot(signal, slope, input_precision="tf32")
    tl.store(out + ((n * blocks + block) * height + i) * TILE_T + t, total, mask=i < height)


@triton.jit
def _halves(x):
    """x to 22 bits as two float16, the second 2048 times what it stands for: small numbers keep their bits."""
    high = x.to(tl.float16)
    return high, ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)


@triton.jit
def _multiply_halves(a_high, a_low, b_high, b_low):
    rest = tl.dot(a_low, b_high, tl.dot(a_high, b_low))
    return tl.dot(a_high, b_high, rest * (1.0 / 2048.0))


@triton.jit
def sign(matrix, out, coefficients, rows, STEPS: tl.constexpr, TILE: tl.constexpr):
    """Polynomials a x + b x³ + c x⁵ of a symmetric matrix, one after the other, without leaving the chip."""
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
def toeplitz(w, out, rows, times, kernel, offset, BLOCK_I: tl.constexpr, BLOCK_T: tl.constexpr):
    """out[n, i, t] = w[n, i - t + offset], 0 outside the filter."""
    n = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)[:, None]
    for start in range(0, times, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)[None, :]
        tap = i - t + offset
        value = tl.load(w + n * kernel + tap, mask=(tap >= 0) & (tap < kernel), other=0.0)
        tl.store(out + (n * rows + i) * times + t, value, mask=(i < rows) & (t < times))


@triton.jit
def sum_diagonals(full, out, rows, times, kernel, offset, BLOCK_K: tl.constexpr, BLOCK_T: tl.constexpr):
    """out[n, k] = sum over t of full[n, t + k - offset, t], over what exists."""
    n = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]
    total = tl.zeros((BLOCK_K, BLOCK_T), dtype=tl.float32)
    for start in range(0, times, BLOCK_T):
        t = start + tl.arange(0, BLOCK_T)[None, :]
        i = t + k - offset
        total += tl.load(full + (n * rows + i) * times + t, mask=(i >= 0) & (i < rows) & (t < times), other=0.0)
    place = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    tl.store(out + n * kernel + place, tl.sum(total, 1), mask=place < kernel)
