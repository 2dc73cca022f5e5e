"""Where samples come from: a stream of the Lab Streaming Layer, or a file that takes its place."""

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
from ...recordings.continuous import reading
from ...recordings.labels import as_list
from ...recordings.optional import need
from ...recordings.timestamps import PIECE
from ...recordings.windows import (
    UNNAMED,
    as_window_array,
    channel_names,
    check_channel_count,
    check_rate,
    find_channels,
)
from ...recordings.xdf import get_channel_labels, read_sampled_stream, sampling_rate
from .cutter import Chunk
from .lsl import LslSource

RATES_AGREE = 1e-3  # share of a rate: streams state the nominal rate of their device


class Source(Protocol):
    name: str
    channels: tuple[str, ...] | None  # None: it has no names for them
    n_channels: int
    sfreq: float | None  # as the source states it
    live: bool  # whether samples come as time passes
    trial: int | None  # samples of each trial, which no window reaches beyond; None: there are no trials

    def chunks(self) -> Iterator[Chunk | None]:
        """Yield samples as they come; None now and then if none do."""

    def close(self) -> None: ...


def match_channels(source: Source, model: Model, *, by_position: bool = False) -> tuple[list[int], list[str]]:
    """Return the places of the model's channels in the source, and notes for the user. Channels are found by name; by
    position if the source has no names, or on request."""
    expected, names = list(model.card.channels), source.channels
    if names is not None and not by_position:
        places, missing = find_channels(names, expected)
        if not missing:
            note = f"{source.name} has {len(names)} channels; the model reads {len(expected)} of them, by name"
            return places, [] if places == list(range(source.n_channels)) else [note]
        if len(names) == len(expected) or not all(UNNAMED.fullmatch(name) for name in expected):
            raise UserError(
                f"{source.name} has no channel {missing[0]!r} of the model; it has {_shorten(names)}. Rename channels, "
                "or give --by-position if they are in the model's order"
            )
    listed = "" if names is None else f": {_shorten(names)}"
    check_channel_count(source.n_channels, expected, f"{listed} ({source.name}); the model reads {_shorten(expected)}")
    return list(range(len(expected))), []


def match_rate(source: Source, sfreq: float | None) -> float:
    """Return the rate in Hz, which source and model must share. A source that states none gets the model's."""
    if source.sfreq is None:
        if sfreq is None:
            raise UserError(f"neither {source.name} nor the model says how fast it is sampled; give --sfreq")
        source.sfreq = sfreq
        return sfreq
    check_rate(source.sfreq, sfreq, RATES_AGREE)
    return source.sfreq


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def open_source(text: str, sfreq: float | None = None) -> Source:
    """Open a source. text: lsl:NAME, FILE.npz, or FILE.xdf, where ?stream=NAME picks one of several streams. sfreq:
    the rate in Hz of a source that does not state it; one that contradicts the source is refused."""
    rate = check_sfreq(sfreq)
    source = _open_source(text)
    if rate is None or source.sfreq is None:
        source.sfreq = rate if source.sfreq is None else source.sfreq
    elif abs(source.sfreq - rate) > RATES_AGREE * rate:
        source.close()
        raise UserError(f"--sfreq is {rate:g} Hz, and {source.name} states {source.sfreq:g} Hz; leave --sfreq out")
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
    """Samples that are stored: times (n,), values (n, channels)."""

    live = False
    trial: int | None = None
    times: NDArray[np.float64]
    values: NDArray[np.float32]

    def chunks(self) -> Iterator[Chunk | None]:
        for start in range(0, len(self.times), PIECE):
            rows = slice(start, start + PIECE)
            yield Chunk(self.times[rows], self.values[rows])

    def close(self) -> None:
        pass


class NpzSource(StoredSource):
    """One person's trials in our layout, one after the other as in a session. A long recording is one trial, X (1,
    channels, times)."""

    def __init__(self, path: Path) -> None:
        raw = read_npz(path)
        people = set() if raw.subject is None else set(np.asarray(raw.subject).ravel().tolist())
        if len(people) > 1:
            raise UserError(f"{path} holds {len(people)} people, and a session is one person's; keep the rows of one")
        self.name, self.X = str(path), np.asarray(as_window_array(raw.X))
        n_windows, self.n_channels, n_times = self.X.shape
        self.trial = n_times if n_windows > 1 else None
        session = [None] * n_windows if raw.session is None else as_list(raw.session, "session")
        self.continues_session = [False, *(before == after for before, after in pairwise(session))]  # (n_windows,)
        self.channels = None if raw.channels is None else channel_names(raw.channels, self.n_channels)
        self.sfreq = check_sfreq(raw.sfreq)

    def chunks(self) -> Iterator[Chunk | None]:
        assert self.sfreq is not None, "match_rate gives it one"
        step = 1 / self.sfreq
        index = 0
        for trial, continues in zip(self.X, self.continues_session, strict=True):
            for start in range(0, trial.shape[1], PIECE):
                values = trial[:, start : start + PIECE].T.astype(np.float32)
                times = step * np.arange(index, index + len(values), dtype=np.float64)
                yield Chunk(times, values, starts_recording=start == 0, continues_session=continues)
                index += len(values)


class XdfSource(StoredSource):
    """A recording of the Lab Streaming Layer, with the time stamps that were recorded."""

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
