"""Validation of X: windows of finite numbers, converted to float32 without a second copy."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, one_line
from .chunks import window_chunks
from .labels import encode
from .raw import LARGEST as LARGEST
from .raw import SMALLEST_RANGE, Array
from .signal import Signal, channel_names, default_names

MIN_TIMES = 8
CLEANING = ", or load with --clean (in Python clean=True), which leaves out broken data"
STATE_FILTER = "state it with --filter or in meta, or filter the data"
AXES = "(windows, channels, times)"
REAL = "give real numbers, such as float32"
COMPLEX = "X holds {} values (Complex data not supported); " + REAL  # words of scikit-learn's check_estimator


class ModelInput(Protocol):
    """Windows that a model takes: a model card, or the recordings of training."""

    @property
    def signal(self) -> Signal: ...
    @property
    def n_times(self) -> int: ...


def validate_windows(
    X: object, expected: ModelInput, data: Signal | None = None, *, strict: bool = False
) -> tuple[Tensor, list[str]]:
    """Return X (N, channels, times) float32 in the model's order of channels, and warnings.

    Raise if X does not fit the model. data: what is known about X; by default, X has the model's channels. strict:
    whether an unknown filter is an error (see `Signal.check`).
    """
    source = as_window_array(X)
    n_channels = source.shape[1]
    if data is None and n_channels == len(expected.signal.channels):
        data = expected.signal.without_filter
    elif data is None or n_channels != len(data.channels):
        data = Signal(channels=channel_names(None if data is None else data.channels, n_channels))
    indices, warned = expected.signal.check(data, remedy=STATE_FILTER if strict else None)
    if indices != list(range(n_channels)):
        source = source[:, indices]
    if source.shape[2] != expected.n_times:
        raise UserError(
            f"windows of the data have {source.shape[2]} samples, the model expects {expected.n_times}; cut them again"
        )
    return float32_windows(source, expected.signal.channels, allow_constant=True), warned


def encode_subjects(subjects: object, n_windows: int) -> Tensor | None:
    """Return the subject of each window (N,), numbered from 0; None if unknown."""
    return None if subjects is None else encode(subjects, n_windows, "subjects")[0]


def as_window_array(X: object) -> Array | Tensor:
    """Return X as an array or tensor of real numbers with three axes that are not empty."""
    if isinstance(X, Tensor) and X.is_complex():
        raise UserError(COMPLEX.format(str(X.dtype).removeprefix("torch.")))
    if isinstance(X, Tensor) and (X.is_quantized or X.is_nested or X.is_meta or X.layout is not torch.strided):
        raise UserError(f"X is a tensor of {X.dtype}, {X.layout}, on {X.device}; give a dense tensor of real numbers")
    if is_epochs(X):
        raise UserError("X is mne.Epochs, whose rate and channels would be lost; use at.Recordings.from_epochs(epochs)")
    source = X.detach().cpu() if isinstance(X, Tensor) else _numeric_array(X)
    shape = tuple(source.shape)
    if len(shape) != 3:
        raise UserError(f"X has the shape {shape}. Reshape your data to {AXES}")  # words of check_estimator
    if 0 in shape:
        raise UserError(f"X has the shape {shape}; none of the axes {AXES} may be empty")
    if shape[2] < MIN_TIMES:
        raise UserError(f"X has the shape {shape}; the last of the axes {AXES} needs at least {MIN_TIMES} samples")
    return source


def is_epochs(X: object) -> bool:
    """Return whether X is an object of mne.Epochs."""
    return hasattr(X, "get_data") and hasattr(X, "info")


def _numeric_array(X: object) -> Array:
    if hasattr(X, "toarray") and hasattr(X, "nnz"):  # a SciPy matrix, which NumPy would convert to one object
        raise UserError(f"X is a sparse matrix; give a dense array {AXES}")
    if masked := _masked(X):
        raise UserError(f"X masks {masked} values; drop or interpolate them")
    try:
        source = np.asarray(X)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise UserError(f"X is not an array of numbers ({one_line(error)}); give {AXES}") from None
    if source.dtype.kind == "c":
        raise UserError(COMPLEX.format(source.dtype))
    if source.dtype.kind not in "biuf":
        raise UserError(f"X holds {source.dtype} values; {REAL}")
    return source


def _masked(X: object, lists: int = 2) -> int:
    """Count masked values, also in lists of arrays, whose masks NumPy would drop."""
    if isinstance(X, np.ma.MaskedArray):
        return int(np.ma.getmaskarray(X).sum())
    return sum(_masked(part, lists - 1) for part in X) if lists and isinstance(X, (list, tuple)) else 0


def axes_concern(shape: tuple[int, ...], names: tuple[str, ...]) -> str | None:
    """Return a warning if the channels of X are probably on the last axis instead of the second."""
    if shape[1] <= shape[2] or names != default_names(len(names)):
        return None
    return (
        f"X has {shape[1]} channels of {shape[2]} samples; if these are {shape[2]} channels of {shape[1]} "
        "samples, exchange the last two axes: X.transpose(0, 2, 1)"
    )


def float32_windows(source: Array | Tensor, names: tuple[str, ...], *, allow_constant: bool) -> Tensor:
    """Return X (N, channels, times) float32 after a check of every value; a float32 array is not copied.

    Without `allow_constant`, a channel with one value throughout is refused as a dead electrode.
    """
    X = _as_float32(source)
    lowest = torch.full((X.shape[1],), float("inf"))
    highest = torch.full((X.shape[1],), float("-inf"))
    unusable = []  # (n, 2) window and channel
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
        raise UserError(f"channel {names[dead[0]]!r} is {value:g} in all windows{others}; leave it out{CLEANING}")
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
            # A memory-mapped file is not writable, and nothing writes to X.
            warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
            return torch.from_numpy(source)
    X = torch.empty(source.shape, dtype=torch.float32)
    target: Any = X if isinstance(source, Tensor) else X.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values, which are reported
        for rows in window_chunks(source):
            target[rows] = source[rows]
    return X


def _unusable(indices: Tensor, source: Array | Tensor, names: tuple[str, ...], cleaning: str) -> UserError:
    """Describe NaN, infinite or too large values; indices: (n, 2) window and channel."""
    lost = [not np.isfinite(np.asarray(source[t, c], np.float64)).all() for t, c in indices.tolist()]
    indices = indices[torch.tensor(lost)] if any(lost) else indices
    problem = "NaN or infinite values" if any(lost) else f"values beyond ±{LARGEST:g}"
    remedy = f"drop or interpolate them{cleaning}" if any(lost) else "give X in another unit or drop them"
    window, channel = indices[0].tolist()
    n_windows = len(set(indices[:, 0].tolist()))
    return UserError(
        f"X has {problem} in {n_windows} of {source.shape[0]} windows, first in window {window}, channel "
        f"{names[channel]!r}; {remedy}"
    )
