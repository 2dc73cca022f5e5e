"""Sources of samples: a stream of the Lab Streaming Layer, or a file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, shown
from ...models.model import Model
from ...recordings import read_npz
from ...recordings.filters import Filter
from ...recordings.labels import as_list
from ...recordings.optional import need, reading
from ...recordings.signal import Signal, agree_on_rate, channel_names, check_sfreq
from ...recordings.timestamps import PIECE
from ...recordings.windows import as_window_array
from ...recordings.xdf import find_unit, get_channel_labels, read_sampled_stream, sampling_rate
from .cutter import Chunk
from .lsl import LslSource

STATE_FILTER = "state it in meta, or filter samples that are not filtered here, such as --filter 5-45"


class Source(Protocol):
    name: str
    signal: Signal  # of the samples
    is_live: bool  # whether samples arrive in real time
    stored_times: int | None  # samples per window of a file, whose ends no cut window crosses; None: continuous

    def chunks(self) -> Iterator[Chunk | None]:
        """Yield samples as they arrive, and None from time to time if none arrive."""

    def close(self) -> None: ...


def match_signal(
    source: Source, model: Model, filtered: Filter | None, *, by_position: bool = False
) -> tuple[list[int], list[str]]:
    """Return the indices of the model's channels in the source, and notes for the user; raise if it does not fit.

    A source without a rate gets the rate of the model. filtered: filter of the samples of windows, None if unknown.
    """
    own, rate, notes = model.card.signal, source.signal.sfreq, list[str]()
    if rate is None:
        if own.sfreq is None:
            raise UserError(f"neither {source.name} nor the model states a sampling rate; give --sfreq")
        notes = [f"{source.name} states no sampling rate; the model's rate is used, {own.sfreq:g} Hz"]
        source.signal = replace(source.signal, sfreq=own.sfreq)
    remedy = None if source.is_live else STATE_FILTER
    match = own.check(replace(source.signal, filter=filtered), remedy=remedy, by_position=by_position)
    given, used = len(source.signal.channels), len(match.channels)
    if given > used:
        notes.append(f"{source.name} has {given} channels, of which the model uses {used}, found by name")
    return match.channels, notes + match.warnings


def open_source(text: str, sfreq: float | None = None) -> Source:
    """Open lsl:NAME, FILE.npz or FILE.xdf?stream=NAME; sfreq: rate in Hz of a source that does not state one."""
    check_sfreq(sfreq)
    source = _open_source(text)
    try:
        source.signal = replace(source.signal, sfreq=agree_on_rate(source.signal.sfreq, sfreq, source.name))
    except UserError:
        source.close()
        raise
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
    signal: Signal
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
        n_windows, _, n_times = self.X.shape
        self.stored_times = n_times if n_windows > 1 else None
        session = [None] * n_windows if raw.session is None else as_list(raw.session, "session")
        # (n_windows,) whether a window belongs to the session of the previous window
        self.continues_session = [False, *(before == after for before, after in pairwise(session))]
        self.signal = Signal.from_raw(replace(raw, X=self.X))

    def chunks(self) -> Iterator[Chunk | None]:
        assert self.signal.sfreq is not None, "match_signal sets it"
        step = 1 / self.signal.sfreq
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
        rate, source, notes = sampling_rate(signal, self.times)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        names = channel_names(get_channel_labels(signal["info"], values.shape[1]), values.shape[1])
        self.signal = Signal(
            channels=names,
            sfreq=rate,
            filter=Filter(),
            unit=find_unit(signal["info"]),
            sources={"sfreq": source},
        )
