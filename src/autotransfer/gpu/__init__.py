"""Functions that run as one Triton kernel each on a GPU. `available()` says whether they can.

Libraries move the signal of a training step through memory a dozen times and reach half of its speed on thin
matrices; these kernels read and write what has to be read and written.
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

from .loading import CONTIGUOUS, STRIDED, Given, loaded

SHORT = 64  # a side of a matrix that fits into one tile
PROGRAMS = 4096  # of one warp, that keep a GPU busy
TAPS = 64  # of a filter, worked on at once
SOLVED = 128  # rows of a matrix whose columns one program holds in part


@dataclass(frozen=True, eq=False)
class Dropping:
    """Draws of units to drop: unit i of member p where halves[group[p], i] lies below the member's threshold."""

    halves: Tensor  # (G, n) int16, uniform
    group: Tensor | None  # (P,); None: G = P
    drop: Tensor  # (P,) probabilities

    @cached_property
    def threshold(self) -> Tensor:
        """Return thresholds (P,) int32."""
        return (self.drop * 65536.0).round().to(torch.int32) - 32768

    @cached_property
    def boost(self) -> Tensor:
        """Return factors (P,) of the units that stay."""
        return 1.0 / (1.0 - self.drop)


_kernels = partial(loaded, "encoder_kernels")


_wanted: ContextVar[bool] = ContextVar("kernels wanted", default=False)


@contextmanager
def using_kernels(*, wanted: bool) -> Iterator[None]:
    """Inside, in this thread, kernels are `available` if wanted; outside never. They are compiled when first launched,
    which takes longer than a short training, or a prediction."""
    token = _wanted.set(wanted)
    try:
        # Backward passes run in this thread, too: in torch's threads the context variable is not set.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _wanted.reset(token)


