"""Validation of X: windows of finite numbers, converted to float32 without a second copy.

All callers pass windows to a model through `validate_windows`, so that a mistake gives the same message everywhere.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, one_line
from .chunks import window_chunks
from .labels import as_list, check_distinct, encode
from .raw import LARGEST as LARGEST
from .raw import SMALLEST_RANGE, Array

MIN_TIMES = 8
UNNAMED = re.compile(r"ch\d+")  # default names of channels
BLANK = re.compile(r"[\s_]+|\.+$")  # in which two spellings of a name may differ; A'1 and A1 are two electrodes
CLEANING = ", or load with --clean (in Python clean=True), which leaves out what is broken"
REAL = "give real numbers, such as float32"
COMPLEX = "X holds {} values (Complex data not supported); " + REAL  # scikit-learn's check_estimator wants these words


class ModelInput(Protocol):
    """What a model takes: the card of a model, or the recordings that it is trained on."""

    @property
    def channels(self) -> Sequence[str]: ...
    @property
    def n_times(self) -> int: ...
    @property
    def sfreq(self) -> float | None: ...


def validate_windows(X: object, made_for: ModelInput, channels: object = None, sfreq: float | None = None) -> Tensor:
    """Return X (N, channels, times) float32, refused unless it is what a model was made for.

    channels, sfreq: names and rate of the data; None where they are unknown
    """
    source = as_window_array(X)
    expected = list(made_for.channels)
    if channels is None:
        check_channel_count(source.shape[1], expected)
    else:
        names = channel_names(channels, source.shape[1])
        places, missing = find_channels(names, expected)
        if all(UNNAMED.fullmatch(name) for name in expected):  # numbers are no names: nothing is left out
            check_channel_count(source.shape[1], expected)
        if missing:
            raise UserError(
                f"the data have no channel {missing[0]!r}, which the model reads, but {', '.join(names[:8])}"
                f"{' …' * (len(names) > 8)}; if these are the same channels, give them the model's names"
            )
        if places != list(range(source.shape[1])):
            source = source[:, places]
    check_rate(sfreq, made_for.sfreq, 1e-6)
    if source.shape[2] != made_for.n_times:
        raise UserError(
            f"windows of the data have {source.shape[2]} samples, the model expects {made_for.n_times}; cut them again"
        )
    return float32_windows(source, tuple(expected), allow_constant=True)


def find_channels(names: Sequence[str], wanted: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return places of the wanted channels among those of the data, whatever their order and whatever else is there,
    and the wanted ones that are missing. Names may differ in case, spaces and dots at their end (Fc5., FC5) where
    that leaves no doubt."""
    plain, plain_wanted = ([BLANK.sub("", name.casefold()) for name in group] for group in (names, wanted))
    if len({*plain}) < len(plain) or len({*plain_wanted}) < len(plain_wanted) or "" in (*plain, *plain_wanted):
        plain, plain_wanted = list(names), list(wanted)
    missing = [name for name, key in zip(wanted, plain_wanted, strict=True) if key not in plain]
    return [plain.index(key) for key in plain_wanted if key in plain], missing


def check_channel_count(n_channels: int, expected: Sequence[str], listed: str = "") -> None:
    """Raise unless the data have as many channels as the model. listed: what else is known of the data's channels."""
    if n_channels != len(expected):
        raise UserError(f"the model takes {len(expected)} channels, the data have {n_channels}{listed}")


def check_rate(sfreq: float | None, expected: float | None, tolerance: float, what: str = "model") -> None:
    """Raise if two rates in Hz differ, None where unknown; tolerance: a share of the rate; what: what expects it."""
    if sfreq is not None and expected is not None and abs(sfreq - expected) > tolerance * expected:
        raise UserError(f"the data are sampled at {sfreq:g} Hz, the {what} expects {expected:g} Hz; resample them")


def encode_subjects(subjects: object, n_windows: int) -> Tensor | None:
    """Return the subject of each window (N,), numbered from 0; None if unknown."""
    return None if subjects is None else encode(subjects, n_windows, "subjects")[0]


def as_window_array(X: object) -> Array | Tensor:
    """Return X as an array or tensor of real numbers with three axes, none of them empty; values untouched."""
    if isinstance(X, Tensor) and X.is_complex():
        raise UserError(COMPLEX.format(str(X.dtype).removeprefix("torch.")))
    if isinstance(X, Tensor) and (X.is_quantized or X.is_nested or X.is_meta or X.layout is not torch.strided):
        raise UserError(f"X is a tensor of {X.dtype}, {X.layout}, on {X.device}; give a dense tensor of real numbers")
    source = X.detach().cpu() if isinstance(X, Tensor) else _numeric_array(X)
    shape = tuple(source.shape)
    if len(shape) != 3:
        raise UserError(
            f"X has the shape {shape}; it must have three axes. Reshape your data to (trials, channels, times)"
        )
    for size, axis in zip(shape, ("trials", "channels", "times"), strict=True):
        if size == 0:
            raise UserError(f"X has the shape {shape}, so it holds no {axis}; none of its axes may be empty")
    if shape[2] < MIN_TIMES:
        raise UserError(
            f"X has the shape {shape}, so {shape[2]} samples per window; at least {MIN_TIMES} are needed, "
            f"on the last of the axes (trials, channels, times)"
        )
    return source


