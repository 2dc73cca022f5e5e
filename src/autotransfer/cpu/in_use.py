"""Kernels of a model in use: everything that is computed for one window, or a few, of one person.

Each has a reference in plain torch code where it is used, which also serves where there is no kernel.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_long, c_void_p
from dataclasses import dataclass, fields
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import available, run_on
from .boundary import Expected, address, addresses, check_index, check_sizes, need_library

FEW = 16  # windows; one thread works on them, because starting others takes longer


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


@dataclass(frozen=True, eq=False)
class Networks:
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
        codes: Tensor = operations.networks(self, x, group)
        return codes

    def __reduce__(self) -> tuple[type[Networks], tuple[Any, ...]]:
        """Without `task`: a copy has its weights elsewhere."""
        return Networks, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def task(self) -> _Networks:
        """All that does not depend on the windows, checked once: weights stay in place as long as their addresses."""
        power, rest = self.power or (None,) * 3, self.rest or (None,) * 5
        _check_together("networks", "power", *power)
        _check_together("networks", "the second filter", *rest)
        (constant, power_scale, power_shift), (scale, shift, depthwise, pointwise, bias) = power, rest
        (members, filters, taps), channels = self.temporal.shape, self.spatial.shape[-1]
        hidden, second_taps = (0, 1) if bias is None or depthwise is None else (bias.shape[1], depthwise.shape[-1])
        pool, second_pool = self.pools
        check_sizes(
            "networks", stretch=self.stretch, pool=pool, second_pool=second_pool, taps=taps, second_taps=second_taps
        )
        check_sizes("networks", 0, levels=self.levels, signals=channels - self.levels)
        per_filter = members, filters
        places = addresses(
            "networks", spatial=Expected(self.spatial, (*per_filter, channels)),
            temporal=Expected(self.temporal, (*per_filter, taps)), constant=Expected(constant, per_filter),
            power_scale=Expected(power_scale, per_filter), power_shift=Expected(power_shift, per_filter),
            scale=Expected(scale, per_filter), shift=Expected(shift, per_filter),
            depthwise=Expected(depthwise, (*per_filter, second_taps)),
            pointwise=Expected(pointwise, (members, hidden, filters)), bias=Expected(bias, (members, hidden)),
        )  # fmt: skip
        return _Networks(
            **places, channels=channels - self.levels, levels=self.levels, filters=filters, taps=taps,
            stretch=self.stretch, pool=pool, second_taps=second_taps, second_pool=second_pool, hidden=hidden,
            floor=self.floor,
        )  # fmt: skip


def _networks(networks: Networks, x: Tensor, group: Tensor) -> Tensor:
    """`Networks`, as the kernel takes it."""
    task = _Networks.from_buffer_copy(networks.task)  # several threads may have windows for the same networks
    groups, windows, _, times = x.shape
    members, filters = networks.temporal.shape[0], task.filters
    check_sizes("networks", times=times)
    latent = task.hidden * (times // task.pool // task.second_pool)
    if networks.power is not None:
        latent += filters * (times // task.stretch)
    x, out = x.contiguous(), x.new_empty(members, windows, latent)
    task.x = address("networks", "x", Expected(x, (groups, windows, task.channels + task.levels, times)))
    task.group = check_index("networks", "group", group, members, groups)
    task.out = address("networks", "out", Expected(out, out.shape))
    task.windows, task.times, task.latent = windows, times, latent
    run_on(1 if windows <= FEW else torch.get_num_threads(), "networks", members, task)
    return out


def _check_together(operation: str, what: str, *tensors: Tensor | None) -> None:
    """All of them are there, or none is."""
    if len({tensor is None for tensor in tensors}) > 1:
        raise RuntimeError(f"autotransfer::{operation}: expected all weights of {what} or none, but some are missing")


# ---- preprocessing ---------------------------------------------------------------------------------------------------

F64 = torch.float64
POINTS = 16  # stretches, at most; as in kernels.c
ORDERS = 16  # coefficients of an autoregression, at most; as in kernels.c


# Arguments of functions in kernels.c: whole numbers, numbers, places of tensors.
ARGUMENTS = {
    "standardise_rows": "nnppp", "append_scale": "nnnddppp", "features_of": "nnnndppppp", "features_bands": "nnnndppp",
    "tangent_of": "nnndpppp", "tangent_upper": "nndpppp", "templates_of": "nnnnnnnddppppp", "hudgins_of": "nnndppp",
    "ls_of": "nnndpppp", "tdpsd_of": "nndddppp", "statistics_of": "nnndddppppppppppp",
    "statistics_spectra": "nnnddpppp", "beats_of": "nnnnndpppppp", "segments_of": "nnnnnppp",
    "bands_of": "nnnnnddpppp", "band_tangent_of": "nnnnndppppp", "rhythms_of": "nnnnnnnndpppppp",
    "minirocket_of": "nnnnnnnnppppppppp",
}  # fmt: skip
TYPES = {"n": c_long, "d": c_double, "p": c_void_p}


def _call(name: str, *given: Expected | Tensor | int | float) -> None:
    """Call a function of kernels.c. A tensor that is not `Expected` is not checked: it was made for the call, to fit
    those that are."""
    function = getattr(need_library(name), name)
    if function.argtypes is None:
        function.restype, function.argtypes = None, [TYPES[letter] for letter in ARGUMENTS[name]]
    arguments: list[int | float] = []
    for place, value in enumerate(given):
        if type(value) is Expected:
            arguments.append(address(name, f"argument {place}", value))
        else:
            arguments.append(value.data_ptr() if isinstance(value, Tensor) else value)  # type: ignore[arg-type]  # a number
    function(*arguments)


def _whole(tensor: Tensor, dtype: torch.dtype = torch.float32) -> Expected:
    """A tensor whose shape the others follow."""
    return Expected(tensor, tensor.shape, dtype)


def _room(*size: int) -> Tensor:
    """Memory that a kernel works in."""
    return torch.empty(size, dtype=F64)


def _check_points(operation: str, points: int, times: int) -> None:
    check_sizes(operation, points=points, times=times)
    if points > POINTS:
        raise RuntimeError(f"autotransfer::{operation}: expected at most {POINTS} points, but there are {points}")


def _standardise(x: Tensor) -> Tensor:
    x = x.contiguous()
    out, times = torch.empty_like(x), x.shape[-1]
    check_sizes("standardise", times=times)
    _call("standardise_rows", x.numel() // times, times, _whole(x), out, _room(times))
    return out


def _append_scale(x: Tensor, flat: float, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    check_sizes("append_scale", channels=channels, times=times)
    out, windows = x.new_empty(*size, 3 * channels, times), x.numel() // (channels * times)
    _call("append_scale", windows, channels, times, flat, quiet, _whole(x), out, _room(times))
    return out


def _features(x: Tensor, window: Tensor, points: int, quiet: float) -> Tensor:
    x = x.contiguous()
    times = x.shape[-1]
    _check_points("features", points, times)
    check_sizes("features", 2, times=times)
    rows, means, bands = x.numel() // times, min(points, times), min(points, times // 2)
    out, windowed, room = x.new_empty(*x.shape[:-1], means + bands + 2), _room(rows, times), _room(times)
    numbers, hann = (rows, times, means, bands, quiet), Expected(window, (times,), F64)
    _call("features_of", *numbers, _whole(x), hann, windowed, room, out)
    spectra = torch.view_as_real(torch.fft.rfft(windowed))
    _call("features_bands", *numbers, _whole(spectra, F64), room, out)
    return out


def _tangent(x: Tensor, quiet: float) -> Tensor:
    x = x.contiguous()
    *size, channels, times = x.shape
    check_sizes("tangent", channels=channels, times=times)
    windows, square = x.numel() // (channels * times), (channels, channels)
    correlation, out = x.new_empty(windows, *square, dtype=F64), x.new_empty(*size, 1, channels * (channels + 3) // 2)
    room, matrices = _room(channels, times), _whole(correlation, F64)
    _call("tangent_of", windows, channels, times, quiet, _whole(x), room, matrices, out)
    _logarithms(correlation, quiet, out)
    return out


def _logarithms(correlation: Tensor, quiet: float, out: Tensor) -> None:
    """Upper triangles of the logarithms of matrices (N, C, C), into out (N, C + C (C + 1) / 2) after C numbers."""
    windows, channels, _ = correlation.shape
    values, vectors = torch.linalg.eigh(correlation)
    below, room = _whole(vectors.mT.contiguous(), F64), _room(2 * channels + 1, channels)  # vectors as they come
    _call("tangent_upper", windows, channels, quiet, _whole(values, F64), below, room, out)


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
    _call("templates_of", *numbers, signals, _whole(filters), known, _room(times), out)
    return out


# ---- representations -------------------------------------------------------------------------------------------------


def _rows_of(x: Tensor, operation: str, shortest: int = 4) -> tuple[Tensor, int, int]:
    """Windows (..., T) as they lie in memory, how many rows they have, and T."""
    times = x.shape[-1]
    check_sizes(operation, shortest, times=times)
    return x.contiguous(), x.numel() // times, times


def _hudgins(x: Tensor, order: int, quiet: float) -> Tensor:
    """order: of the autoregression; 0: without it."""
    x, rows, times = _rows_of(x, "hudgins", max(4, order + 1))
    check_sizes("hudgins", 0, order=order, orders_left=ORDERS - order)
    out = x.new_empty(*x.shape[:-1], 4 + order)
    _call("hudgins_of", rows, times, order, quiet, _whole(x), _room(3, times), out)
    return out


def _ls(x: Tensor, nine: bool, quiet: float) -> Tensor:
    """nine: LS9, else LS4."""
    x, rows, times = _rows_of(x, "ls")
    out = x.new_empty(*x.shape[:-1], 8 if nine else 4)
    _call("ls_of", rows, times, int(nine), quiet, _whole(x), _room(2, times), x.new_empty(2, times), out)
    return out


def _tdpsd(x: Tensor, power: float, flat: float, quiet: float) -> Tensor:
    x, rows, times = _rows_of(x, "tdpsd")
    out = x.new_empty(*x.shape[:-1], 7)
    _call("tdpsd_of", rows, times, power, flat, quiet, _whole(x), _room(2, times), out)
    return out


class StatisticsTables(NamedTuple):
    """What `statistics` needs beside windows of T samples, all of it the same for all of them."""

    hann: Tensor  # (T,)
    ramp: Tensor  # (T,)
    place: Tensor  # (5,) int64: ranks below the quantiles
    share: Tensor  # (5,)
    lags: Tensor  # (4,) int64
    frequency: Tensor  # (2, T // 2)


def _statistics(x: Tensor, tables: StatisticsTables, high: float, most: float, least: float, quiet: float) -> Tensor:
    x, rows, times = _rows_of(x, "statistics")
    *size, channels, _ = x.shape
    windows = rows // max(channels, 1)
    check_index("statistics", "place", tables.place, 5, times - 1)
    check_index("statistics", "lags", tables.lags, 4, times)
    out = x.new_empty(*size, 1, 26 * channels + channels * (channels - 1) // 2)
    windowed, ranked = _room(rows, times), x.new_empty(2, times)
    hann, ramp = (Expected(table, (times,), F64) for table in (tables.hann, tables.ramp))
    share = Expected(tables.share, (5,), F64)
    numbers = windows, channels, times
    _call(
        "statistics_of", *numbers, high, most, quiet, _whole(x), hann, ramp, tables.place, share, tables.lags, windowed,
        _room(channels, times), _room(times), ranked, out,
    )  # fmt: skip
    spectra = torch.view_as_real(torch.fft.rfft(windowed))
    frequency = Expected(tables.frequency, (2, times // 2), F64)
    _call("statistics_spectra", *numbers, least, quiet, _whole(spectra, F64), frequency, _room(times), out)
    return out


def _beats(x: Tensor, half: int, points: int, quiet: float) -> Tensor:
    """half: samples before and after a beat; points: stretches that they become."""
    x, rows, times = _rows_of(x, "beats")
    check_sizes("beats", half=half, points=points, samples_left=2 * half + 2 - points)
    channels = x.shape[-2]
    out, rooms = x.new_empty(*x.shape[:-1], points + 1), (_room(channels, times), _room(2 * half + 1), _room(times))
    windows = rows // max(channels, 1)
    _call("beats_of", windows, channels, times, half, points, quiet, _whole(x), *rooms, _room(points), out)
    return out


def _coefficients(operation: str, x: Tensor, waves: Tensor) -> Tensor:
    """Windows (..., T) less their means, in segments that overlap by half, times waves (length of a segment, K):
    (..., segments, K)."""
    x, rows, times = _rows_of(x, operation)
    address(operation, "waves", _whole(waves, F64))
    length = waves.shape[0]
    check_sizes(operation, length=length, segments=times - length + 1)
    step = max(1, length - length // 2)
    segments = (times - length) // step + 1
    cut = _room(*x.shape[:-1], segments, length)
    _call("segments_of", rows, times, segments, length, step, _whole(x), _room(times), cut)
    return cut @ waves


def _check_bands(operation: str, sizes: Tensor, waves: int) -> tuple[int, int]:
    """How many bands and bins there are; sizes: bins of each band."""
    check_index(operation, "sizes", sizes, sizes.shape[0], waves // 2 + 1)
    bins = int(sizes.sum())
    if waves != 2 * bins:
        raise RuntimeError(f"autotransfer::{operation}: expected {2 * bins} waves for so many bins, but it is {waves}")
    return sizes.shape[0], bins


def _bands(x: Tensor, waves: Tensor, sizes: Tensor, flat: float, quiet: float) -> Tensor:
    """waves: (length of a segment, 2 bins), cosines first; sizes: (bands,) int64, how many bins each band has."""
    coefficients = _coefficients("bands", x, waves)
    *size, channels, segments, both = coefficients.shape
    bands, bins = _check_bands("bands", sizes, both)
    references = 1 if channels == 1 else 2
    room = _room(segments * both + references * channels * bands)
    out, windows = (
        x.new_empty(*size, references * channels, bands),
        coefficients.numel() // (channels * segments * both),
    )
    numbers = windows, channels, segments, bins, bands
    _call("bands_of", *numbers, flat, quiet, _whole(coefficients, F64), sizes, room, out)
    return out


def _band_tangent(x: Tensor, waves: Tensor, sizes: Tensor, quiet: float) -> Tensor:
    """As `_bands`."""
    coefficients = _coefficients("band_tangent", x, waves)
    *size, channels, segments, both = coefficients.shape
    bands, bins = _check_bands("band_tangent", sizes, both)
    windows, square = coefficients.numel() // (channels * segments * both), (channels, channels)
    correlation, out = _room(windows * bands, *square), x.new_empty(*size, 1, bands * channels * (channels + 3) // 2)
    room = _room(channels, segments, 2 * int(sizes.max()))
    numbers = windows, channels, segments, bins, bands
    _call("band_tangent_of", *numbers, quiet, _whole(coefficients, F64), sizes, room, correlation, out)
    _logarithms(correlation, quiet, out)
    return out


class RhythmsTables(NamedTuple):
    """S sub-bands and F frequencies in windows of T samples, of whose spectrum `held_bins` from `first` on count."""

    first: int  # in multiples of the frequency resolution
    held_bins: int
    starts: Tensor  # (S,) int64: where each sub-band begins among the numbers that count; it ends with them
    waves: Tensor  # (2F, 2 held_bins): sines, then cosines; real and imaginary part in turn
    held: Tensor  # (H,) int64, of the S · F pairs


def _rhythms(x: Tensor, bank: RhythmsTables, ridge: float) -> Tensor:
    first, count, starts, waves, held = bank
    x, rows, times = _rows_of(x, "rhythms")
    *size, channels, _ = x.shape
    (bands,), frequencies, bins, basis = starts.shape, waves.shape[0] // 2, times // 2 + 1, 2 * count
    check_sizes("rhythms", 0, first=first, bins_left=bins - first - count)
    check_sizes("rhythms", bands=bands, frequencies=frequencies, count=count)
    check_index("rhythms", "held", held, held.shape[0], bands * frequencies)
    check_index("rhythms", "starts", starts, bands, basis + 1)
    if bool((starts[1:] < starts[:-1]).any()):
        raise RuntimeError("autotransfer::rhythms: expected starts that rise")
    centred = _room(*size, channels, times)
    _call("segments_of", rows, times, 1, times, times, _whole(x), _room(times), centred)
    spectra = torch.view_as_real(torch.fft.rfft(centred))
    out = x.new_empty(*size, 1, held.shape[0])
    room = _room((bands + 1) * channels * (channels + 2 * frequencies) + channels + bands * frequencies)
    _call(
        "rhythms_of", rows // max(channels, 1), channels, bins, 2 * first, basis, bands, frequencies, held.shape[0],
        ridge, _whole(spectra, F64), Expected(waves, (2 * frequencies, basis), F64), starts, held, room, out,
    )  # fmt: skip
    return out


class Convolutions(NamedTuple):
    """D · 84 kernels of MiniRocket."""

    spans: Tensor  # (D,) int64: dilations
    sizes: Tensor  # (D · 84,) int64: how many channels a kernel sums
    chosen: Tensor  # (D · 84, most) int64: which


def _minirocket(x: Tensor, kernels: Convolutions, thresholds: Tensor) -> Tensor:
    """thresholds: (G, D · 84, 3) -> (G, n, 1, D · 84 · 3)."""
    x, _, times = _rows_of(x, "minirocket", 9)
    thresholds, shared, groups = thresholds.contiguous(), int(x.shape[0] == 1), thresholds.shape[0]
    _, windows, channels, _ = x.shape
    spans, sizes, chosen = kernels
    (count, width), dilations = chosen.shape, spans.shape[0]
    beyond = 4 * int(spans[-1])
    check_index("minirocket", "spans", spans, dilations, int(spans[-1]) + 1)
    check_index("minirocket", "sizes", sizes, 84 * dilations, width + 1)
    check_index("minirocket", "chosen", chosen.view(-1), 84 * dilations * width, channels)
    levels = Expected(thresholds, (groups, count, 3), F64)
    out = x.new_empty(groups, windows, 1, 3 * count)
    padded, nines, room = _room(channels, times + 2 * beyond), _room(channels, times), _room(3 * times + 2 * beyond)
    _call(
        "minirocket_of", groups, shared, windows, channels, times, dilations, beyond, width,
        Expected(x, (1 if shared else groups, windows, channels, times)), spans, sizes, chosen, levels, padded, nines,
        room, out,
    )  # fmt: skip
    return out


# ---- by name ---------------------------------------------------------------------------------------------------------

operations = SimpleNamespace(
    networks=_networks, standardise=_standardise, append_scale=_append_scale, features=_features, tangent=_tangent,
    templates=_templates, hudgins=_hudgins, ls=_ls, tdpsd=_tdpsd, statistics=_statistics, beats=_beats, bands=_bands,
    band_tangent=_band_tangent, rhythms=_rhythms, minirocket=_minirocket,
)  # fmt: skip
