"""Sources of samples: a stream of the Lab Streaming Layer, or a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, shown
from ...models.model import Model
from ...recordings import read_npz
from ...recordings.container import check_sfreq
from ...recordings.labels import as_list
from ...recordings.optional import need, reading
from ...recordings.timestamps import PIECE
from ...recordings.windows import (
    UNNAMED,
    as_window_array,
    channel_names,
    check_channel_count,
    check_rate,
    find_channels,
)  # fmt: skip
from ...recordings.xdf import get_channel_labels, read_sampled_stream, sampling_rate
from .cutter import Chunk
from .lsl import LslSource

RATES_AGREE = 1e-3  # relative tolerance, because streams state the nominal rate of the device


class Source(Protocol):
    name: str
    channels: tuple[str, ...] | None  # None: no names
    n_channels: int
    sfreq: float | None  # None: not stated
    is_live: bool  # whether samples arrive in real time
    stored_times: int | None  # samples per window of a file, whose ends no cut window crosses; None: continuous

    def chunks(self) -> Iterator[Chunk | None]:
        """Yield samples as they arrive, and None from time to time if none arrive."""

    def close(self) -> None: ...


def match_channels(source: Source, model: Model, *, by_position: bool = False) -> tuple[list[int], list[str]]:
    """Return the places of the model's channels in the source, by name if it has names, and notes for the user."""
    expected, names = list(model.card.channels), source.channels
    if names is not None and not by_position:
        places, missing = find_channels(names, expected)
        if not missing:
            note = f"{source.name} has {len(names)} channels, of which the model uses {len(expected)}, found by name"
            return places, [] if places == list(range(source.n_channels)) else [note]
        if len(names) == len(expected) or not all(UNNAMED.fullmatch(name) for name in expected):
            raise UserError(
                f"{source.name} has no channel {missing[0]!r} of the model; it has {_shorten(names)}. Rename channels, "
                "or give --by-position if they are in the model's order"
            )
    listed = "" if names is None else f": {_shorten(names)}"
    check_channel_count(source.n_channels, expected, f"{listed} ({source.name}); the model uses {_shorten(expected)}")
    return list(range(len(expected))), []


def match_rate(source: Source, sfreq: float | None) -> float:
    """Return the rate in Hz, which must be equal in source and model; a source without one gets the model's."""
    if source.sfreq is None:
        if sfreq is None:
            raise UserError(f"neither {source.name} nor the model states a sampling rate; give --sfreq")
        source.sfreq = sfreq
        return sfreq
    check_rate(source.sfreq, sfreq, RATES_AGREE)
    return source.sfreq


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def open_source(text: str, sfreq: float | None = None) -> Source:
    """Open lsl:NAME, FILE.npz or FILE.xdf?stream=NAME; sfreq: rate in Hz of a source that does not state one."""
    rate = check_sfreq(sfreq)
    source = _open_source(text)
    if rate is None or source.sfreq is None:
        source.sfreq = rate if source.sfreq is None else source.sfreq
    elif abs(source.sfreq - rate) > RATES_AGREE * rate:
        source.close()
        raise UserError(f"--sfreq is {rate:g} Hz, but {source.name} states {source.sfreq:g} Hz; remove --sfreq")
    return source


def _open_source(text: str) -> Source:
    if text.startswith("lsl:"):
        return LslSource(text.removeprefix("lsl:"))
    path, _, name = text.partition("?stream=")
    if path.lower().endswith(".npz") and not name:
        return NpzSource(Path(path))
    if path.lower().endswith((".xdf", ".xdfz", ".xdf.gz")):
        return XdfSource(Path(path), name or None)
    raise UserError(f"the source is {shown(text)}; give lsl:NAME, a .npz file or an .xdf file")


class StoredSource:
    """Source of stored samples: times (n,), values (n, channels)."""

    is_live = False
    stored_times: int | None = None
    times: NDArray[np.float64]
    values: NDArray[np.float32]

    def chunks(self) -> Iterator[Chunk | None]:
        for start in range(0, len(self.times), PIECE):
            rows = slice(start, start + PIECE)
            yield Chunk(self.times[rows], self.values[rows])

    def close(self) -> None:
        pass


class NpzSource(StoredSource):
    """Source of one subject's windows in an .npz file; a long recording is one window X (1, channels, times)."""

    def __init__(self, path: Path) -> None:
        raw = read_npz(path)
        subjects = set() if raw.subject is None else set(np.asarray(raw.subject).ravel().tolist())
        if len(subjects) > 1:
            raise UserError(f"{path} has {len(subjects)} subjects, a stream has one; keep the windows of one subject")
        self.name, self.X = str(path), np.asarray(as_window_array(raw.X))
        n_windows, self.n_channels, n_times = self.X.shape
        self.stored_times = n_times if n_windows > 1 else None
        session = [None] * n_windows if raw.session is None else as_list(raw.session, "session")
        # (n_windows,) whether a window is of the previous one's session
        self.continues_session = [False, *(before == after for before, after in pairwise(session))]
        self.channels = None if raw.channels is None else channel_names(raw.channels, self.n_channels)
        self.sfreq = check_sfreq(raw.sfreq)

    def chunks(self) -> Iterator[Chunk | None]:
        assert self.sfreq is not None, "match_rate sets it"
        step = 1 / self.sfreq
        index = 0
        for stored, continues in zip(self.X, self.continues_session, strict=True):
            for start in range(0, stored.shape[1], PIECE):
                values = stored[:, start : start + PIECE].T.astype(np.float32)
                times = step * np.arange(index, index + len(values), dtype=np.float64)
                yield Chunk(times, values, starts_recording=start == 0, continues_session=continues)
                index += len(values)


class XdfSource(StoredSource):
    """Source of an .xdf recording of the Lab Streaming Layer, with its time stamps."""

    def __init__(self, path: Path, stream: str | None) -> None:
        need("pyxdf", "reading .xdf files", "pyxdf")
        if not path.is_file():
            raise UserError(f"there is no file {str(path)!r}; give an existing .xdf file")
        with reading(path):
            _, signal, values = read_sampled_stream(path, stream)
        self.name, self.values = str(path), values.astype(np.float32)
        self.times = np.asarray(signal["time_stamps"], dtype=np.float64)
        self.n_channels = values.shape[1]
        self.sfreq: float | None
        self.sfreq, notes = sampling_rate(signal, self.times)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        self.channels = get_channel_labels(signal["info"], self.n_channels)
