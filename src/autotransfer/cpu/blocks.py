"""Kernels of network blocks: channels are mixed and filtered along time, and the signals are pooled or squared.

Signals stay in the cache between these steps. Samples of several windows are interleaved in one vector (`lay_out`), so
that filters neither shift samples nor multiply by zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..gpu import DropoutDraws
from . import MAX_POOL, MAX_TAPS, _dropout_arguments, make_task_type, run
from .boundary import Argument, check_index, check_sizes

MAX_LANES = 16  # number of values in the widest vector of kernels.c
ROWS_PER_THREAD = 8  # number of signals of a member that a thread processes together

_Block = make_task_type(
    "x group spatial constant w gamma beta draws threshold keep_scale v out power level square mean variance grad "
    "grad_power grad_spatial grad_constant grad_w grad_gamma grad_beta grad_x",
    "channels features depth batch times taps left pool segments length rows as_latents", "eps",
)  # fmt: skip
_Latents = make_task_type(
    "power gamma beta draws group threshold keep_scale logs out mean variance grad grad_power grad_gamma grad_beta",
    "features batch segments", "floor eps",
)  # fmt: skip
_Interleave = make_task_type("x out", "channels batch times")


class BlockOptions(NamedTuple):
    """Padding, pooling and segments of a block."""

    left: int  # zeros before a window
    pool: int  # number of samples that are averaged after ELU; 0: the block returns power but no units
    segments: int  # number of segments whose power is computed
    length: int  # number of samples per segment
    eps: float


class Weights(NamedTuple):
    """Weights of a block with P members and F signals; in a first block `depth` signals share a temporal filter."""

    spatial: Tensor  # (P, F, C)
    constant: Tensor | None  # (P, F, B) constants that are added to the mixed channels
    w: Tensor  # (P, F / depth, K); in a second block (P, C, K)
    gamma: Tensor  # (P, F) scale of the normalization after the filters
    beta: Tensor  # (P, F) shift of the normalization


class InterleavedWindows(NamedTuple):
    """Windows of G groups, with the samples of several windows interleaved."""

    x: Tensor  # (G, W·C·T) in the layout of kernels.c; W: number of windows, rounded up to a multiple of MAX_LANES
    group: Tensor  # (P,) index of the group that a member reads
    batch: int  # number of windows per group
    times: int


class SavedTensors(NamedTuple):
    """Tensors that the forward pass of a block saves for the backward pass."""

    v: Tensor  # (P, F, W·T) signals before normalization
    level: Tensor | None  # (P, F, W·S) means of segments, if the block returns power but no units
    square: Tensor | None  # (P, F, W·S) mean squares of segments
    mean: Tensor  # (P, F) means of v
    variance: Tensor  # (P, F) variances of v


def lay_out(x: Tensor, group: Tensor | None) -> InterleavedWindows:
    """Interleave windows x (G, C, B, T); group: (P,), or None if G = P."""
    groups, channels, batch, times = x.shape
    check_sizes("lay_out", batch=batch, times=times)
    x, out = x.contiguous(), x.new_empty(groups, _padded_batch(batch) * channels * times)
    tensors = {"x": Argument(x, x.shape), "out": Argument(out, out.shape)}
    numbers = {"channels": channels, "batch": batch, "times": times}
    run("lay_out", _Interleave, x, tensors, numbers, count=groups * channels)
    return InterleavedWindows(out, torch.arange(groups) if group is None else group.contiguous(), batch, times)


def _padded_batch(batch: int) -> int:
    """Return a number of windows, rounded up to a multiple of MAX_LANES."""
    return -(-batch // MAX_LANES) * MAX_LANES


def block_forward(
    windows: InterleavedWindows, weights: Weights, options: BlockOptions, dropout: DropoutDraws | None
) -> tuple[Tensor | None, Tensor | None, SavedTensors]:
    """Return units (P, F, B, T // pool) or None, and mean squares of segments (P, F, B, S) or None.

    Mean squares are computed from the filtered signals if there are units, otherwise from the normalized signals.
    """
    members, features, _ = weights.spatial.shape
    new, width = windows.x.new_empty, _padded_batch(windows.batch)
    units = new(members, features, windows.batch, windows.times // options.pool) if options.pool else None
    power = new(members, features, windows.batch, options.segments) if options.segments else None
    level, square = (None if options.pool else new(members, features, width * options.segments) for _ in range(2))
    v, mean, variance = new(members, features, width * windows.times), *(new(members, features) for _ in range(2))
    saved = SavedTensors(v, level, square, mean, variance)
    _run_block("block_forward", windows, weights, options, saved, dropout, units, out=units, power=power)
    return units, power, saved


def block_backward(
    grad: Tensor | None, grad_power: Tensor | None, windows: InterleavedWindows, weights: Weights,
    options: BlockOptions, dropout: DropoutDraws | None, saved: SavedTensors,
) -> Weights:  # fmt: skip
    """Return the gradients of all weights."""
    grad = None if grad is None else grad.contiguous()
    grad_power = None if grad_power is None else grad_power.contiguous()
    grads = Weights(*(None if tensor is None else torch.empty_like(tensor) for tensor in weights))  # type: ignore[arg-type]  # the constant is optional
    _run_block(
        "block_backward", windows, weights, options, saved, dropout, grad, grad=grad, grad_power=grad_power,
        **{f"grad_{name}": tensor for name, tensor in grads._asdict().items()},
    )  # fmt: skip
    return grads


def second_forward(
    x: Tensor, weights: Weights, options: BlockOptions, dropout: DropoutDraws
) -> tuple[Tensor, SavedTensors]:
    """Filter signals (P, C, B, T) by w, mix them by `spatial` and return units (P, B, F, T // pool)."""
    members, features, _ = weights.spatial.shape
    batch, times = x.shape[2:]
    units = x.new_empty(members, batch, features, times // max(options.pool, 1))
    v = x.new_empty(members, features, _padded_batch(batch) * times)
    saved = SavedTensors(v, None, None, x.new_empty(members, features), x.new_empty(members, features))
    _run_second("second_forward", x, weights, options, saved, dropout, units, out=units)
    return units, saved


def second_backward(
    grad: Tensor, x: Tensor, weights: Weights, options: BlockOptions, dropout: DropoutDraws, saved: SavedTensors
) -> tuple[Tensor, Weights]:
    """Return the gradients of x and of all weights."""
    grad, grad_x = grad.contiguous(), torch.empty_like(x)
    grads = Weights(*(None if tensor is None else torch.empty_like(tensor) for tensor in weights))  # type: ignore[arg-type]  # the constant is optional
    grad_weights = {f"grad_{name}": tensor for name, tensor in grads._asdict().items()}
    _run_second("second_backward", x, weights, options, saved, dropout, grad, grad=grad, grad_x=grad_x, **grad_weights)
    return grad_x, grads


def _run_second(
    operation: str, x: Tensor, weights: Weights, options: BlockOptions, saved: SavedTensors, dropout: DropoutDraws,
    units: Tensor, **outputs: Tensor | None,
) -> None:  # fmt: skip
    """Check arguments and run a kernel of second blocks; outputs: further outputs and gradients by name."""
    (members, features, channels), taps, (batch, times) = weights.spatial.shape, weights.w.shape[-1], x.shape[2:]
    _check_options(operation, options, taps, times)
    check_sizes(operation, batch=batch, channels=channels, features=features, pool=options.pool)
    if options.segments or weights.constant is not None:
        raise RuntimeError(f"autotransfer::{operation}: expected neither power nor a constant")
    per_signal, width = (members, features), _padded_batch(batch)
    shapes = {
        "out": (members, batch, features, times // options.pool), "x": (members, channels, batch, times),
        "constant": (), "spatial": (*per_signal, channels), "w": (members, channels, taps), "gamma": per_signal,
        "beta": per_signal,
    }  # fmt: skip
    expected = {name: Argument(tensor, shapes[name]) for name, tensor in weights._asdict().items()}
    for name, tensor in outputs.items():
        expected[name] = Argument(tensor, shapes[{"grad": "out"}.get(name, name.removeprefix("grad_"))])
    tensors = expected | _dropout_arguments(operation, dropout, units) | {
        "x": Argument(x, shapes["x"]), "mean": Argument(saved.mean, per_signal),
        "v": Argument(saved.v, (*per_signal, width * times)), "variance": Argument(saved.variance, per_signal),
    }  # fmt: skip
    numbers = {
        "channels": channels, "features": features, "depth": 1, "batch": batch, "times": times, "taps": taps,
        "left": options.left, "pool": options.pool, "rows": features, "as_latents": 1, "eps": options.eps,
    }  # fmt: skip
    run(operation, _Block, saved.v, tensors, numbers)


def _check_options(operation: str, options: BlockOptions, taps: int, times: int) -> None:
    if not (1 <= taps <= MAX_TAPS and 0 <= options.left < taps and 0 <= options.pool <= MAX_POOL):
        raise RuntimeError(f"autotransfer::{operation}: {taps} taps do not fit {options}")
    check_sizes(operation, times=times, steps=times // max(options.pool, 1), outputs=options.pool + options.segments)
    check_sizes(operation, 0, segments=options.segments, remainder=times - options.segments * options.length)
    check_sizes(operation, length=options.length if options.segments else 1)


def _run_block(
    operation: str, windows: InterleavedWindows, weights: Weights, options: BlockOptions, saved: SavedTensors,
    dropout: DropoutDraws | None, units: Tensor | None, **outputs: Tensor | None,
) -> None:  # fmt: skip
    """Check arguments and run a kernel of first blocks; outputs: further outputs and gradients by name."""
    (members, features, channels), (_, filters, taps) = weights.spatial.shape, weights.w.shape
    batch, times, pool, segments = windows.batch, windows.times, options.pool, options.segments
    check_sizes(operation, batch=batch, filters=filters, channels=channels)
    _check_options(operation, options, taps, times)
    if features % filters:
        raise RuntimeError(f"autotransfer::{operation}: {features} signals do not share {filters} filters")
    power = outputs["power" if "power" in outputs else "grad_power"]
    level, square = saved.level, saved.square
    for is_needed, *tensors_of_part in ((pool > 0, units, dropout), (segments > 0, power), (pool == 0, level, square)):
        if any((tensor is not None) != is_needed for tensor in tensors_of_part):
            raise RuntimeError(f"autotransfer::{operation}: expected tensors for {options} and no other tensors")
    check_index(operation, "group", windows.group, members, len(windows.x))
    per_signal, width = (members, features), _padded_batch(batch)
    shapes = {
        "out": (*per_signal, batch, times // max(pool, 1)), "power": (*per_signal, batch, segments),
        "spatial": weights.spatial.shape, "constant": (*per_signal, batch), "w": (members, filters, taps),
        "gamma": per_signal, "beta": per_signal,
    }  # fmt: skip
    expected = {name: Argument(tensor, shapes[name]) for name, tensor in weights._asdict().items()}
    for name, tensor in outputs.items():
        expected[name] = Argument(tensor, shapes[{"grad": "out"}.get(name, name.removeprefix("grad_"))])
    if units is not None and dropout is not None:
        expected |= _dropout_arguments(operation, dropout, units)
        check_index(operation, "group", windows.group, members, len(dropout.draws))
    tensors = expected | {
        "x": Argument(windows.x, (len(windows.x), width * channels * times)),
        "group": Argument(windows.group, (members,), torch.int64),
        "v": Argument(saved.v, (*per_signal, width * times)),
        "mean": Argument(saved.mean, per_signal),
        "variance": Argument(saved.variance, per_signal),
        "level": Argument(level, (*per_signal, width * segments)),
        "square": Argument(square, (*per_signal, width * segments)),
    }
    depth = features // filters
    max_filters = max(1, members * filters // (2 * torch.get_num_threads()))  # so that every thread has work
    rows = depth * min(max(1, ROWS_PER_THREAD // depth), max_filters)
    numbers = {
        "channels": channels, "features": features, "depth": depth, "batch": batch, "times": times, "taps": taps,
        "left": options.left, "pool": pool, "segments": segments, "length": options.length, "rows": rows,
        "eps": options.eps,
    }  # fmt: skip
    run(operation, _Block, saved.v, tensors, numbers)


class SavedLatents(NamedTuple):
    """Tensors that `latents_forward` saves for the backward pass."""

    logs: Tensor  # (P, F, B, S) logarithms of power
    mean: Tensor  # (P, F) means of the logarithms
    variance: Tensor  # (P, F) variances of the logarithms


def latents_forward(
    power: Tensor, gamma: Tensor, beta: Tensor, dropout: DropoutDraws, floor: float, eps: float
) -> tuple[Tensor, SavedLatents]:
    """Return log(power + floor) after batch normalization and dropout: (P, F, B, S) -> latents (P, B, F·S)."""
    members, features, batch, segments = power.shape
    out = power.new_empty(members, batch, features * segments)
    saved = SavedLatents(torch.empty_like(power), *(power.new_empty(members, features) for _ in range(2)))
    _run_latents("latents_forward", power, gamma, beta, dropout, saved, floor, eps, out=out)
    return out, saved


def latents_backward(
    grad: Tensor, power: Tensor, gamma: Tensor, beta: Tensor, dropout: DropoutDraws, saved: SavedLatents, floor: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of power, gamma and beta."""
    grads = {f"grad_{name}": torch.empty_like(t) for name, t in (("power", power), ("gamma", gamma), ("beta", beta))}
    _run_latents("latents_backward", power, gamma, beta, dropout, saved, floor, eps, grad=grad.contiguous(), **grads)
    return grads["grad_power"], grads["grad_gamma"], grads["grad_beta"]


def _run_latents(
    operation: str, power: Tensor, gamma: Tensor, beta: Tensor, dropout: DropoutDraws, saved: SavedLatents,
    floor: float, eps: float, **outputs: Tensor,
) -> None:  # fmt: skip
    members, features, batch, segments = power.shape
    check_sizes(operation, features=features, batch=batch, segments=segments)
    per_feature, latents = (members, features), (members, batch, features * segments)
    shapes: dict[str, Sequence[int]] = dict.fromkeys(("gamma", "beta", "mean", "variance"), per_feature)
    shapes |= {"power": power.shape, "logs": power.shape, "out": latents, "grad": latents}
    tensors = {"power": power, "gamma": gamma, "beta": beta, **saved._asdict(), **outputs}
    checked = {name: Argument(tensor, shapes[name.removeprefix("grad_")]) for name, tensor in tensors.items()}
    numbers = {"features": features, "batch": batch, "segments": segments, "floor": floor, "eps": eps}
    run(operation, _Latents, power, _dropout_arguments(operation, dropout, power) | checked, numbers)
