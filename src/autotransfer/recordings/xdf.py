"""XDF files, as LabRecorder writes them: one stream of samples, and the events of all streams of markers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, shown
from .cutting import Continuous, Cutting, Event
from .optional import need
from .raw import Array
from .signal import common_unit
from .timestamps import AGREE, Clock, check_bursts, has_time, measure_rate


def open_xdf(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    """Open a recording; `options["stream"]` names the stream of samples if there are several."""
    streams, signal, values = read_sampled_stream(path, options.get("stream"))
    stamps = np.asarray(signal["time_stamps"], dtype=np.float64)
    rate, source, notes = sampling_rate(signal, stamps)
    clock = Clock(stamps, rate, cutting.window)
    if clock.untimed.any():
        values = np.where(clock.untimed[:, None], np.nan, values)
    return Continuous(
        read=lambda start, stop: values[start:stop].T,
        n_times=len(stamps),
        channels=get_channel_labels(signal["info"], values.shape[1]) or tuple(f"ch{c}" for c in range(values.shape[1])),
        sfreq=rate,
        unit=find_unit(signal["info"]),
        sources={"sfreq": source},
        events=[event for stream in streams if _rate(stream) == 0 for event in _markers(stream, clock)],
        times=clock.times,
        breaks=clock.breaks,
        notes=notes,
    )


def sampling_rate(signal: Any, stamps: NDArray[np.float64]) -> tuple[float, str, tuple[str, ...]]:
    """Return the rate of a stream, its source and notes; measured if stamps (n,) contradict the stated rate."""
    check_bursts(stamps, f"the stream {_name(signal)!r}")
    stated, measured = _rate(signal), measure_rate(stamps[has_time(stamps)])
    if measured is None or abs(measured - stated) <= AGREE * stated:
        return stated, "stated", ()
    note = f"the stream states {stated:g} Hz, but the time stamps show {measured:g} Hz, which is used"
    return measured, "measured", (note,)


def read_sampled_stream(path: Path, wanted: str | None) -> tuple[list[Any], Any, Array]:
    """Return all streams, the stream of samples with this name, or the only one, and its values (samples, channels)."""
    pyxdf = need("pyxdf", "reading .xdf files", "pyxdf")
    logging.getLogger("pyxdf").setLevel(logging.ERROR)
    streams, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False, verbose=None)  # regular stamps would hide gaps
    sampled = [stream for stream in streams if _rate(stream) > 0 and len(stream["time_stamps"])]
    fitting = [stream for stream in sampled if wanted in (None, _name(stream))]
    if len(fitting) != 1:
        names = ", ".join(repr(_name(stream)) for stream in sampled) or "none"
        wrong = "no stream" if not fitting else f"{len(fitting)} streams"
        named = "" if wanted is None else f" named {shown(wanted)}"
        raise UserError(f"{str(path)!r} has {wrong} of samples{named}; it has {names}; choose one with ?stream=NAME")
    values = np.asarray(fitting[0]["time_series"])
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        raise UserError(
            f"the stream {_name(fitting[0])!r} of {str(path)!r} holds no numbers; choose another, ?stream=NAME"
        )
    return list(streams), fitting[0], values


def _name(stream: Any) -> str:
    return str(stream["info"]["name"][0])


def _rate(stream: Any) -> float:
    return float(stream["info"]["nominal_srate"][0])


def _markers(stream: Any, clock: Clock) -> list[Event]:
    """Return the events of the first channel of a stream of markers; whole numbers are written without a point."""
    names = [row[0] if np.ndim(row) else row for row in stream["time_series"]]
    texts = [str(name).strip() if isinstance(name, str) or name != int(name) else str(int(name)) for name in names]
    stamps = np.asarray(stream["time_stamps"], dtype=np.float64)
    events = zip(clock.seconds(stamps).tolist(), texts, has_time(stamps).tolist(), strict=True)
    return [Event(onset, 0.0, text) for onset, text, usable in events if usable]


def get_channel_labels(info: Any, n_channels: int) -> tuple[str, ...] | None:
    """Return the names of channels in the description of a stream; None unless they are complete and distinct."""
    labels = _describe_channels(info, "label")
    return tuple(labels) if len(labels) == n_channels == len(set(labels)) else None


def find_unit(info: Any) -> str | None:
    """Return the unit that the description of a stream states for all channels."""
    return common_unit(_describe_channels(info, "unit"))


def _describe_channels(info: Any, field: str) -> list[str]:
    """Return the values of a field in the description of channels; empty if a channel has none."""
    try:
        return [str(channel[field][0]) for channel in info["desc"][0]["channels"][0]["channel"]]
    except (KeyError, IndexError, TypeError):
        return []
