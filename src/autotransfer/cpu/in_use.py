"""Kernels of a model in use: all that is done to one window, or a few, of one person.

Each has a reference in plain torch code where it is used, which also serves where there is no kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_long, c_void_p
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import available, pointers, run_on
from .compiling import library

FEW = 16  # windows that are so few; one thread works on them: nothing is started for somebody's next window


def few(x: Tensor) -> bool:
    """Whether there are kernels for windows (G, n, C, T), and these are few."""
    return x.shape[1] <= FEW and available(x)


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
    """`Networks`, as the kernel takes it."""
    levels, stretch, pool, second_pool = numbers
    _, windows, channels, times = x.shape
    members, filters, taps = temporal.shape
    hidden = 0 if bias is None else bias.shape[1]
    latent = hidden * (times // pool // second_pool) + (0 if power_scale is None else filters * (times // stretch))
    x, out = x.contiguous(), x.new_empty(members, windows, latent)
    found = pointers(
        x=x, group=group, spatial=spatial, temporal=temporal, constant=constant, power_scale=power_scale,
        power_shift=power_shift, scale=scale, shift=shift, depthwise=depthwise, pointwise=pointwise, bias=bias, out=out,
    )  # fmt: skip
    task = _Networks(
        **found, windows=windows, channels=channels - levels, levels=levels, times=times, filters=filters, taps=taps,
        stretch=stretch, pool=pool, second_taps=1 if depthwise is None else depthwise.shape[-1],
        second_pool=second_pool, hidden=hidden, latent=latent, floor=floor,
    )  # fmt: skip
    run_on(1 if windows <= FEW else torch.get_num_threads(), "networks", members, task)
    return out


# ---- preprocessing ---------------------------------------------------------------------------------------------------


def _call(name: str, *given: Tensor | int | float) -> None:
    """A function of kernels.c with these arguments; tensors are contiguous."""
    own: list[Any] = []
    for value in given:
        if isinstance(value, Tensor):
            own.append(c_void_p(value.data_ptr()))
        else:
            own.append(c_long(value) if isinstance(value, int) else c_double(value))
    function = getattr(library(), name)
    function.restype = None
    function(*own)


def _room(*size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float64)


def _standardise(x: Tensor) -> Tensor:
    x = x.contiguous()
    out, times = torch.empty_like(x), x.shape[-1]
    _call("standardise_rows", x.numel() // times, times, x, out, _room(times))
    return out


def _append_scale(x: Tensor, flat: float, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    out = x.new_empty(*size, 3 * channels, times)
    _call("append_scale", x.numel() // (channels * times), channels, times, flat, quiet, x, out, _room(times))
    return out


def _features(x: Tensor, window: Tensor, points: int, quiet: float) -> Tensor:
    x = x.contiguous()
    times = x.shape[-1]
    rows, means, bands = x.numel() // times, min(points, times), min(points, times // 2)
    out, windowed, room = x.new_empty(*x.shape[:-1], means + bands + 2), _room(rows, times), _room(times)
    numbers = rows, times, means, bands, quiet
    _call("features_of", *numbers, x, window, windowed, room, out)
    _call("features_bands", *numbers, torch.view_as_real(torch.fft.rfft(windowed)), room, out)
    return out


def _tangent(x: Tensor, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    windows = x.numel() // (channels * times)
    correlation, out = _room(windows, channels, channels), x.new_empty(*size, 1, channels * (channels + 3) // 2)
    _call("tangent_of", windows, channels, times, quiet, x, _room(channels, times), correlation, out)
    values, vectors = torch.linalg.eigh(correlation)
    below = vectors.mT.contiguous()  # as they come
    _call("tangent_upper", windows, channels, quiet, values, below, _room(2 * channels + 1, channels), out)
    return out


def _templates(x: Tensor, filters: Tensor, responses: Tensor, points: int, flat: float, quiet: float) -> Tensor:
    x, filters, responses = x.contiguous(), filters.contiguous(), responses.contiguous()
    members, count, channels = filters.shape
    windows, times = x.shape[1], x.shape[-1]
    points = min(points, times)
    out, shared = x.new_empty(members, windows, count * (points + 1)), int(len(x) == 1)
    numbers = members, shared, windows, channels, times, count, points, flat, quiet
    _call("templates_of", *numbers, x, filters, responses, _room(times), out)
    return out


# ---- by their names --------------------------------------------------------------------------------------------------

operations = SimpleNamespace(
    networks=_networks, standardise=_standardise, append_scale=_append_scale, features=_features, tangent=_tangent,
    templates=_templates,
)  # fmt: skip
