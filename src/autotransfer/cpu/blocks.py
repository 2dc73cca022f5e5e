"""Kernels of a network's blocks: channels mixed, mixtures filtered along time, and what is left of them.

Between these steps signals stay in the cache. Windows lie side by side, a sample of each in a vector (`lay_out`), so
that filters neither shift samples nor multiply by zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..gpu import Dropping
from . import LONGEST, WIDEST, _drawn, run, structure
from .boundary import Expected, check_index, check_sizes

SIDE_BY_SIDE = 16  # windows, at most: so many numbers has the widest vector in kernels.c
ROWS = 8  # signals of a member that one thread works on together


_Block = structure(
    "x group spatial constant w gamma beta halves threshold boost v out power level square mean variance grad "
    "grad_power grad_spatial grad_constant grad_w grad_gamma grad_beta grad_x",
    "channels features depth batch times taps left pool stretches length rows as_codes", "eps",
)  # fmt: skip
_Latents = structure(
    "power gamma beta halves group threshold boost logs out mean variance grad grad_power grad_gamma grad_beta",
    "features batch stretches", "floor eps",
)  # fmt: skip
_LayOut = structure("x out", "channels batch times")


class Form(NamedTuple):
    """What a block makes of its signals."""

    left: int  # zeros before a window
    pool: int  # neighbors that are averaged after ELU; 0: no units, power alone
    stretches: int  # of which the power is taken
    length: int  # samples of each
    eps: float


class Weights(NamedTuple):
    """Of P members with F signals: in a first block filters along time are shared by as many as there are for one."""

    spatial: Tensor  # (P, F, C)
    constant: Tensor | None  # (P, F, B) added to mixtures of channels
    w: Tensor  # (P, F / depth, K); in a second block (P, C, K)
    gamma: Tensor  # (P, F) of the normalization behind them
    beta: Tensor  # (P, F)


class LaidOut(NamedTuple):
    """Windows of G groups, and which of them a member reads."""

    x: Tensor  # (G, W·C·T) as kernels.c has them; W is the number of windows, rounded up to SIDE_BY_SIDE
    group: Tensor  # (P,)
    batch: int
    times: int


class Kept(NamedTuple):
    """What the way back needs of the way there."""

    v: Tensor  # (P, F, W·T) signals that are normalized
    level: Tensor | None  # (P, F, W·S) mean and mean square of stretches, where there is power alone
    square: Tensor | None
    mean: Tensor  # (P, F) of the signals
    variance: Tensor


def lay_out(x: Tensor, group: Tensor | None) -> LaidOut:
    """Lay out windows x (G, C, B, T); group: (P,), None where G = P."""
    groups, channels, batch, times = x.shape
    check_sizes("lay_out", batch=batch, times=times)
    x, out = x.contiguous(), x.new_empty(groups, _rounded(batch) * channels * times)
    tensors = {"x": Expected(x, x.shape), "out": Expected(out, out.shape)}
    numbers = {"channels": channels, "batch": batch, "times": times}
    run("lay_out", _LayOut, x, tensors, numbers, count=groups * channels)
    return LaidOut(out, torch.arange(groups) if group is None else group.contiguous(), batch, times)


def _rounded(batch: int) -> int:
    return -(-batch // SIDE_BY_SIDE) * SIDE_BY_SIDE


def block_forward(
    windows: LaidOut, weights: Weights, form: Form, dropping: Dropping | None
) -> tuple[Tensor | None, Tensor | None, Kept]:
    """Return units (P, F, B, T // pool) and the mean squares of stretches (P, F, B, S), either None where there is none
    of it. Beside units, mean squares are those of the filtered signals; alone, of the normalized ones."""
    members, features, _ = weights.spatial.shape
    new, wide = windows.x.new_empty, _rounded(windows.batch)
    units = new(members, features, windows.batch, windows.times // form.pool) if form.pool else None
    power = new(members, features, windows.batch, form.stretches) if form.stretches else None
    level, square = (None if form.pool else new(members, features, wide * form.stretches) for _ in range(2))
    v, mean, variance = new(members, features, wide * windows.times), *(new(members, features) for _ in range(2))
    kept = Kept(v, level, square, mean, variance)
    _run_block("block_forward", windows, weights, form, kept, dropping, units, out=units, power=power)
    return units, power, kept


def block_backward(
    grad: Tensor | None, grad_power: Tensor | None, windows: LaidOut, weights: Weights, form: Form,
    dropping: Dropping | None, kept: Kept,
) -> Weights:  # fmt: skip
    """Return the gradients of all weights."""
    grad = None if grad is None else grad.contiguous()
    grad_power = None if grad_power is None else grad_power.contiguous()
    grads = Weights(*(None if tensor is None else torch.empty_like(tensor) for tensor in weights))  # type: ignore[arg-type]  # None where it was
    _run_block(
        "block_backward", windows, weights, form, kept, dropping, grad, grad=grad, grad_power=grad_power,
        **{f"grad_{name}": tensor for name, tensor in grads._asdict().items()},
    )  # fmt: skip
    return grads


def second_forward(x: Tensor, weights: Weights, form: Form, dropping: Dropping) -> tuple[Tensor, Kept]:
    """Signals (P, C, B, T), each filtered by its w, mixed by `spatial`: units (P, B, F, T // pool), like latents."""
    members, features, _ = weights.spatial.shape
    batch, times = x.shape[2:]
    units = x.new_empty(members, batch, features, times // max(form.pool, 1))
    v = x.new_empty(members, features, _rounded(batch) * times)
    kept = Kept(v, None, None, x.new_empty(members, features), x.new_empty(members, features))
    _run_second("second_forward", x, weights, form, kept, dropping, units, out=units)
    return units, kept


def second_backward(
    grad: Tensor, x: Tensor, weights: Weights, form: Form, dropping: Dropping, kept: Kept
) -> tuple[Tensor, Weights]:
    """Return the gradients of x and of all weights."""
    grad, grad_x = grad.contiguous(), torch.empty_like(x)
    grads = Weights(*(None if tensor is None else torch.empty_like(tensor) for tensor in weights))  # type: ignore[arg-type]  # None where it was
    given = {f"grad_{name}": tensor for name, tensor in grads._asdict().items()}
    _run_second("second_backward", x, weights, form, kept, dropping, grad, grad=grad, grad_x=grad_x, **given)
    return grad_x, grads


def _run_second(
    operation: str, x: Tensor, weights: Weights, form: Form, kept: Kept, dropping: Dropping, units: Tensor,
    **others: Tensor | None,
) -> None:  # fmt: skip
    """Check the arguments of a kernel and run it, as `_run_block` does."""
    (members, features, channels), taps, (batch, times) = weights.spatial.shape, weights.w.shape[-1], x.shape[2:]
    _check_form(operation, form, taps, times)
    check_sizes(operation, batch=batch, channels=channels, features=features, pool=form.pool)
    if form.stretches or weights.constant is not None:
        raise RuntimeError(f"autotransfer::{operation}: there is no power, and nothing is added")
    per_signal, wide = (members, features), _rounded(batch)
    shapes = {
        "out": (members, batch, features, times // form.pool), "x": (members, channels, batch, times), "constant": (),
        "spatial": (*per_signal, channels), "w": (members, channels, taps), "gamma": per_signal, "beta": per_signal,
    }  # fmt: skip
    expected = {name: Expected(tensor, shapes[name]) for name, tensor in weights._asdict().items()}
    for name, tensor in others.items():
        expected[name] = Expected(tensor, shapes[{"grad": "out"}.get(name, name.removeprefix("grad_"))])
    tensors = expected | _drawn(operation, dropping, units) | {
        "x": Expected(x, shapes["x"]), "mean": Expected(kept.mean, per_signal),
        "v": Expected(kept.v, (*per_signal, wide * times)), "variance": Expected(kept.variance, per_signal),
    }  # fmt: skip
    numbers = {
        "channels": channels, "features": features, "depth": 1, "batch": batch, "times": times, "taps": taps,
        "left": form.left, "pool": form.pool, "rows": features, "as_codes": 1, "eps": form.eps,
    }  # fmt: skip
    run(operation, _Block, kept.v, tensors, numbers)


def _check_form(operation: str, form: Form, taps: int, times: int) -> None:
    if not (1 <= taps <= LONGEST and 0 <= form.left < taps and 0 <= form.pool <= WIDEST):
        raise RuntimeError(f"autotransfer::{operation}: {taps} taps and {form} do not fit")
    check_sizes(operation, times=times, steps=times // max(form.pool, 1), made=form.pool + form.stretches)
    check_sizes(operation, 0, stretches=form.stretches, beyond=times - form.stretches * form.length)
    check_sizes(operation, length=form.length if form.stretches else 1)


def _run_block(
    operation: str, windows: LaidOut, weights: Weights, form: Form, kept: Kept, dropping: Dropping | None,
    units: Tensor | None, **others: Tensor | None,
) -> None:  # fmt: skip
    """Check the arguments of a kernel and run it. units: (P, F, B, T'), of which some are dropped, in members of one
    group the same; others: outputs and gradients."""
    (members, features, channels), (_, filters, taps) = weights.spatial.shape, weights.w.shape
    batch, times, pool, stretches = windows.batch, windows.times, form.pool, form.stretches
    check_sizes(operation, batch=batch, filters=filters, channels=channels)
    _check_form(operation, form, taps, times)
    if features % filters:
        raise RuntimeError(f"autotransfer::{operation}: {features} signals do not share {filters} filters")
    power = others["power" if "power" in others else "grad_power"]
    for there, *given in ((pool > 0, units, dropping), (stretches > 0, power), (pool == 0, kept.level, kept.square)):
        if any((tensor is not None) != there for tensor in given):
            raise RuntimeError(f"autotransfer::{operation}: expected the tensors of {form} and no others")
    check_index(operation, "group", windows.group, members, len(windows.x))
    per_signal, wide = (members, features), _rounded(batch)
    shapes = {
        "out": (*per_signal, batch, times // max(pool, 1)), "power": (*per_signal, batch, stretches),
        "spatial": weights.spatial.shape, "constant": (*per_signal, batch), "w": (members, filters, taps),
        "gamma": per_signal, "beta": per_signal,
    }  # fmt: skip
    expected = {name: Expected(tensor, shapes[name]) for name, tensor in weights._asdict().items()}
    for name, tensor in others.items():
        expected[name] = Expected(tensor, shapes[{"grad": "out"}.get(name, name.removeprefix("grad_"))])
    if units is not None and dropping is not None:
        expected |= _drawn(operation, dropping, units)
        check_index(operation, "group", windows.group, members, len(dropping.halves))
    tensors = expected | {
        "x": Expected(windows.x, (len(windows.x), wide * channels * times)),
        "group": Expected(windows.group, (members,), torch.int64),
        "v": Expected(kept.v, (*per_signal, wide * times)),
        "mean": Expected(kept.mean, per_signal),
        "variance": Expected(kept.variance, per_signal),
        "level": Expected(kept.level, (*per_signal, wide * stretches)),
        "square": Expected(kept.square, (*per_signal, wide * stretches)),
    }
    depth = features // filters
    most = max(1, members * filters // (2 * torch.get_num_threads()))  # so that every thread has something to do
    rows = depth * min(max(1, ROWS // depth), most)
    numbers = {
        "channels": channels, "features": features, "depth": depth, "batch": batch, "times": times, "taps": taps,
        "left": form.left, "pool": pool, "stretches": stretches, "length": form.length, "rows": rows, "eps": form.eps,
    }  # fmt: skip
    run(operation, _Block, kept.v, tensors, numbers)


class KeptLatents(NamedTuple):
    """What the way back needs of the way there."""

    logs: Tensor  # (P, F, B, S)
    mean: Tensor  # (P, F) of the logarithms
    variance: Tensor


def latents_forward(
    power: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, floor: float, eps: float
) -> tuple[Tensor, KeptLatents]:
    """log(power + floor) of power (P, F, B, S), normalized by batch statistics, gamma and beta (P, F), with dropout:
    latents (P, B, F·S)."""
    members, features, batch, stretches = power.shape
    out = power.new_empty(members, batch, features * stretches)
    kept = KeptLatents(torch.empty_like(power), *(power.new_empty(members, features) for _ in range(2)))
    _run_latents("latents_forward", power, gamma, beta, dropping, kept, floor, eps, out=out)
    return out, kept


def latents_backward(
    grad: Tensor, power: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, kept: KeptLatents, floor: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of power, gamma and beta."""
    grads = {f"grad_{name}": torch.empty_like(of) for name, of in (("power", power), ("gamma", gamma), ("beta", beta))}
    _run_latents("latents_backward", power, gamma, beta, dropping, kept, floor, eps, grad=grad.contiguous(), **grads)
    return grads["grad_power"], grads["grad_gamma"], grads["grad_beta"]


def _run_latents(
    operation: str, power: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, kept: KeptLatents, floor: float,
    eps: float, **others: Tensor,
) -> None:  # fmt: skip
    members, features, batch, stretches = power.shape
    check_sizes(operation, features=features, batch=batch, stretches=stretches)
    per_feature, latents = (members, features), (members, batch, features * stretches)
    shapes: dict[str, Sequence[int]] = dict.fromkeys(("gamma", "beta", "mean", "variance"), per_feature)
    shapes |= {"power": power.shape, "logs": power.shape, "out": latents, "grad": latents}
    tensors = {"power": power, "gamma": gamma, "beta": beta, **kept._asdict(), **others}
    given = {name: Expected(one, shapes[name.removeprefix("grad_")]) for name, one in tensors.items()}
    numbers = {"features": features, "batch": batch, "stretches": stretches, "floor": floor, "eps": eps}
    run(operation, _Latents, power, _drawn(operation, dropping, power) | given, numbers)
