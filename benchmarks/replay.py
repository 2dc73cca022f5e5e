"""Send the windows of a file as one stream of the Lab Streaming Layer.

    python -m benchmarks.replay FILE.npz NAME

For tests, samples can be dropped, time stamps can jitter, and the stream can stop and return. The stream begins when a
receiver has connected. At the end, the dropped samples are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def open_outlet(name: str, channels: Sequence[str], sfreq: float) -> object:
    from mne_lsl.lsl import StreamInfo, StreamOutlet

    info = StreamInfo(name, "EEG", len(channels), sfreq, "float32", f"replay of {name}")
    info.set_channel_names(list(channels))
    return StreamOutlet(info)


def wait_for_receiver(outlet: object, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not outlet.has_consumers and time.monotonic() < end:  # type: ignore[attr-defined]  # mne-lsl has no types
        time.sleep(0.01)
    time.sleep(0.2)  # until the receiver has opened the stream


def send(
    options: argparse.Namespace, signal: NDArray[np.float32], channels: Sequence[str], sfreq: float,
    dropped: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Send a signal (samples, channels). dropped: (samples,) samples that are never sent."""
    from mne_lsl.lsl import local_clock

    warnings.filterwarnings("ignore", "A single sample is pushed", RuntimeWarning)  # a burst may leave a single sample
    draw, chunk = np.random.default_rng(options.seed), options.chunk
    outlet = open_outlet(options.name, channels, sfreq)
    wait_for_receiver(outlet)
    start_time, stamp = time.monotonic(), local_clock()
    for start in range(0, len(signal), chunk):
        if any(start <= stop < start + chunk for stop in options.stop):
            time.sleep(1.0)  # until the last samples have arrived
            del outlet
            time.sleep(options.pause)
            outlet = open_outlet(options.name, channels, sfreq)
            wait_for_receiver(outlet)
        due = start_time + (start + chunk) / sfreq / options.speed
        time.sleep(max(0.0, due - time.monotonic()))
        rows = np.arange(start, min(start + chunk, len(signal)))
        rows = rows[~dropped[rows]]
        stamps = stamp + rows / sfreq + draw.uniform(0, options.jitter)
        if len(rows):
            outlet.push_chunk(np.ascontiguousarray(signal[rows]), timestamp=stamps)  # type: ignore[attr-defined]
    time.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("name")
    parser.add_argument("--speed", type=float, default=1.0, help="speed relative to the recording")
    parser.add_argument("--seconds", type=float, help="seconds of signal to send; default: the whole file once")
    parser.add_argument("--drop", type=float, default=0.0, help="bursts of lost samples per minute")
    parser.add_argument("--jitter", type=float, default=0.0, help="largest delay of a time stamp in seconds")
    parser.add_argument("--stop", type=int, nargs="*", default=[], help="sample numbers at which the stream stops")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds until a stopped stream returns")
    parser.add_argument("--chunk", type=int, default=10, help="samples per chunk")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with np.load(options.file) as stored:  # importing autotransfer would take seconds
        X, meta = stored["X"].astype(np.float32), json.loads(str(stored["meta"]))
    signal, sfreq = np.concatenate(list(X), 1).T, float(meta["sfreq"])  # (samples, channels)
    if options.seconds is not None:
        samples = round(options.seconds * sfreq)
        signal = np.tile(signal, (-(-samples // len(signal)), 1))[:samples]
    draw = np.random.default_rng(options.seed)
    dropped = np.zeros(len(signal), bool)
    for _ in range(draw.poisson(options.drop * len(signal) / sfreq / 60)):
        start = draw.integers(1, len(signal) - 1)
        dropped[start : start + draw.integers(1, round(sfreq / 2))] = True
    dropped[-1] = False
    channels = meta.get("channels", [f"ch{c}" for c in range(signal.shape[1])])
    send(options, signal, channels, sfreq, dropped)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], dropped, [False]]).astype(int)))
    bursts = edges.reshape(-1, 2).tolist()
    print(json.dumps({"samples": len(signal), "dropped": int(dropped.sum()), "bursts": bursts}))


if __name__ == "__main__":
    main()
