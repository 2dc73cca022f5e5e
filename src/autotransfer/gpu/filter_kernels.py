"""Triton kernels that filter signals along time, launched by functions of `gpu`. The import needs Triton.

A tile of samples is multiplied by the Toeplitz matrix of the filter, which stays on the chip for all tiles and rows.
Tiles begin at multiples of 4 samples, `lag` samples before the first tap, so that 16 bytes are read at a time. The next
tile is loaded while the current tile is multiplied.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton's interpreter cannot multiply bfloat16.
HALF = tl.constexpr(tl.float16 if triton.knobs.runtime.interpret else tl.bfloat16)


@triton.jit
def _load_tile(x, step, tiles, rows, times, r, i, BEGIN: tl.constexpr, TILE_R: tl.constexpr, TILE_T: tl.constexpr):
    """Load samples BEGIN + i of tile `step` of a signal (rows, times), 0 outside; tiles of a row follow each other."""
    row = step // tiles * TILE_R + r
    sample = step % tiles * TILE_T + BEGIN + i
    return tl.load(x + row * times + sample, mask=(row < rows) & (sample >= 0) & (sample < times), other=0.0)


@triton.jit
def correlate(
    x, w, out, rows, units, kernel, first, taps, lag, UNIT: tl.constexpr, BEGIN: tl.constexpr, FLIPPED: tl.constexpr,
    ADD: tl.constexpr, TILE_R: tl.constexpr, TILE_I: tl.constexpr, TILE_T: tl.constexpr,
):  # fmt: skip
    """Store out[n, r, t] = sum over k < taps of w[n, first + k] x[n, r, t + k + BEGIN + lag], with x = 0 outside.

    FLIPPED: w is reversed; ADD: the sum is added to out; times = units · UNIT. A program computes all rows of a filter.
    """
    n = tl.program_id(0).to(tl.int64)
    times = units * UNIT
    i, t = tl.arange(0, TILE_I), tl.arange(0, TILE_T)
    r = tl.arange(0, TILE_R)[:, None]
    tap = i[:, None] - t[None, :] - lag
    index = kernel - 1 - first - tap if FLIPPED else first + tap
    matrix = tl.load(w + n * kernel + index, mask=(tap >= 0) & (tap < taps), other=0.0)
    x += n * rows * times
    out += n * rows * times
    tiles = tl.cdiv(times, TILE_T)
    next_signal = _load_tile(x, 0, tiles, rows, times, r, i[None, :], BEGIN, TILE_R, TILE_T)
    for step in range(tl.cdiv(rows, TILE_R) * tiles):
        signal = next_signal
        next_signal = _load_tile(x, step + 1, tiles, rows, times, r, i[None, :], BEGIN, TILE_R, TILE_T)
        total = tl.dot(signal, matrix, input_precision="tf32")
        row = step // tiles * TILE_R + r
        sample = step % tiles * TILE_T + t[None, :]
        target, inside = out + row * times + sample, (row < rows) & (sample < times)
        if ADD:
            total += tl.load(target, mask=inside, other=0.0)
        tl.store(target, total, mask=inside)


@triton.jit
def _split(x):
    """Split x into two 16-bit numbers, because tensor cores accept float32 only in one memory order."""
    high = x.to(HALF)
    return high, (x - high.to(tl.float32)).to(HALF)


@triton.jit
def correlate_gradient(
    x, grad, out, rows, units, kernel, first, taps, lag, UNIT: tl.constexpr, BEGIN: tl.constexpr, TILE_R: tl.constexpr,
    TILE_I: tl.constexpr, TILE_T: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Store out[n, first + k] = sum over r, t of x[n, r, t + k + BEGIN + lag] grad[n, r, t] for k < taps.

    The products of all tiles are summed in one matrix; the gradient of a tap is a diagonal. One program per filter.
    """
    n = tl.program_id(0).to(tl.int64)
    times = units * UNIT
    i, t = tl.arange(0, TILE_I)[None, :], tl.arange(0, TILE_T)[None, :]
    r = tl.arange(0, TILE_R)[:, None]
    x += n * rows * times
    grad += n * rows * times
    tiles = tl.cdiv(times, TILE_T)
    total = tl.zeros((TILE_I, TILE_T), dtype=tl.float32)
    signal = _load_tile(x, 0, tiles, rows, times, r, i, BEGIN, TILE_R, TILE_T)
    slope = _load_tile(grad, 0, tiles, rows, times, r, t, 0, TILE_R, TILE_T)
    for step in range(tl.cdiv(rows, TILE_R) * tiles):
        signal_high, signal_low = _split(signal)
        slope_high, slope_low = _split(slope)
        signal = _load_tile(x, step + 1, tiles, rows, times, r, i, BEGIN, TILE_R, TILE_T)
        slope = _load_tile(grad, step + 1, tiles, rows, times, r, t, 0, TILE_R, TILE_T)
        transposed = tl.trans(signal_high)
        total = tl.dot(transposed, slope_high, total)
        total = tl.dot(transposed, slope_low, total)
        total = tl.dot(tl.trans(signal_low), slope_high, total)
    k = tl.arange(0, TAPS)
    diagonal = tl.gather(total, tl.minimum(t + k[:, None] + lag, TILE_I - 1), 0)
    tl.store(out + n * kernel + first + k, tl.sum(diagonal, 1), mask=k < taps)