def available(signal: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether there are kernels for this tensor."""
    return (
        _wanted.get()
        and signal.device.type == "cuda"
        and signal.dtype == dtype
        and _kernels() is not None
        and _modern(signal.device)
    )


@cache
def _modern(device: torch.device) -> bool:
    """Tell whether the device's tensor cores know TF32 and bfloat16."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def product(a: Tensor, b: Tensor, group: Tensor | None = None) -> Tensor:
    """torch.bmm, (P, m, k) × (P, k, n), of matrices with short sides; factors rounded as in TF32.

    group: (P,) which of the G matrices b (G, k, n) a member takes.
    """
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    if m > SHORT or (k > SHORT and n > SHORT):
        return torch.bmm(a, b if group is None else b[group])
    wide = k <= SHORT  # many columns, in tiles; else one tile that sums over k
    tile_n, tile_k = (128, tile(k)) if wide else (tile(n), 64)
    shares, share = (1, k) if wide else _shares(len(a), k, tile_k)
    out = a.new_empty(shares, len(a), m, n)
    _kernels().multiply[(len(a), -(-n // tile_n), shares)](
        Given(a, (len(a), m, k), layout=STRIDED), Given(b, (len(a if group is None else b), k, n), layout=STRIDED), out,
        out if group is None else Given(group, (len(a),), torch.int64), m, n, k, share, *a.stride(), *b.stride(),
        TILE_M=tile(m), TILE_N=tile_n, TILE_K=tile_k, SHARED=group is not None, num_warps=4 if wide else 1,
        num_stages=3,
    )  # fmt: skip
    return out[0] if shares == 1 else out.sum(0)


def _shares(members: int, k: int, least: int) -> tuple[int, int]:
    """Return into how many sums a long one is cut to keep the device busy, and their length: a multiple of `least`."""
    wanted = max(1, PROGRAMS // members)
    share = -(-k // (wanted * least)) * least
    return -(-k // share), share


def sum_scaled_rows(table: Tensor, rows: Tensor, factors: Tensor, linear: Tensor) -> Tensor:
    """table (N, C, n), rows (G, B), factors (G, B, C), linear (n,) bool -> (G, n): the sum over a group's rows and
    their channels, times the channel's factor in linear columns and times its square in the others."""
    (groups, batch), (channels, width) = rows.shape, table.shape[1:]
    tiles, least = -(-width // 256), 8
    shares = max(1, min(PROGRAMS // (8 * groups * tiles), batch * channels // least))
    share = -(-batch * channels // (shares * least)) * least
    out = table.new_empty(shares, groups, width)
    _kernels().sum_scaled_rows[(groups, tiles, shares)](
        Given(table, (len(table), channels, width)), Given(rows, (groups, batch), torch.int64),
        Given(factors, (groups, batch, channels)), Given(linear, (width,), torch.bool), out, batch, channels, width,
        share, TILE_B=least, TILE=256, num_warps=4,
    )  # fmt: skip
    return out.sum(0)


def _power(side: int) -> int:
    """Return the smallest power of 2 that is at least `side`."""
    return 1 << (side - 1).bit_length()


def tile(side: int) -> int:
    """Return the side of a tile; tensor cores need 16 at least."""
    return max(16, _power(side))


def norm_pool_forward(
    v: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, times: int, pool: int, eps: float, squared: bool = False
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Normalization by batch statistics, ELU, mean over `pool` neighbors, dropout.

    v (P, F, B·T), gamma and beta (P, F) -> output (P, F, B, T // pool), with `squared` the mean squares of v in the
    same shape, mean and variance (P, F).
    """
    members, features, n = v.shape
    batch = n // times
    out = v.new_empty(members, features, batch, times // pool)
    squares = torch.empty_like(out) if squared else None
    mean, variance = v.new_empty(members, features), v.new_empty(members, features)
    _kernels().norm_pool_forward[(members * features,)](
        Given(v, (members, features, batch * times)), *_each(v, gamma, beta), *_draws(dropping, out), out,
        out if squares is None else squares, mean, variance, features, batch, eps, SQUARED=squared,
        **_by_row(n, times, pool, dropping),
    )  # fmt: skip
    return out, squares, mean, variance


def norm_pool_backward(
    grad: Tensor, grad_squares: Tensor | None, v: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor, beta: Tensor,
    dropping: Dropping, times: int, pool: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of v, gamma and beta."""
    members, features, n = v.shape
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    grad_gamma, grad_beta = torch.empty_like(mean), torch.empty_like(mean)
    batch = n // times
    units = (members, features, batch, times // pool)
    _kernels().norm_pool_backward[(members * features,)](
        Given(grad, units), grad_v if grad_squares is None else Given(grad_squares, units),
        Given(v, (members, features, batch * times)), *_each(v, gamma, beta), *_draws(dropping, grad),
        *_each(v, mean, variance), grad_v, grad_gamma, grad_beta, features, batch, eps,
        SQUARED=grad_squares is not None, **_by_row(n, times, pool, dropping),
    )  # fmt: skip
    return grad_v, grad_gamma, grad_beta


def elu_pool(
    v: Tensor, scale: Tensor, shift: Tensor, times: int, pool: int, squared: bool = False
) -> tuple[Tensor, Tensor | None]:
    """ELU of scale · v + shift, (P, F) numbers, and its mean over `pool` neighbors: v (P, F, B·T) -> (P, F, B, T //
    pool), with `squared` the mean squares of v in the same shape. Without a gradient."""
    members, features, n = v.shape
    out = v.new_empty(members, features, n // times, times // pool)
    squares = torch.empty_like(out) if squared else None
    block, width = 1024, _power(pool)
    units = n // times * (times // pool)
    _kernels().elu_pool[(members * features, -(-units * width // block))](
        Given(v, (members, features, n // times * times)), *_each(v, scale, shift), out,
        out if squares is None else squares, n // times, TIMES=times, POOL=pool, WIDTH=width, BLOCK=block,
        SQUARED=squared, num_warps=4,
    )  # fmt: skip
    return out, squares


def stretches_forward(v: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Signals v (N, B, T), cut into S stretches of `length` samples, less the mean (N,) of all of a signal's: mean and
    mean square of every stretch (N, B, S), and that mean. What does not fill a stretch counts nowhere."""
    rows, batch, times = v.shape
    level = v.new_empty(rows, batch, times // length)
    square, mean = torch.empty_like(level), v.new_empty(rows)
    _kernels().stretches_forward[(rows,)](
        Given(v, v.shape), level, square, mean, batch, TIMES=times, LENGTH=length, **_in_units(batch * times, length)
    )
    return level, square, mean


def stretches_backward(
    grad_level: Tensor, grad_square: Tensor, v: Tensor, level: Tensor, mean: Tensor, length: int
) -> Tensor:
    """Return the gradient of v."""
    rows, batch, times = v.shape
    stretches = rows, batch, times // length
    grad_v = torch.empty_like(v, memory_format=torch.contiguous_format)
    _kernels().stretches_backward[(rows,)](
        Given(grad_level, stretches), Given(grad_square, stretches), Given(v, v.shape), Given(level, stretches),
        Given(mean, (rows,)), grad_v, batch, TIMES=times, LENGTH=length, **_in_units(batch * times, length),
    )  # fmt: skip
    return grad_v


def _each(v: Tensor, *numbers: Tensor) -> Iterator[Given]:
    """Yield numbers (P, F) of members and features of a signal (P, F, n)."""
    return (Given(number, v.shape[:2]) for number in numbers)


def _draws(dropping: Dropping, units: Tensor) -> tuple[Given, Given | Tensor, Given]:
    """Return the arguments that drop units (P, F, B, T // pool)."""
    members, *each = units.shape
    halves, group = dropping.halves, dropping.group
    return (
        Given(halves, (members if group is None else len(halves), math.prod(each)), torch.int16),
        units if group is None else Given(group, (members,), torch.int64),
        Given(dropping.drop, (members,)),
    )


def _by_row(n: int, times: int, pool: int, dropping: Dropping) -> dict[str, int]:
    return {"TIMES": times, "POOL": pool, "SHARED": dropping.group is not None} | _in_units(n, pool)


def _in_units(n: int, width: int) -> dict[str, int]:
    """Return the constants of a program that goes twice over a row of n samples, in units of `width`. The longer the
    row, the more threads and the more samples of each: the fewer rows at a time, so that the second pass finds them in
    the cache."""
    warps = min(max(_power(n // 512), 4), 16)
    block = (512 if n >= 16384 else 256) * warps
    return {"WIDTH": _power(width), "BLOCK": max(block, _power(width)), "num_warps": warps}


def correlate(x: Tensor, w: Tensor, left: int, *, flipped: bool = False) -> Tensor:
    """x (N, R, T), w (N, K) -> (N, R, T) with entries Σ_k w[k] x[t + k - left]; flipped: w from its end."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    for piece in _pieces(x, w.shape[1], left):
        loaded("filter_kernels").correlate[(len(x),)](
            Given(x, x.shape), Given(w, (len(x), w.shape[1])), out, *piece.numbers, **piece.constants, FLIPPED=flipped,
            ADD=piece.first > 0, TILE_R=64, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


def correlate_gradient(x: Tensor, grad: Tensor, kernel: int, left: int) -> Tensor:
    """Return the filters' gradient (N, K), Σ_rt x[r, t + k - left] grad[r, t]."""
    x, grad, out = x.contiguous(), grad.contiguous(), x.new_empty(len(x), kernel)
    for piece in _pieces(x, kernel, left):
        loaded("filter_kernels").correlate_gradient[(len(x),)](
            Given(x, x.shape), Given(grad, x.shape), out, *piece.numbers, **piece.constants, TAPS=tile(piece.taps),
            TILE_R=16, num_warps=4, num_stages=1,
        )  # fmt: skip
    return out


class _Piece(NamedTuple):
    """Some taps of a filter, and the arguments of its kernel."""

    first: int
    taps: int
    numbers: tuple[int, ...]  # rows, times in units, length of the whole filter, first, taps, lag
    constants: dict[str, int]


def _pieces(x: Tensor, kernel: int, left: int) -> Iterator[_Piece]:
    """Cut filters into pieces of up to TAPS taps. A tile of the signal is twice as long as one of the output, which is
    room for as many taps and the lag."""
    _, rows, times = x.shape
    unit = math.gcd(times, 4)
    first = 0
    while first < kernel:
        begin = (first - left) // 4 * 4
        lag = first - left - begin
        taps = min(kernel - first, TAPS, TAPS + 1 - lag)
        tile_t = TAPS // 2 if taps - 1 + lag <= TAPS // 2 else TAPS
        numbers = rows, times // unit, kernel, first, taps, lag
        yield _Piece(first, taps, numbers, {"UNIT": unit, "BEGIN": begin, "TILE_I": 2 * tile_t, "TILE_T": tile_t})
        first += taps


def sign(matrix: Tensor, steps: Sequence[tuple[float, float, float]]) -> Tensor:
    """a x + b x³ + c x⁵ for every step, of symmetric matrices (P, N, N) with N ≤ 128 and entries below 1000."""
    out = torch.empty_like(matrix, memory_format=torch.contiguous_format)
    coefficients = _coefficients(tuple(steps), matrix.device)
    rows = matrix.shape[-1]
    _kernels().sign[(len(matrix),)](
        Given(matrix, (len(matrix), rows, rows)), out, coefficients, rows, STEPS=len(steps), TILE=tile(rows),
        num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


def solve_(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix⁻¹ vectors for positive definite matrices: (P, N, N) with N ≤ SOLVED, contiguous, (P, N, D) -> (P, N, D).
    The matrices are used up."""
    out = vectors.clone(memory_format=torch.contiguous_format)
    members, rows, width = vectors.shape
    _kernels().solve[(members,)](
        Given(matrix, (members, rows, rows), layout=CONTIGUOUS), Given(out, out.shape), rows, width, TILE=tile(rows),
        BLOCK=16, ACROSS=min(32, tile(width)), num_warps=4, num_stages=1,
    )  # fmt: skip
    return out


def accelerate(matrix: Tensor, vectors: Tensor, steps: Tensor, rates: Sequence[tuple[float, float]]) -> Tensor:
    """x ← x + m (x − the one before) + ω (vectors − matrix x), from 0, each system as many times as `steps` (P,) says:
    symmetric matrices (P, N, N) with N ≤ SOLVED, (P, N, D) -> (P, N, D). rates: (m, ω) of every step."""
    out = torch.empty_like(vectors, memory_format=torch.contiguous_format)
    (members, rows, width), across = vectors.shape, min(64, tile(vectors.shape[-1]))
    _kernels().accelerate[(members, -(-width // across))](
        Given(matrix, (members, rows, rows)), Given(vectors, vectors.shape),
        Given(steps.to(torch.int32), (members,), torch.int32), _coefficients(tuple(rates), matrix.device), out, rows,
        width, TILE=tile(rows), ACROSS=across, num_warps=8, num_stages=1,
    )  # fmt: skip
    return out


@cache
def _coefficients(steps: tuple[tuple[float, ...], ...], device: torch.device) -> Tensor:
    """Return coefficients, made once: a copy from the host has no place in a captured program."""
    return torch.tensor(steps, dtype=torch.float32, device=device)
