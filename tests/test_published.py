"""Protocols of others, on small files in the layout of the originals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import published

from autotransfer.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, to wfdb

RATE = 360


def write_record(folder: Path, name: int, leads: tuple[str, ...] = ("MLII", "V1"), seed: int = 0) -> None:
    """Narrow normal beats and wide ventricular ones, a note of rhythm, a premature beat and one at the very end."""
    wfdb = pytest.importorskip("wfdb", reason="needs the wfdb extra")
    draw = np.random.default_rng(seed + name)
    symbols = ["N", "V", "L", "V", "N", "E", "R", "V"] * 3
    places = 200 + 300 * np.arange(len(symbols))
    time = np.arange(places[-1] + 40)
    signal = 0.05 * draw.standard_normal((len(time), len(leads)))
    for place, symbol in zip(places, symbols, strict=True):
        wide, sign = (25, -1) if symbol in "VE" else (6, 1)
        signal[:, leads.index("MLII")] += sign * np.exp(-(((time - place) / wide) ** 2))
    wfdb.wrsamp(
        str(name), fs=RATE, units=["mV"] * len(leads), sig_name=list(leads), p_signal=signal, fmt=["16"] * len(leads),
        write_dir=str(folder),
    )  # fmt: skip
    everything = sorted([*zip(places.tolist(), symbols, strict=True), (10, "+"), (350, "A")])
    wfdb.wrann(
        str(name), "atr", np.array([place for place, _ in everything]), symbol=[symbol for _, symbol in everything],
        aux_note=["(N" if symbol == "+" else "" for _, symbol in everything], write_dir=str(folder),
    )  # fmt: skip


def test_every_beat_of_the_right_lead_counts(tmp_path: Path) -> None:
    write_record(tmp_path, 101)
    write_record(tmp_path, 114, leads=("V5", "MLII"))  # as published
    part = published.beats(tmp_path, (101, 114))
    assert part.X.shape == (2 * 25, 1, round(0.8 * RATE))
    assert part.sfreq == RATE
    assert dict(zip(*np.unique(part.y, return_counts=True), strict=True)) == {"N": 24, "S": 2, "V": 24}
    assert part.subject.tolist() == ["101"] * 25 + ["114"] * 25
    peaks = part.X[part.y == "N"][:, 0].argmax(1)
    assert np.abs(peaks - round(0.3 * RATE)).max() <= 3
    with pytest.raises(UserError, match="there is no record 999 in"):
        published.beats(tmp_path, (101, 999))


def test_splits_are_those_that_are_published() -> None:
    assert len(published.DS1) == len(published.DS2) == 22
    assert not set(published.DS1) & set(published.DS2)
    assert not {102, 104, 107, 217} & {*published.DS1, *published.DS2}  # paced
    assert published.AAMI["L"] == published.AAMI["j"] == "N"
    assert len(published.AAMI) == 5 + 4 + 2 + 1 + 3
    people = [set(part) for part in published.ARITHMETIC.values()]
    assert [len(part) for part in people] == [28, 4]
    assert not people[0] & people[1]


def test_measures_by_hand() -> None:
    y = np.array(list("NNNSSVVVVF"))
    predicted = np.array(list("NVNSNVVVNV"))
    measures = published.of_beats(y, predicted)
    assert measures == {
        "S, sensitivity": 1 / 2, "S, positive predictive value": 1.0,
        "V, sensitivity": 3 / 4, "V, positive predictive value": 3 / 5,
    }  # fmt: skip
    assert np.isnan(published.of_beats(y, np.full(10, "N"))["V, positive predictive value"])
    assert published.of_states(np.array(list("aaab")), np.array(list("aabb"))) == {
        "balanced accuracy": pytest.approx((2 / 3 + 1) / 2)
    }


def write_edf(path: Path, seconds: float, seed: int) -> None:
    mne = pytest.importorskip("mne", reason="needs the mne extra")
    pytest.importorskip("edfio", reason="the tests write .edf files with edfio")
    values = 1e-5 * np.random.default_rng(seed).standard_normal((3, round(500 * seconds)))
    info = mne.create_info(["EEG Fp1", "EEG Cz", "ECG ECG"], 500.0, "eeg", verbose=False)
    raw = mne.io.RawArray(values, info, verbose=False)
    raw.export(path, fmt="edf", physical_range=(-5e2, 5e2), verbose=False)


def test_windows_of_mental_arithmetic(tmp_path: Path) -> None:
    write_edf(tmp_path / "Subject07_1.edf", 17, 0)
    write_edf(tmp_path / "Subject07_2.edf", 11, 1)
    part = published.arithmetic(tmp_path, (7,))
    assert part.X.shape == (3 + 2, 2, 1000)
    assert part.y.tolist() == ["rest"] * 3 + ["arithmetic"] * 2
    assert part.subject.tolist() == ["07"] * 5
    with pytest.raises(UserError, match="there is no file Subject01_1"):
        published.arithmetic(tmp_path, (7, 1))


@pytest.fixture
def small_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four records that train, two that test."""
    for name in (101, 106, 108, 109, 100, 202):
        write_record(tmp_path, name)
    protocol = published.PROTOCOLS["mit-bih"]._replace(train=(101, 106, 108, 109), test=(100, 202))
    monkeypatch.setitem(published.PROTOCOLS, "mit-bih", protocol)
    return tmp_path


@pytest.mark.slow
def test_a_run_tells_ventricular_beats_of_people_it_has_not_seen(small_protocol: Path) -> None:
    quick = {"preset": "quick", "networks": "none", "adaptation": "zero-shot", "time": None}
    measures = dict(published.measured("mit-bih", small_protocol, **quick))
    assert measures["V, sensitivity"] > 0.9
    assert measures["V, positive predictive value"] > 0.9
