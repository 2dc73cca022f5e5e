"""Functions for GPUs, each of which launches one Triton kernel if `is_available()` returns True.

torch operations read and write the signals of a training step a dozen times, but kernels do so only once or twice.
Products of thin matrices are twice as fast as in libraries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from .loading import CONTIGUOUS, STRIDED, Argument, load_kernels

MAX_TILE_SIDE = 64  # largest side of a matrix that fits into one tile
PROGRAMS = 4096  # number of programs of one warp that keep a GPU busy
MAX_LAUNCH_TAPS = 64  # largest number of filter taps per launch
MAX_SOLVE_ROWS = 128  # number of rows of the largest matrix for one program


@dataclass(frozen=True, eq=False)
class DropoutDraws:
    """Random draws for dropout: unit i of member p is dropped if draws[group[p], i] < threshold[p]."""

    draws: Tensor  # (G, n) int16, uniform
    group: Tensor | None  # (P,); None: G = P
    drop: Tensor  # (P,) probabilities

    @cached_property
    def threshold(self) -> Tensor:
        """Return thresholds (P,) int32."""
        return (self.drop * 65536.0).round().to(torch.int32) - 32768

    @cached_property
    def keep_scale(self) -> Tensor:
        """Return the factors (P,) by which kept units are multiplied."""
        return 1.0 / (1.0 - self.drop)


_kernels = partial(load_kernels, "encoder_kernels")
_enabled: ContextVar[bool] = ContextVar("kernels enabled", default=False)


@contextmanager
def use_kernels(*, enabled: bool) -> Iterator[None]:
    """Enable kernels in a context and thread. The first launch compiles a kernel, which may take longer than a fit."""
    token = _enabled.set(enabled)
    try:
        # Backward passes must run in this thread, because the context variable is not set in torch's threads.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _enabled.reset(token)


def is_available(signal: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Return whether kernels are enabled and can process a tensor."""
    return (
        _enabled.get()
        and signal.device.type == "cuda"
        and signal.dtype == dtype
        and _kernels() is not None
        and _has_fast_tensor_cores(signal.device)
    )


