"""Kernels of a model in use: all that is done to one window, or a few, of one person.

Each has a reference in plain torch code where it is used, which also serves where there is no kernel. As operations of
torch they are found in what torch.jit records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_long, c_void_p
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import available, run_on
from .boundary import Expected, address, addresses, check_index, check_sizes, need_library

FEW = 16  # windows that are so few; one thread works on them: nothing is started for somebody's next window


def few(x: Tensor) -> bool:
    """Whether there are kernels for windows (G, n, C, T), and these are few."""
    return x.shape[1] <= FEW and available(x, recorded=True)


# ---- networks --------------------------------------------------------------------------------------------------------


class _Networks(ctypes.Structure):
    """As in kernels.c."""

    _fields_ = (
        *((name, c_void_p) for name in (
            "x", "group", "spatial", "temporal", "constant", "power_scale", "power_shift", "scale", "shift",
            "depthwise", "pointwise", "bias", "out",
        )),
        *((name, c_long) for name in (
            "windows", "channels", "levels", "times", "filters", "taps", "stretch", "pool", "second_taps",
            "second_pool", "hidden", "latent",
        )),
        ("floor", c_float),
    )  # fmt: skip


class Networks(NamedTuple):
    """P networks: F filters, each a mixture of channels and a kernel along time. Of a filter's signal v the code has

    ELU(scale · v + shift), averaged, filtered once more (depthwise), mixed (H rows of pointwise, and a bias), and once
        more through ELU and averaged: H numbers for each step of time that is left;
    the log power of v + constant, times power_scale plus power_shift: F numbers for each stretch;

    whichever it has the weights for. Filters see zeros around a window.
    """

    spatial: Tensor  # (P, F, C); the last `levels` channels have one value throughout a window
    temporal: Tensor  # (P, F, K)
    levels: int
    floor: float = 0.0  # added to power before its logarithm
    stretch: int = 1  # samples whose power is taken
    power: tuple[Tensor, Tensor, Tensor] | None = None  # constant, power_scale, power_shift: (P, F)
    pools: tuple[int, int] = (1, 1)  # neighbours that are averaged
    # scale, shift: (P, F); depthwise (P, F, K'), pointwise (P, H, F), bias (P, H)
    rest: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, group: Tensor) -> Tensor:
        """Windows (G, n, C, T), of which each network reads those of its group (P,) -> codes (P, n, D)."""
        own = self.spatial, self.temporal, *(self.power or [None] * 3), *(self.rest or [None] * 5)
        found: Tensor = operations.networks(x, group, *own, [self.levels, self.stretch, *self.pools], self.floor)
        return found


def _networks(
    x: Tensor, group: Tensor, spatial: Tensor, temporal: Tensor, constant: Tensor | None, power_scale: Tensor | None,
    power_shift: Tensor | None, scale: Tensor | None, shift: Tensor | None, depthwise: Tensor | None,
    pointwise: Tensor | None, bias: Tensor | None, numbers: Sequence[int], floor: float,
) -> Tensor:  # fmt: skip
    """`Networks`, as torch calls it."""
    levels, stretch, pool, second_pool = numbers
    check_sizes("networks", stretch=stretch, pool=pool, second_pool=second_pool)
    groups, windows, channels, times = x.shape
    check_sizes("networks", 0, levels=levels, signals=channels - levels)
    members, filters, taps = temporal.shape
    _check_together("networks", "power", constant, power_scale, power_shift)
    _check_together("networks", "the second filter", scale, shift, depthwise, pointwise, bias)
    hidden, second_taps = (0, 1) if bias is None or depthwise is None else (bias.shape[1], depthwise.shape[-1])
    check_sizes("networks", times=times, taps=taps, second_taps=second_taps)
    latent = hidden * (times // pool // second_pool) + (0 if power_scale is None else filters * (times // stretch))
    x, out, each = x.contiguous(), x.new_empty(members, windows, latent), (members, filters)
    check_index("networks", "group", group, members, groups)
    places = addresses(
        "networks", x=Expected(x, x.shape), group=Expected(group, (members,), torch.int64),
        spatial=Expected(spatial, (*each, channels)), temporal=Expected(temporal, (*each, taps)),
        constant=Expected(constant, each), power_scale=Expected(power_scale, each),
        power_shift=Expected(power_shift, each), scale=Expected(scale, each), shift=Expected(shift, each),
        depthwise=Expected(depthwise, (*each, second_taps)), pointwise=Expected(pointwise, (members, hidden, filters)),
        bias=Expected(bias, (members, hidden)), out=Expected(out, out.shape),
    )  # fmt: skip
    task = _Networks(
        **places, windows=windows, channels=channels - levels, levels=levels, times=times, filters=filters, taps=taps,
        stretch=stretch, pool=pool, second_taps=second_taps, second_pool=second_pool, hidden=hidden, latent=latent,
        floor=floor,
    )  # fmt: skip
    run_on(1 if windows <= FEW else torch.get_num_threads(), "networks", members, task)
    return out


def _check_together(operation: str, what: str, *tensors: Tensor | None) -> None:
    """All of them are there, or none is."""
    if len({tensor is None for tensor in tensors}) > 1:
        raise RuntimeError(f"autotransfer::{operation}: expected all weights of {what} or none, but some are missing")


# ---- preprocessing ---------------------------------------------------------------------------------------------------

F64 = torch.float64
POINTS = 16  # stretches, at most; as in kernels.c


def _call(name: str, *given: Expected | int | float) -> None:
    """A function of kernels.c with these arguments."""
    arguments: list[Any] = []
    for place, value in enumerate(given):
        if isinstance(value, Expected):
            arguments.append(c_void_p(address(name, f"argument {place}", value)))
        else:
            arguments.append(c_long(value) if isinstance(value, int) else c_double(value))
    function = getattr(need_library(name), name)
    function.restype = None
    function(*arguments)


def _whole(tensor: Tensor, dtype: torch.dtype = torch.float32) -> Expected:
    """A tensor whose shape the others follow."""
    return Expected(tensor, tensor.shape, dtype)


def _room(*size: int) -> Expected:
    """Memory that a kernel works in."""
    return _whole(torch.empty(size, dtype=F64), F64)


def _check_points(operation: str, points: int, times: int) -> None:
    check_sizes(operation, points=points, times=times)
    if points > POINTS:
        raise RuntimeError(f"autotransfer::{operation}: expected at most {POINTS} points, but there are {points}")


def _standardise(x: Tensor) -> Tensor:
    x = x.contiguous()
    out, times = torch.empty_like(x), x.shape[-1]
    check_sizes("standardise", times=times)
    _call("standardise_rows", x.numel() // times, times, _whole(x), _whole(out), _room(times))
    return out


def _append_scale(x: Tensor, flat: float, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    check_sizes("append_scale", channels=channels, times=times)
    out, windows = x.new_empty(*size, 3 * channels, times), x.numel() // (channels * times)
    _call("append_scale", windows, channels, times, flat, quiet, _whole(x), _whole(out), _room(times))
    return out


def _features(x: Tensor, window: Tensor, points: int, quiet: float) -> Tensor:
    x = x.contiguous()
    times = x.shape[-1]
    _check_points("features", points, times)
    check_sizes("features", 2, times=times)
    rows, means, bands = x.numel() // times, min(points, times), min(points, times // 2)
    out, windowed, room = (
        x.new_empty(*x.shape[:-1], means + bands + 2),
        torch.empty(rows, times, dtype=F64),
        _room(times),
    )
    numbers, hann = (rows, times, means, bands, quiet), Expected(window, (times,), F64)
    _call("features_of", *numbers, _whole(x), hann, _whole(windowed, F64), room, _whole(out))
    spectra = torch.view_as_real(torch.fft.rfft(windowed))
    _call("features_bands", *numbers, _whole(spectra, F64), room, _whole(out))
    return out


def _tangent(x: Tensor, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    check_sizes("tangent", channels=channels, times=times)
    windows, square = x.numel() // (channels * times), (channels, channels)
    correlation, out = x.new_empty(windows, *square, dtype=F64), x.new_empty(*size, 1, channels * (channels + 3) // 2)
    room, matrices = _room(channels, times), _whole(correlation, F64)
    _call("tangent_of", windows, channels, times, quiet, _whole(x), room, matrices, _whole(out))
    values, vectors = torch.linalg.eigh(correlation)
    below, room = _whole(vectors.mT.contiguous(), F64), _room(2 * channels + 1, channels)  # vectors as they come
    _call("tangent_upper", windows, channels, quiet, _whole(values, F64), below, room, _whole(out))
    return out


def _templates(x: Tensor, filters: Tensor, responses: Tensor, points: int, flat: float, quiet: float) -> Tensor:
    x, filters, responses = x.contiguous(), filters.contiguous(), responses.contiguous()
    members, count, channels = filters.shape
    groups, windows, _, times = x.shape
    points = min(points, times)
    _check_points("templates", points, times)
    out, shared = x.new_empty(members, windows, count * (points + 1)), int(groups == 1)
    numbers = members, shared, windows, channels, times, count, points, flat, quiet
    signals = Expected(x, (1 if shared else members, windows, channels, times))
    known = Expected(responses, (members, count, times))
    _call("templates_of", *numbers, signals, _whole(filters), known, _room(times), _whole(out))
    return out


# ---- operations of torch ---------------------------------------------------------------------------------------------

OPERATIONS = {
    "networks(Tensor x, Tensor group, Tensor spatial, Tensor temporal, Tensor? constant, Tensor? power_scale, "
    "Tensor? power_shift, Tensor? scale, Tensor? shift, Tensor? depthwise, Tensor? pointwise, Tensor? bias, "
    "int[] numbers, float floor) -> Tensor": _networks,
    "standardise(Tensor x) -> Tensor": _standardise,
    "append_scale(Tensor x, float flat, float quiet) -> Tensor": _append_scale,
    "features(Tensor x, Tensor window, int points, float quiet) -> Tensor": _features,
    "tangent(Tensor x, float quiet) -> Tensor": _tangent,
    "templates(Tensor x, Tensor filters, Tensor responses, int points, float flat, float quiet) -> Tensor": _templates,
}
_operations = torch.library.Library("autotransfer", "DEF")  # type: ignore[no-untyped-call]  # torch's
for _signature, _function in OPERATIONS.items():
    _operations.define(_signature)  # type: ignore[no-untyped-call]
    _operations.impl(_signature.partition("(")[0], _function, "CPU")  # type: ignore[no-untyped-call]
operations = torch.ops.autotransfer
