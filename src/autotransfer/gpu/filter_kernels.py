"""Triton kernels that filter signals along time. Imported only where Triton is; the functions of `gpu` launch them.

A tile of samples is multiplied by the filter's Toeplitz matrix, which is the same for every tile of every row and never
leaves the chip. Tiles begin at multiples of 4 samples, so that memory is read 16 bytes at a time; `lag` is how much
earlier than the filter a tile begins. The next tile is on its way while the present one is worked on.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton's interpreter cannot multiply bfloat16.
HALF = tl.constexpr(tl.float16 if triton.knobs.runtime.interpret else tl.bfloat16)


@triton.jit
def _tile(x, step, tiles, rows, times, r, i, BEGIN: tl.constexpr, TILE_R: tl.constexpr, TILE_T: tl.constexpr):
    """Samples BEGIN + i of tile `step` of a signal (rows, times), 0 outside. The tiles of TILE_R rows come first."""
    row = step // tiles * TILE_R + r
    sample = step % tiles * TILE_T + BEGIN + i
    return tl.load(x + row * times + sample, mask=(row < rows) & (sample >= 0) & (sample < times), other=0.0)


@triton.jit
def correlate(
    x, w, out, rows, units, kernel, first, taps, lag, UNIT: tl.constexpr, BEGIN: tl.constexpr, FLIPPED: tl.constexpr,
    ADD: tl.constexpr, TILE_R: tl.constexpr, TILE_I: tl.constexpr, TILE_T: tl.constexpr,
):  # fmt: skip
    """out[n, r, t] = sum over k < taps of w[n, first + k] x[n, r, t + k + BEGIN + lag], x being 0 outside.

    FLIPPED: w from its end; ADD: to what is in out; times = units · UNIT. One program for a filter and all its rows.
    """
    n = tl.program_id(0).to(tl.int64)
    times = units * UNIT
    i, t = tl.arange(0, TILE_I), tl.arange(0, TILE_T)
    r = tl.arange(0, TILE_R)[:, None]
    tap = i[:, None] - t[None, :] - lag
    place = kernel - 1 - first - tap if FLIPPED else first + tap
    matrix = tl.load(w + n * kernel + place, mask=(tap >= 0) & (tap < taps), other=0.0)
    x += n * rows * times
    out += n * rows * times
    tiles = tl.cdiv(times, TILE_T)
    coming = _tile(x, 0, tiles, rows, times, r, i[None, :], BEGIN, TILE_R, TILE_T)
    for step in range(tl.cdiv(rows, TILE_R) * tiles):
        signal = coming
        coming = _tile(x, step + 1, tiles, rows, times, r, i[None, :], BEGIN, TILE_R, TILE_T)
        total = tl.dot(signal, matrix, input_precision="tf32")
        row = step // tiles * TILE_R + r
        sample = step % tiles * TILE_T + t[None, :]
        target, inside = out + row * times + sample, (row < rows) & (sample < times)
        if ADD:
            total += tl.load(target, mask=inside, other=0.0)
        tl.store(target, total, mask=inside)


@triton.jit
def _halves(x):
    """x to 16 bits as two numbers of half the width, which tensor cores, unlike float32, take in any order."""
    high = x.to(HALF)
    return high, (x - high.to(tl.float32)).to(HALF)


@triton.jit
def correlate_gradient(
    x, grad, out, rows, units, kernel, first, taps, lag, UNIT: tl.constexpr, BEGIN: tl.constexpr, TILE_R: tl.constexpr,
    TILE_I: tl.constexpr, TILE_T: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """out[n, first + k] = sum over r, t of x[n, r, t + k + BEGIN + lag] grad[n, r, t], for k < taps.

    Products of all tiles add up in one matrix; a tap's gradient is one of its diagonals. One program for a filter.
    """
    n = tl.program_id(0).to(tl.int64)
    times = units * UNIT
    i, t = tl.arange(0, TILE_I)[None, :], tl.arange(0, TILE_T)[None, :]
    r = tl.arange(0, TILE_R)[:, None]
    x += n * rows * times
    grad += n * rows * times
    tiles = tl.cdiv(times, TILE_T)
    total = tl.zeros((TILE_I, TILE_T), dtype=tl.float32)
    signal = _tile(x, 0, tiles, rows, times, r, i, BEGIN, TILE_R, TILE_T)
    slope = _tile(grad, 0, tiles, rows, times, r, t, 0, TILE_R, TILE_T)
    for step in range(tl.cdiv(rows, TILE_R) * tiles):
        signal_high, signal_low = _halves(signal)
        slope_high, slope_low = _halves(slope)
        signal = _tile(x, step + 1, tiles, rows, times, r, i, BEGIN, TILE_R, TILE_T)
        slope = _tile(grad, step + 1, tiles, rows, times, r, t, 0, TILE_R, TILE_T)
        turned = tl.trans(signal_high)
        total = tl.dot(turned, slope_high, total)
        total = tl.dot(turned, slope_low, total)
        total = tl.dot(tl.trans(signal_low), slope_high, total)
    k = tl.arange(0, TAPS)
    diagonal = tl.gather(total, tl.minimum(t + k[:, None] + lag, TILE_I - 1), 0)
    tl.store(out + n * kernel + first + k, tl.sum(diagonal, 1), mask=k < taps)
