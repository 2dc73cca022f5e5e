"""Continuous recordings are filtered in the same way in files and in streams."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import butter, sosfilt, sosfilt_zi

import autotransfer as at
from autotransfer.person.stream.replay import RecordingSource
from autotransfer.person.stream.run import Stream
from autotransfer.recordings import Cutting, Raw
from autotransfer.recordings.cutting import Continuous, cut
from autotransfer.recordings.filters import Filter, parse_filter
from autotransfer.recordings.signal import Signal
from autotransfer.recordings.sources import WholeRecording
from faults import assert_one_line, call

RATE, LENGTH = 100.0, 50
CUT = Cutting(window=0.5, hop=0.1, filter="5-40,notch:30")


def signal(n: int = 3000, seed: int = 0) -> np.ndarray:
    """(n, 2), far from 0, as electrodes are."""
    return (np.random.default_rng(seed).standard_normal((n, 2)).cumsum(0) + 500).astype(np.float32)


def continuous(values: np.ndarray, **changes: Any) -> Continuous:
    return Continuous(
        read=lambda start, stop: values[start:stop].T.astype(np.float64), n_times=len(values), channels=("a", "b"),
        sfreq=RATE, **changes,
    )  # fmt: skip


class Kept:
    """A session that keeps the windows it is given."""

    def __init__(self, card: Any) -> None:
        self.windows: list[np.ndarray] = []
        self.classes_ = np.array(["x", "y"])
        self.model: Any = type("Model", (), {"card": card, "candidates": [type("Candidate", (), {"card": card})]})

    def predict_proba(self, window: np.ndarray) -> np.ndarray:
        self.windows.append(window)
        return np.array([0.5, 0.5])


class Sink:
    def send(self, *_: Any) -> None: ...

    def close(self) -> None: ...


def streamed(values: np.ndarray, times: np.ndarray, filtered: Filter | None) -> tuple[np.ndarray, Stream]:
    signals = Signal(channels=("a", "b"), sfreq=RATE)
    card = type(
        "Card", (), {"sfreq": RATE, "channels": ["a", "b"], "n_times": LENGTH, "signal": signals, "scale": None}
    )
    session: Any = Kept(card)
    own = WholeRecording(name="ann", subject="ann", values=values, times=times, signal=signals, events=())
    stream = Stream(session, RecordingSource(own), hop=0.1, filtered=filtered)
    stream.run(Sink())
    return np.stack(session.windows), stream


def block_of(recording: Continuous, cutting: Cutting = CUT) -> Raw:
    return cut(recording, cutting, Path("ann.edf"))


def test_windows_of_a_file_are_those_of_a_stream() -> None:
    values = signal()
    offline = block_of(continuous(values)).X
    spec = parse_filter(CUT.filter)
    assert spec is not None
    online, _ = streamed(values, np.arange(len(values)) / RATE, spec)
    np.testing.assert_array_equal(offline, online)
    sections = butter(4, [5, 40], "bandpass", fs=RATE, output="sos")
    only = block_of(continuous(values), Cutting(window=0.5, filter="5-40")).X
    start = sosfilt_zi(sections)[:, :, None] * values[0].astype(float)
    by_scipy = sosfilt(sections, values.astype(float), axis=0, zi=start)[0]
    np.testing.assert_allclose(np.concatenate(list(only), 1).T, by_scipy, atol=1e-3)
    assert not np.allclose(only[3], block_of(continuous(values), Cutting(window=0.5)).X[3], atol=1)


@pytest.mark.parametrize("hole", ["stamps", "values"])
def test_a_hole_begins_the_filter_anew_in_both(hole: str) -> None:
    values, times = signal(), np.arange(3000) / RATE
    if hole == "stamps":
        kept = np.r_[0:1010, 1090:3000]  # windows on both sides begin at multiples of the hop
        values, times = values[kept], times[kept]
        offline = block_of(continuous(values, times=times, breaks=(1010,))).X
    else:
        values[1015] = np.nan
        X = block_of(continuous(values)).X
        offline = X[np.isfinite(X).all((1, 2))]
    online, _ = streamed(values, times, parse_filter(CUT.filter))
    assert len(online) == len(offline) > 200
    np.testing.assert_array_equal(offline, online)


def files(folder: Path, people: int = 3) -> Path:
    for person in range(people):
        values = signal(1200, person)
        with (folder / f"p{person}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["a", "b", "label"])
            rows.writerows([*map(float, v), ("x", "y")[k // 100 % 2]] for k, v in enumerate(values))
    return folder


def test_the_model_keeps_the_filter_and_everything_uses_it(tmp_path: Path) -> None:
    folder = files(tmp_path)
    rec = at.load(
        folder, window=0.5, hop=0.25, events=["x", "y"], pattern="{subject}.csv", sfreq=RATE, filter="5-40,notch:30"
    )
    assert rec.signal.filter is not None
    assert rec.signal.filter.is_causal
    assert rec.signal.filter.design(RATE).shape == (5, 6)
    at.recordings.save_npz(tmp_path / "rec.npz", rec)
    assert at.load(tmp_path / "rec.npz").signal.filter == rec.signal.filter
    setting = at.Setting(encoder="linear", represent="tangent", standardize="none")
    outcome = at.train(rec, [at.Job(setting, at.leave_one_subject_out(rec)[0], 0)])[0]
    model = outcome.model()
    model.save(tmp_path / "model")
    assert at.load_model(tmp_path / "model").card.signal == rec.signal
    # Predicting on a continuous file filters it with the same coefficients, unless somebody says otherwise.
    read = ("--pattern", "{subject}.csv", "--sfreq", RATE)
    result = call("predict", tmp_path / "model", folder, *read, "--hop", 0.25, "--events", "x,y", "--quiet")
    found = np.array([row[3:5] for row in csv.reader(io.StringIO(result.out)) if row[0].isdigit()], float)
    np.testing.assert_allclose(found, model.predict_proba(rec.X), atol=1e-5)
    # Recordings of another device may have no window for the model, whose length nobody asked for.
    short = tmp_path / "short"
    short.mkdir()
    (short / "p9.csv").write_text("a,b\n" + "1,2\n3,1\n" * 5)
    assert_one_line(call("predict", tmp_path / "model", short, *read), 2, "p9.csv")
    assert_one_line(call("predict", tmp_path / "model", short, *read, "--window", 0.5), 2, "--window")