@cache
def _has_fast_tensor_cores(device: torch.device) -> bool:
    """Return whether the tensor cores of a device support TF32 and bfloat16."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def product(a: Tensor, b: Tensor, group: Tensor | None = None) -> Tensor:
    """Multiply thin matrices (P, m, k) × (P, k, n) in TF32; group: (P,) index of a member's matrix in b (G, k, n)."""
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    if m > MAX_TILE_SIDE or (k > MAX_TILE_SIDE and n > MAX_TILE_SIDE):
        return torch.bmm(a, b if group is None else b[group])
    has_short_sums = k <= MAX_TILE_SIDE  # if so, a tile covers many columns; otherwise a tile sums over many terms
    tile_n, tile_k = (128, tile(k)) if has_short_sums else (tile(n), 64)
    n_parts, length = (1, k) if has_short_sums else _split_sum(len(a), k, tile_k)
    out = a.new_empty(n_parts, len(a), m, n)
    _kernels().multiply[(len(a), -(-n // tile_n), n_parts)](
        Argument(a, (len(a), m, k), layout=STRIDED),
        Argument(b, (len(a if group is None else b), k, n), layout=STRIDED), out,
        out if group is None else Argument(group, (len(a),), torch.int64), m, n, k, length, *a.stride(), *b.stride(),
        TILE_M=tile(m), TILE_N=tile_n, TILE_K=tile_k, SHARED=group is not None, num_warps=4 if has_short_sums else 1,
        num_stages=3,
    )  # fmt: skip
    return out[0] if n_parts == 1 else out.sum(0)


def _split_sum(members: int, k: int, multiple: int) -> tuple[int, int]:
    """Return a number of partial sums that keeps the GPU busy, and the terms per sum, divisible by `multiple`."""
    max_parts = max(1, PROGRAMS // members)
    length = -(-k // (max_parts * multiple)) * multiple
    return -(-k // length), length


def sum_scaled_rows(table: Tensor, rows: Tensor, factors: Tensor, linear: Tensor) -> Tensor:
    """Sum rows (G, B) of a table (N, C, n), times factors (G, B, C), over windows and channels: (G, n).

    Columns in which `linear` (n,) is False are multiplied by squared factors.
    """
    (groups, batch), (channels, width) = rows.shape, table.shape[1:]
    tiles, tile_b = -(-width // 256), 8
    n_parts = max(1, min(PROGRAMS // (8 * groups * tiles), batch * channels // tile_b))
    length = -(-batch * channels // (n_parts * tile_b)) * tile_b
    out = table.new_empty(n_parts, groups, width)
    _kernels().sum_scaled_rows[(groups, tiles, n_parts)](
        Argument(table, (len(table), channels, width)), Argument(rows, (groups, batch), torch.int64),
        Argument(factors, (groups, batch, channels)), Argument(linear, (width,), torch.bool), out, batch, channels,
        width, length, TILE_B=tile_b, TILE=256, num_warps=4,
    )  # fmt: skip
    return out.sum(0)


def _round_to_power(side: int) -> int:
    """Return the smallest power of 2 that is at least `side`."""
    return 1 << (side - 1).bit_length()


def tile(side: int) -> int:
    """Return the side of a tile, at least 16 for tensor cores."""
    return max(16, _round_to_power(side))


def norm_pool_forward(
    v: Tensor,
    gamma: Tensor,
    beta: Tensor,
    dropout: DropoutDraws,
    times: int,
    pool: int,
    eps: float,
    squared: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Apply batch normalization, ELU, average pooling and dropout to v (P, F, B·T).

    Return units (P, F, B, T // pool), mean squares of v (None unless `squared`), and mean and variance of v (P, F).
    """
    members, features, n = v.shape
    batch = n // times
    out = v.new_empty(members, features, batch, times // pool)
    squares = torch.empty_like(out) if squared else None
    mean, variance = v.new_empty(members, features), v.new_empty(members, features)
    _kernels().norm_pool_forward[(members * features,)](
        Argument(v, (members, features, batch * times)), *_per_feature(v, gamma, beta),
        *_dropout_arguments(dropout, out), out, out if squares is None else squares, mean, variance, features, batch,
        eps, SQUARED=squared, **_norm_pool_constants(n, times, pool, dropout),
    )  # fmt: skip
    return out, squares, mean, variance


def norm_pool_backward(
    grad: Tensor, grad_squares: Tensor | None, v: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor,
    dropout: DropoutDraws, times: int, pool: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of v, gamma and beta in `norm_pool_forward`."""
    members, features, n = v.shape
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    grad_gamma, grad_beta = torch.empty_like(mean), torch.empty_like(mean)
    batch = n // times
    units = (members, features, batch, times // pool)
    _kernels().norm_pool_backward[(members * features,)](
        Argument(grad, units), grad_v if grad_squares is None else Argument(grad_squares, units),
        Argument(v, (members, features, batch * times)), *_per_feature(v, gamma, beta),
        *_dropout_arguments(dropout, grad), *_per_feature(v, mean, variance), grad_v, grad_gamma, grad_beta, features,
        batch, eps, SQUARED=grad_squares is not None, **_norm_pool_constants(n, times, pool, dropout),
    )  # fmt: skip
    return grad_v, grad_gamma, grad_beta


def elu_pool(
    v: Tensor, scale: Tensor, shift: Tensor, times: int, pool: int, squared: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Average ELU(scale · v + shift) over `pool` neighbors, without gradient: v (P, F, B·T) -> (P, F, B, T // pool).

    scale, shift: (P, F). The second result is the mean squares of v, None unless `squared`.
    """
    members, features, n = v.shape
    out = v.new_empty(members, features, n // times, times // pool)
    squares = torch.empty_like(out) if squared else None
    block, width = 1024, _round_to_power(pool)
    units = n // times * (times // pool)
    _kernels().elu_pool[(members * features, -(-units * width // block))](
        Argument(v, (members, features, n // times * times)), *_per_feature(v, scale, shift), out,
        out if squares is None else squares, n // times, TIMES=times, POOL=pool, WIDTH=width, BLOCK=block,
        SQUARED=squared, num_warps=4,
    )  # fmt: skip
    return out, squares


def segments_forward(v: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and mean square (N, B, S) of centered segments of v (N, B, T), and means (N,) of the signals v."""
    rows, batch, times = v.shape
    level = v.new_empty(rows, batch, times // length)
    square, mean = torch.empty_like(level), v.new_empty(rows)
    _kernels().segments_forward[(rows,)](
        Argument(v, v.shape), level, square, mean, batch, TIMES=times, LENGTH=length,
        **_row_constants(batch * times, length),
    )  # fmt: skip
    return level, square, mean


def segments_backward(
    grad_level: Tensor, grad_square: Tensor, v: Tensor, level: Tensor, mean: Tensor, length: int
) -> Tensor:
    """Return the gradient of v in `segments_forward`."""
    rows, batch, times = v.shape
    segments = rows, batch, times // length
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    _kernels().segments_backward[(rows,)](
        Argument(grad_level, segments), Argument(grad_square, segments), Argument(v, v.shape),
        Argument(level, segments), Argument(mean, (rows,)), grad_v, batch, TIMES=times, LENGTH=length,
        **_row_constants(batch * times, length),
    )  # fmt: skip
    return grad_v


def _per_feature(v: Tensor, *tensors: Tensor) -> Iterator[Argument]:
    """Return arguments of shape (P, F) for a signal (P, F, n)."""
    return (Argument(tensor, v.shape[:2]) for tensor in tensors)


def _dropout_arguments(dropout: DropoutDraws, units: Tensor) -> tuple[Argument, Argument | Tensor, Argument]:
    """Return the arguments of a kernel that determine which units (P, F, B, T // pool) are dropped."""
    members, *unit_shape = units.shape
    draws, group = dropout.draws, dropout.group
    return (
        Argument(draws, (members if group is None else len(draws), math.prod(unit_shape)), torch.int16),
        units if group is None else Argument(group, (members,), torch.int64),
        Argument(dropout.drop, (members,)),
    )


def _norm_pool_constants(n: int, times: int, pool: int, dropout: DropoutDraws) -> dict[str, int]:
    return {"TIMES": times, "POOL": pool, "SHARED": dropout.group is not None} | _row_constants(n, pool)


def _row_constants(n: int, width: int) -> dict[str, int]:
    """Return the constants of a program that reads a row of n samples twice, in units of `width` samples."""
    # Long rows have more threads and larger blocks, so that the row is still in the cache when it is read again.
    warps = min(max(_round_to_power(n // 512), 4), 16)
    block = (512 if n >= 16384 else 256) * warps
    return {"WIDTH": _round_to_power(width), "BLOCK": max(block, _round_to_power(width)), "num_warps": warps}


def correlate(x: Tensor, w: Tensor, left: int, *, flipped: bool = False) -> Tensor:
    """Filter x (N, R, T) by w (N, K), out[t] = Σ_k w[k] x[t + k - left]; flipped: w is reversed."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in _split_filter(x, w.shape[1], left):
        load_kernels("filter_kernels").correlate[(len(x),)](
            Argument(x, x.shape), Argument(w, (len(x), w.shape[1])), out, *part.sizes, **part.constants,
            FLIPPED=flipped, ADD=part.first > 0, TILE_R=64, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


def correlate_gradient(x: Tensor, grad: Tensor, kernel: int, left: int) -> Tensor:
    """Return the gradient of the filters (N, K), Σ_rt x[r, t + k - left] grad[r, t]."""
    x, grad, out = x.contiguous(), grad.contiguous(), x.new_empty(len(x), kernel)
    for part in _split_filter(x, kernel, left):
        load_kernels("filter_kernels").correlate_gradient[(len(x),)](
            Argument(x, x.shape), Argument(grad, x.shape), out, *part.sizes, **part.constants, TAPS=tile(part.taps),
            TILE_R=16, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


class _FilterPart(NamedTuple):
    """Range of taps of a filter, and the arguments of the kernel."""

    first: int
    taps: int
    sizes: tuple[int, ...]  # rows, times in units, length of the whole filter, first, taps, lag
    constants: dict[str, int]


def _split_filter(x: Tensor, kernel: int, left: int) -> Iterator[_FilterPart]:
    """Split filters into parts of few taps; tiles of the signal are twice as long as tiles of the output."""
    _, rows, times = x.shape
    unit = math.gcd(times, 4)
    first = 0
    while first < kernel:
        begin = (first - left) // 4 * 4
        lag = first - left - begin
        taps = min(kernel - first, MAX_LAUNCH_TAPS, MAX_LAUNCH_TAPS + 1 - lag)
        tile_t = MAX_LAUNCH_TAPS // (2 if taps - 1 + lag <= MAX_LAUNCH_TAPS // 2 else 1)
        sizes = rows, times // unit, kernel, first, taps, lag
        yield _FilterPart(first, taps, sizes, {"UNIT": unit, "BEGIN": begin, "TILE_I": 2 * tile_t, "TILE_T": tile_t})
        first += taps


def sign(matrix: Tensor, steps: Sequence[tuple[float, float, float]]) -> Tensor:
    """Apply a x + b x³ + c x⁵ for each (a, b, c) in steps to symmetric x (P, N, N), N ≤ 128, entries below 1000."""
    out = torch.empty_like(matrix, memory_format=torch.contiguous_format)
    coefficients = _coefficients(tuple(steps), matrix.device)
    rows = matrix.shape[-1]
    _kernels().sign[(len(matrix),)](
        Argument(matrix, (len(matrix), rows, rows)), out, coefficients, rows, STEPS=len(steps), TILE=tile(rows),
        num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


def solve_(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Return matrix⁻¹ vectors (P, N, D), overwriting positive definite matrices (P, N, N), N ≤ MAX_SOLVE_ROWS."""
    out = vectors.clone(memory_format=torch.contiguous_format)
    members, rows, width = vectors.shape
    _kernels().solve[(members,)](
        Argument(matrix, (members, rows, rows), layout=CONTIGUOUS), Argument(out, out.shape), rows, width,
        TILE=tile(rows), BLOCK=16, ACROSS=min(32, tile(width)), num_warps=4, num_stages=1,
    )  # fmt: skip
    return out


def accelerate(matrix: Tensor, vectors: Tensor, steps: Tensor, rates: Sequence[tuple[float, float]]) -> Tensor:
    """Iterate x ← x + m (x − previous x) + ω (vectors − matrix x) from 0 and return x (P, N, D).

    matrix: symmetric (P, N, N), N ≤ MAX_SOLVE_ROWS; steps: (P,) numbers of iterations; rates: (m, ω) of each iteration
    """
    out = torch.empty_like(vectors, memory_format=torch.contiguous_format)
    (members, rows, width), across = vectors.shape, min(64, tile(vectors.shape[-1]))
    _kernels().accelerate[(members, -(-width // across))](
        Argument(matrix, (members, rows, rows)), Argument(vectors, vectors.shape),
        Argument(steps.to(torch.int32), (members,), torch.int32), _coefficients(tuple(rates), matrix.device), out, rows,
        width, TILE=tile(rows), ACROSS=across, num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


@cache
def _coefficients(steps: tuple[tuple[float, ...], ...], device: torch.device) -> Tensor:
    """Return coefficients on the device, cached because a captured CUDA graph cannot copy from the host."""
    return torch.tensor(steps, dtype=torch.float32, device=device)
