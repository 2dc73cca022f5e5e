"""Lab Streaming Layer (LSL): a source that reads a stream of samples, and a sink that sends decisions.

The environment variable LSLAPICFG contains the path of the configuration file of LSL.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError, one_line
from ...recordings.optional import need
from ...recordings.signal import Signal, channel_names, common_unit
from ..events import Activation
from .cutter import Chunk

CONNECT_SECONDS = 10.0  # time in which a stream must appear
PULL_SECONDS = 0.05  # time that one call waits for samples
SILENCE_SECONDS = 1.0  # time without samples after which the stream is searched again
BUFFER_SECONDS = 30  # samples that wait longer are lost


def import_lsl() -> Any:
    return need("mne_lsl.lsl", "the Lab Streaming Layer", "mne-lsl")


class LslSource:
    """Source that reads the stream of a given name, and connects again if the stream was interrupted."""

    is_live = True
    stored_times: int | None = None  # the signal is continuous

    def __init__(self, stream: str, timeout: float = CONNECT_SECONDS) -> None:
        self.stream, self.name, self.lsl = stream, f"the stream {stream!r}", import_lsl()
        if not stream:
            raise UserError("the source is lsl: without a name; give lsl:NAME")
        self.inlet: Any = self._connect(timeout)
        if self.inlet is None:
            others = ", ".join(repr(info.name) for info in self.lsl.resolve_streams(timeout=1.0)) or "no streams"
            raise UserError(f"no stream {stream!r} appeared within {timeout:g} s; start it or choose from: {others}")
        self.signal = self._read_signal(self.inlet.get_sinfo(timeout=CONNECT_SECONDS))

    def _read_signal(self, info: Any) -> Signal:
        """Return the rate and the names of channels of a stream."""
        if not info.sfreq > 0:
            raise UserError(f"{self.name} has no regular rate; choose a stream of samples, not of events")
        if getattr(info, "dtype", None) is str:
            raise UserError(f"{self.name} contains text; choose a stream of samples, not of events")
        names = tuple(str(name) for name in info.get_channel_names() or ())
        is_complete = len(names) == info.n_channels == len(set(names))
        return Signal(
            channels=channel_names(names if is_complete else None, int(info.n_channels)),
            sfreq=float(info.sfreq),
            unit=common_unit(info.get_channel_units() or ()),
        )

    def _connect(self, timeout: float) -> Any:
        """Return an open inlet, or None if there is no such stream yet."""
        streams = self.lsl.resolve_streams(timeout=timeout, name=self.stream)
        if not streams:
            return None
        if len({info.source_id for info in streams}) > 1:
            raise UserError(f"{len(streams)} streams are named {self.stream!r}; stop or rename the others")
        try:
            inlet = self.lsl.StreamInlet(
                streams[0], max_buffered=BUFFER_SECONDS, recover=False, processing_flags=["clocksync"]
            )
            inlet.open_stream(timeout=max(timeout, 2.0))
        except (RuntimeError, TimeoutError, OSError):  # the stream ended while it was opened
            return None
        return inlet

    def chunks(self) -> Iterator[Chunk | None]:
        """Yield samples as they arrive, and None if no samples arrived within PULL_SECONDS."""
        last_sample = time.monotonic()
        while True:
            chunk = self._pull()
            if chunk is not None:
                last_sample = time.monotonic()
            elif time.monotonic() - last_sample > SILENCE_SECONDS:
                self._find_again()
                last_sample = time.monotonic()
            yield chunk

    def _pull(self) -> Chunk | None:
        if self.inlet is None:
            time.sleep(PULL_SECONDS)
            return None
        try:
            values, times = self.inlet.pull_chunk(timeout=PULL_SECONDS, max_samples=1024)
        except (RuntimeError, TimeoutError, OSError):  # the stream ended
            self.close()
            return None
        if len(times) == 0:
            return None
        return Chunk(np.array(times, dtype=np.float64), np.array(values, dtype=np.float32))

    def _find_again(self) -> None:
        """Connect again; a stream with other channels or another rate is refused."""
        self.close()
        self.inlet = self._connect(0.2)
        if self.inlet is None:
            return
        if self._read_signal(self.inlet.get_sinfo(timeout=CONNECT_SECONDS)) != self.signal:
            raise UserError(f"{self.name} is back with other channels or another rate; start autotransfer stream again")

    def close(self) -> None:
        if self.inlet is not None:
            with suppress(RuntimeError, TimeoutError, OSError):
                self.inlet.close_stream()
            self.inlet = None

    def now(self) -> float:
        """Return the current time on the clock of the time stamps."""
        return float(self.lsl.local_clock())


class LslSink:
    """Sink that sends every decision as a sample.

    Channels are the probability of each class, the index of the most probable class and, with events, the index of a
    class that becomes active or -1.
    """

    def __init__(self, stream: str, classes: Sequence[str], source: str, events: bool = False) -> None:
        if not stream:
            raise UserError("the output is lsl: without a name; give lsl:NAME")
        lsl = import_lsl()
        self.classes, self.events, names = list(classes), events, [*classes, "class", *["event"] * events]
        info = lsl.StreamInfo(stream, "Probabilities", len(names), 0.0, "float32", f"autotransfer {source}")
        info.set_channel_names(names)
        try:
            self.outlet = lsl.StreamOutlet(info)
        except RuntimeError as error:
            raise UserError(f"cannot open the stream {stream!r} ({one_line(error)}); choose another name") from None

    def send(
        self, time: float, window: int, probability: NDArray[np.float64], activation: Activation | None = None
    ) -> None:
        event = [-1 if activation is None else self.classes.index(str(activation.label))] * self.events
        sample = np.array([*probability, probability.argmax(), *event], dtype=np.float32)
        self.outlet.push_sample(sample, timestamp=time)

    def close(self) -> None:
        del self.outlet