def _numeric_array(X: object) -> Array:
    if hasattr(X, "toarray") and hasattr(X, "nnz"):  # of SciPy; NumPy would make one object of it
        raise UserError("X is a sparse matrix; windows are dense: give an array (trials, channels, times)")
    if masked := _masked(X):
        raise UserError(f"X masks {masked} values; drop or interpolate them")
    try:
        source = np.asarray(X)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise UserError(f"X is not an array of numbers ({one_line(error)}); give (trials, channels, times)") from None
    if source.dtype.kind == "c":
        raise UserError(COMPLEX.format(source.dtype))
    if source.dtype.kind not in "biuf":
        raise UserError(f"X holds {source.dtype} values; {REAL}")
    return source


def _masked(X: object, lists: int = 2) -> int:
    """Count masked values, also in lists of windows or rows, of which NumPy would make an array without masks."""
    if isinstance(X, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(X).sum())
    return sum(_masked(part, lists - 1) for part in X) if lists and isinstance(X, (list, tuple)) else 0


def channel_names(channels: object, n_channels: int) -> tuple[str, ...]:
    """Return names (channels,) as given, or ch0, ch1, ...; refused unless there is a different one for each channel."""
    given = (f"ch{c}" for c in range(n_channels)) if channels is None else as_list(channels, "channels")
    names = [str(name) for name in given]
    if len(names) != n_channels:
        raise UserError(f"channels holds {len(names)} names but X has {n_channels} channels; give one name per channel")
    check_distinct(names, "channels")
    return tuple(names)


def axes_concern(shape: tuple[int, ...], names: tuple[str, ...]) -> str | None:
    """Return a warning where the channels of X (N, channels, times) are probably on the last axis."""
    if shape[1] <= shape[2] or not all(UNNAMED.fullmatch(name) for name in names):
        return None
    return (
        f"X has {shape[1]} channels of {shape[2]} samples; if these are {shape[2]} channels of {shape[1]} "
        "samples, exchange the last two axes: X.transpose(0, 2, 1)"
    )


def float32_windows(source: Array | Tensor, names: tuple[str, ...], *, allow_constant: bool) -> Tensor:
    """Return X (N, channels, times) float32 after every value is checked.

    allow_constant: whether a channel may have one value throughout, which is normal in a single trial but in a whole
    study means a dead electrode. A float32 array is not copied: a memory-mapped file stays mapped.
    """
    X = _as_float32(source)
    lowest = torch.full((X.shape[1],), float("inf"))
    highest = torch.full((X.shape[1],), float("-inf"))
    unusable = []  # rows of (trial, channel)
    for rows in window_chunks(X):
        low, high = torch.aminmax(X[rows], dim=-1)  # (n, channels), NaN where a window holds one
        usable = (low >= -LARGEST) & (high <= LARGEST)
        if not usable.all():
            unusable.append((~usable).nonzero() + torch.tensor([rows.start, 0]))
        if not allow_constant:
            lowest = torch.minimum(lowest, low.amin(0))
            highest = torch.maximum(highest, high.amax(0))
    if unusable:
        raise _unusable(torch.cat(unusable), source, names, "" if allow_constant else CLEANING)
    dead = (lowest == highest).nonzero().flatten().tolist()
    if dead:
        value = lowest[dead[0]].item()
        others = f" ({len(dead)} such channels)" if len(dead) > 1 else ""
        raise UserError(f"channel {names[dead[0]]!r} is {value:g} in all recordings{others}; leave it out{CLEANING}")
    widest = (highest - lowest).max().item()
    if not allow_constant and widest < SMALLEST_RANGE:
        raise UserError(f"no channel of X varies by more than {widest:.1g}, too little to square; give another unit")
    return X


def _as_float32(source: Array | Tensor) -> Tensor:
    if isinstance(source, Tensor):
        if source.dtype == torch.float32:
            return source
    elif source.dtype == np.float32 and source.flags.aligned and all(s >= 0 and s % 4 == 0 for s in source.strides):
        with warnings.catch_warnings():
            # A file mapped for reading is not writable, and nothing writes to X.
            warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
            return torch.from_numpy(source)
    X = torch.empty(source.shape, dtype=torch.float32)
    target: Any = X if isinstance(source, Tensor) else X.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values, which are reported
        for rows in window_chunks(source):
            target[rows] = source[rows]
    return X


def _unusable(places: Tensor, source: Array | Tensor, names: tuple[str, ...], cleaning: str) -> UserError:
    """Describe windows that cannot be used. places: (n, 2) trial and channel of windows that hold NaN, infinite or
    too large values."""
    lost = [not np.isfinite(np.asarray(source[t, c], np.float64)).all() for t, c in places.tolist()]
    broken = any(lost)  # otherwise finite as given, so beyond what float32 or training can hold
    places = places[torch.tensor(lost)] if broken else places
    problem = "NaN or infinite values" if broken else f"values beyond ±{LARGEST:g}"
    remedy = f"drop or interpolate them{cleaning}" if broken else "give X in another unit or drop them"
    trial, channel = places[0].tolist()
    return UserError(
        f"X has {problem} in {len(set(places[:, 0].tolist()))} of {source.shape[0]} trials, first in trial {trial}, "
        f"channel {names[channel]!r}; {remedy}"
    )
