"""Elementwise Triton kernels, launched by `elementwise`. The import needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _mix(h):
    """Compute randomness.mix of unsigned words."""
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    return h ^ (h >> 16)


@triton.jit
def fold_in(keys, values, out, n, number, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute randomness.fold_in.

    STRIDE: 1 if every key has its own value; 0 if all keys share one value; -1 if the value is `number`
    """
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + index, mask=index < n, other=0).to(tl.uint32, bitcast=True)
    if STRIDE < 0:
        value = tl.full((BLOCK,), number, tl.int32)
    else:
        value = tl.load(values + index * STRIDE, mask=index < n, other=0).to(tl.int32)
    value = value.to(tl.uint32, bitcast=True)
    tl.store(out + index, _mix(key ^ _mix(value + 0x3C6EF372)).to(tl.int32, bitcast=True), mask=index < n)


@triton.jit
def bits(keys, out, n, BLOCK: tl.constexpr):
    """Store word i of key g in out[g, i]."""
    key = tl.load(keys + tl.program_id(0)).to(tl.uint32, bitcast=True)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    counter = _mix((index + 1).to(tl.uint32) * 0x9E3779B9)
    target = out + tl.program_id(0).to(tl.int64) * n + index
    tl.store(target, _mix(key ^ counter).to(tl.int32, bitcast=True), mask=index < n)


@triton.jit
def adamw(
    values, first, second, steps, grads, lr, weight_decay, active, n, LOG_1: tl.constexpr, LOG_2: tl.constexpr,
    BETA_1: tl.constexpr, BETA_2: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute training.optimizer.update for active members."""
    member = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (index < n) & (tl.load(active + member) != 0)
    index += member * n
    step = tl.maximum(tl.load(steps + member), 1.0)
    # float64, because powers of .999 over many steps are inaccurate in float32.
    first_bias = (1.0 - tl.exp(step * LOG_1)).to(tl.float32)
    second_bias = tl.sqrt(1.0 - tl.exp(step * LOG_2)).to(tl.float32)
    rate = tl.load(lr + member)
    g = tl.load(grads + index, mask=inside, other=0.0)
    m = tl.load(first + index, mask=inside, other=0.0)
    m += (1.0 - BETA_1) * (g - m)
    s = tl.load(second + index, mask=inside, other=0.0)
    s += (1.0 - BETA_2) * (g * g - s)
    value = tl.load(values + index, mask=inside, other=0.0) * (1.0 - rate * tl.load(weight_decay + member))
    value -= rate / first_bias * m / (tl.sqrt(s) / second_bias + EPS)
    tl.store(first + index, m, mask=inside)
    tl.store(second + index, s, mask=inside)
    tl.store(values + index, value, mask=inside)
