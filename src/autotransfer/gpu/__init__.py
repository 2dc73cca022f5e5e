"""Functions that run as one Triton kernel each on a GPU; `is_available()` tells whether they can.

Operations of torch move the signals of a training step through memory a dozen times; the kernels read and write each
signal once or twice. Products of thin matrices are twice as fast as in libraries.
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

MAX_TILE_SIDE = 64  # side of a matrix that fits into one tile
PROGRAMS = 4096  # programs of one warp that keep a GPU busy
TAPS = 64  # taps of a filter per launch
MAX_SOLVE_ROWS = 128  # rows of a matrix that one program holds


@dataclass(frozen=True, eq=False)
class DropoutDraws:
    """Random draws for dropout: unit i of member p is dropped if draws[group[p], i] is below the member's threshold."""

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
    """Enable kernels in a context and thread. The first launch compiles them, which takes longer than a short fit."""
    token = _enabled.set(enabled)
    try:
        # Backward passes must run in this thread, because the context variable is not set in torch's threads.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _enabled.reset(token)


def is_available(signal: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether kernels are enabled and there are kernels for a tensor."""
    return (
        _enabled.get()
        and signal.device.type == "cuda"
        and signal.dtype == dtype
        and _kernels() is not None
        and _modern(signal.device)
    )


@cache
def _modern(device: torch.device) -> bool:
    """Tell whether the tensor cores of a device support TF32 and bfloat16."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def product(a: Tensor, b: Tensor, group: Tensor | None = None) -> Tensor:
    """Multiply thin matrices (P, m, k) × (P, k, n) in TF32; group: (P,) index of a member's matrix in b (G, k, n)."""
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    if m > MAX_TILE_SIDE or (k > MAX_TILE_SIDE and n > MAX_TILE_SIDE):
        return torch.bmm(a, b if group is None else b[group])
    wide = k <= MAX_TILE_SIDE  # tiles over many columns, otherwise one tile that sums over k
    tile_n, tile_k = (128, tile(k)) if wide else (tile(n), 64)
    shares, share = (1, k) if wide else _shares(len(a), k, tile_k)
    out = a.new_empty(shares, len(a), m, n)
    _kernels().multiply[(len(a), -(-n // tile_n), shares)](
        Argument(a, (len(a), m, k), layout=STRIDED),
        Argument(b, (len(a if group is None else b), k, n), layout=STRIDED), out,
        out if group is None else Argument(group, (len(a),), torch.int64), m, n, k, share, *a.stride(), *b.stride(),
        TILE_M=tile(m), TILE_N=tile_n, TILE_K=tile_k, SHARED=group is not None, num_warps=4 if wide else 1,
        num_stages=3,
    )  # fmt: skip
    return out[0] if shares == 1 else out.sum(0)


def _shares(members: int, k: int, least: int) -> tuple[int, int]:
    """Return the number of partial sums that keep the device busy and their length, a multiple of `least`."""
    most = max(1, PROGRAMS // members)
    share = -(-k // (most * least)) * least
    return -(-k // share), share


def sum_scaled_rows(table: Tensor, rows: Tensor, factors: Tensor, linear: Tensor) -> Tensor:
    """Sum rows (G, B) of a table (N, C, n) over windows and channels, times factors (G, B, C): (G, n).

    Columns of the table in which `linear` (n,) is False are multiplied by the squared factors.
    """
    (groups, batch), (channels, width) = rows.shape, table.shape[1:]
    tiles, least = -(-width // 256), 8
    shares = max(1, min(PROGRAMS // (8 * groups * tiles), batch * channels // least))
    share = -(-batch * channels // (shares * least)) * least
    out = table.new_empty(shares, groups, width)
    _kernels().sum_scaled_rows[(groups, tiles, shares)](
        Argument(table, (len(table), channels, width)), Argument(rows, (groups, batch), torch.int64),
        Argument(factors, (groups, batch, channels)), Argument(linear, (width,), torch.bool), out, batch, channels,
        width, share, TILE_B=least, TILE=256, num_warps=4,
    )  # fmt: skip
    return out.sum(0)


def _power(side: int) -> int:
    """Return the smallest power of 2 that is at least `side`."""
    return 1 << (side - 1).bit_length()


def tile(side: int) -> int:
    """Return the side of a tile, at least 16 for tensor cores."""
    return max(16, _power(side))


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

    Return units (P, F, B, T // pool), mean squares of v or None unless `squared`, mean and variance (P, F).
    """
    members, features, n = v.shape
    batch = n // times
    out = v.new_empty(members, features, batch, times // pool)
    squares = torch.empty_like(out) if squared else None
    mean, variance = v.new_empty(members, features), v.new_empty(members, features)
    _kernels().norm_pool_forward[(members * features,)](
        Argument(v, (members, features, batch * times)), *_per_feature(v, gamma, beta),
        *_dropout_arguments(dropout, out), out, out if squares is None else squares, mean, variance, features, batch,
        eps, SQUARED=squared, **_by_row(n, times, pool, dropout),
    )  # fmt: skip
    return out, squares, mean, variance


def norm_pool_backward(
    grad: Tensor, grad_squares: Tensor | None, v: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor,
    dropout: DropoutDraws, times: int, pool: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of v, gamma and beta."""
    members, features, n = v.shape
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    grad_gamma, grad_beta = torch.empty_like(mean), torch.empty_like(mean)
    batch = n // times
    units = (members, features, batch, times // pool)
    _kernels().norm_pool_backward[(members * features,)](
        Argument(grad, units), grad_v if grad_squares is None else Argument(grad_squares, units),
        Argument(v, (members, features, batch * times)), *_per_feature(v, gamma, beta),
        *_dropout_arguments(dropout, grad), *_per_feature(v, mean, variance), grad_v, grad_gamma, grad_beta, features,
        batch, eps, SQUARED=grad_squares is not None, **_by_row(n, times, pool, dropout),
    )  # fmt: skip
    return grad_v, grad_gamma, grad_beta


def elu_pool(
    v: Tensor, scale: Tensor, shift: Tensor, times: int, pool: int, squared: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Average ELU(scale · v + shift) over `pool` neighbors, without gradient: v (P, F, B·T) -> (P, F, B, T // pool).

    scale, shift: (P, F). Also return the mean squares of v, None unless `squared`.
    """
    members, features, n = v.shape
    out = v.new_empty(members, features, n // times, times // pool)
    squares = torch.empty_like(out) if squared else None
    block, width = 1024, _power(pool)
    units = n // times * (times // pool)
    _kernels().elu_pool[(members * features, -(-units * width // block))](
        Argument(v, (members, features, n // times * times)), *_per_feature(v, scale, shift), out,
        out if squares is None else squares, n // times, TIMES=times, POOL=pool, WIDTH=width, BLOCK=block,
        SQUARED=squared, num_warps=4,
    )  # fmt: skip
    return out, squares


def segments_forward(v: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and mean square (N, B, S) of the segments of centered signals v (N, B, T), and their means (N,)."""
    rows, batch, times = v.shape
    level = v.new_empty(rows, batch, times // length)
    square, mean = torch.empty_like(level), v.new_empty(rows)
    _kernels().segments_forward[(rows,)](
        Argument(v, v.shape), level, square, mean, batch, TIMES=times, LENGTH=length, **_in_units(batch * times, length)
    )
    return level, square, mean


def segments_backward(
    grad_level: Tensor, grad_square: Tensor, v: Tensor, level: Tensor, mean: Tensor, length: int
) -> Tensor:
    """Return the gradient of v."""
    rows, batch, times = v.shape
    segments = rows, batch, times // length
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    _kernels().segments_backward[(rows,)](
        Argument(grad_level, segments), Argument(grad_square, segments), Argument(v, v.shape),
        Argument(level, segments), Argument(mean, (rows,)), grad_v, batch, TIMES=times, LENGTH=length,
        **_in_units(batch * times, length),
    )  # fmt: skip
    return grad_v


def _per_feature(v: Tensor, *numbers: Tensor) -> Iterator[Argument]:
    """Return arguments (P, F) of members and features of a signal (P, F, n)."""
    return (Argument(number, v.shape[:2]) for number in numbers)


def _dropout_arguments(dropout: DropoutDraws, units: Tensor) -> tuple[Argument, Argument | Tensor, Argument]:
    """Return the arguments of a kernel that determine which units (P, F, B, T // pool) are dropped."""
    members, *each = units.shape
    draws, group = dropout.draws, dropout.group
    return (
        Argument(draws, (members if group is None else len(draws), math.prod(each)), torch.int16),
        units if group is None else Argument(group, (members,), torch.int64),
        Argument(dropout.drop, (members,)),
    )


def _by_row(n: int, times: int, pool: int, dropout: DropoutDraws) -> dict[str, int]:
    return {"TIMES": times, "POOL": pool, "SHARED": dropout.group is not None} | _in_units(n, pool)


def _in_units(n: int, width: int) -> dict[str, int]:
    """Return the constants of a program that reads a row of n samples twice in units of `width`."""
    # Long rows get more threads and larger blocks, so that the second pass finds them in the cache.
    warps = min(max(_power(n // 512), 4), 16)
    block = (512 if n >= 16384 else 256) * warps
    return {"WIDTH": _power(width), "BLOCK": max(block, _power(width)), "num_warps": warps}


def correlate(x: Tensor, w: Tensor, left: int, *, flipped: bool = False) -> Tensor:
    """Filter x (N, R, T) by w (N, K): entries Σ_k w[k] x[t + k - left]; flipped: w is reversed."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    for part in _cut_filter(x, w.shape[1], left):
        load_kernels("filter_kernels").correlate[(len(x),)](
            Argument(x, x.shape), Argument(w, (len(x), w.shape[1])), out, *part.numbers, **part.constants,
            FLIPPED=flipped, ADD=part.first > 0, TILE_R=64, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


def correlate_gradient(x: Tensor, grad: Tensor, kernel: int, left: int) -> Tensor:
    """Return the gradient of the filters (N, K), Σ_rt x[r, t + k - left] grad[r, t]."""
    x, grad, out = x.contiguous(), grad.contiguous(), x.new_empty(len(x), kernel)
    for part in _cut_filter(x, kernel, left):
        load_kernels("filter_kernels").correlate_gradient[(len(x),)](
            Argument(x, x.shape), Argument(grad, x.shape), out, *part.numbers, **part.constants, TAPS=tile(part.taps),
            TILE_R=16, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


class _FilterPart(NamedTuple):
    """Range of taps of a filter with the arguments of its kernel."""

    first: int
    taps: int
    numbers: tuple[int, ...]  # rows, times in units, length of the whole filter, first, taps, lag
    constants: dict[str, int]


def _cut_filter(x: Tensor, kernel: int, left: int) -> Iterator[_FilterPart]:
    """Cut filters into parts of up to TAPS taps; a tile of the signal is twice as long as one of the output."""
    _, rows, times = x.shape
    unit = math.gcd(times, 4)
    first = 0
    while first < kernel:
        begin = (first - left) // 4 * 4
        lag = first - left - begin
        taps = min(kernel - first, TAPS, TAPS + 1 - lag)
        tile_t = TAPS // 2 if taps - 1 + lag <= TAPS // 2 else TAPS
        numbers = rows, times // unit, kernel, first, taps, lag
        yield _FilterPart(first, taps, numbers, {"UNIT": unit, "BEGIN": begin, "TILE_I": 2 * tile_t, "TILE_T": tile_t})
        first += taps


def sign(matrix: Tensor, steps: Sequence[tuple[float, float, float]]) -> Tensor:
    """Apply x -> a x + b x³ + c x⁵ for every step to symmetric x (P, N, N) with N ≤ 128 and entries below 1000."""
    out = torch.empty_like(matrix, memory_format=torch.contiguous_format)
    coefficients = _coefficients(tuple(steps), matrix.device)
    rows = matrix.shape[-1]
    _kernels().sign[(len(matrix),)](
        Argument(matrix, (len(matrix), rows, rows)), out, coefficients, rows, STEPS=len(steps), TILE=tile(rows),
        num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


def solve_(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Return matrix⁻¹ vectors (P, N, D) for positive definite (P, N, N), N ≤ MAX_SOLVE_ROWS, which are overwritten."""
    out = vectors.clone(memory_format=torch.contiguous_format)
    members, rows, width = vectors.shape
    _kernels().solve[(members,)](
        Argument(matrix, (members, rows, rows), layout=CONTIGUOUS), Argument(out, out.shape), rows, width,
        TILE=tile(rows), BLOCK=16, ACROSS=min(32, tile(width)), num_warps=4, num_stages=1,
    )  # fmt: skip
    return out


def accelerate(matrix: Tensor, vectors: Tensor, steps: Tensor, rates: Sequence[tuple[float, float]]) -> Tensor:
    """Iterate x ← x + m (x − previous x) + ω (vectors − matrix x) from 0 and return x (P, N, D).

    Matrices (P, N, N) are symmetric with N ≤ MAX_SOLVE_ROWS; steps: (P,) numbers of iterations; rates: (m, ω) of each.
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
    """Return cached coefficients, because a captured CUDA graph cannot copy from the host."""
    return torch.tensor(steps, dtype=torch.float32, device=device)
