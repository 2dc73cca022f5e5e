"""Windows of continuous recordings lie at the right samples and have the right labels.

Every file is made here: sample n of channel c is n + 1000 c in its unit, so that a window says where it is from.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.person.stream.lsl import LslSource
from autotransfer.person.stream.source import open_source
from autotransfer.recordings import Cutting, Raw, make_absolute, read
from autotransfer.recordings.cutting import Continuous, Event, cut, parse_events
from autotransfer.recordings.pattern import compile_pattern
from autotransfer.recordings.sources import read_whole
from autotransfer.recordings.timestamps import Clock, measure_even_rate, measure_rate
from autotransfer.recordings.xdf import sampling_rate

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, to wfdb

SFREQ = 100.0
PEOPLE = ("ann", "bob", "cy")
NOTES = [(1.0, 0.5, "T1"), (3.0, 0.5, "T2"), (5.0, 0.5, "T1"), (7.0, 0.5, "T2")]


def ramp(n_times: int = 1000, n_channels: int = 2) -> np.ndarray[Any, Any]:
    return np.arange(n_times)[None] + 1000.0 * np.arange(n_channels)[:, None]


def firsts(raw: Raw) -> list[int]:
    """The first sample of each window, as its values say; the second channel must agree."""
    X = np.asarray(raw.X)
    np.testing.assert_allclose(X[:, 1] - X[:, 0], 1000, atol=0.5)
    np.testing.assert_allclose(np.diff(X, axis=2), 1, atol=0.5)
    return np.round(X[:, 0, 0]).astype(int).tolist()


def refused(text: str, source: object, **asked: Any) -> None:
    with pytest.raises(UserError, match=text) as caught:
        at.load(source, **asked)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


# --- where windows are cut -----------------------------------------------------------------------------------------


def recording(**changes: Any) -> Continuous:
    values = ramp()
    parts: dict[str, Any] = {
        "read": lambda start, stop: values[:, start:stop], "n_times": 1000, "channels": ("a", "b"), "sfreq": SFREQ,
        "events": [Event(*note) for note in NOTES],
    }  # fmt: skip
    return Continuous(**parts | changes)


def starts(cutting: Cutting, label: str | None = None, **changes: Any) -> list[int]:
    block = cut(recording(**changes), cutting, Path("x.edf"), label)
    assert block.y is None or len(block.y) == len(block.X)
    return np.asarray(block.X)[:, 0, 0].astype(int).tolist()


def test_windows_lie_at_events_or_one_after_the_other() -> None:
    both = {"T1": "left", "T2": "right"}
    assert starts(Cutting(window=1.0, events=both)) == [100, 300, 500, 700]
    assert starts(Cutting(window=1.0, offset=-0.2, events=both)) == [80, 280, 480, 680]
    assert starts(Cutting(window=1.0, events={"T2": "right"})) == [300, 700]
    assert starts(Cutting(window=4.0, events=both)) == [100, 300, 500], "the last would end after the recording"
    assert starts(Cutting(window=1.5, offset=-1.2, events=both)) == [180, 380, 580], "the first would begin before it"
    assert starts(Cutting(window=2.0), "rest") == [0, 200, 400, 600, 800]
    assert starts(Cutting(window=4.0, hop=2.0, offset=1.0), "rest") == [100, 300, 500]
    assert starts(Cutting(), "rest") == [0]
    block = cut(recording(), Cutting(window=1.0, events=both), Path("x.edf"))
    assert block.y == ["left", "right", "left", "right"]
    assert cut(recording(), Cutting(window=1.0), Path("x.edf")).y is None


def test_with_a_hop_an_event_lasts() -> None:
    asked = Cutting(window=0.2, hop=0.1, events={"T1": "left"})
    assert starts(asked) == [100, 110, 120, 130, 500, 510, 520, 530], "as long as its duration"
    moments = [Event(onset, 0.0, name) for onset, _, name in NOTES]
    asked = Cutting(window=1.0, hop=1.0, events={"T1": "left", "T2": ""})
    assert starts(asked, events=moments) == [100, 200, 500, 600], "to the next event, though that one gives no windows"
    asked = Cutting(window=1.0, hop=1.0, events={"T1": "left"})
    assert starts(asked, events=moments) == [100, 200, 300, 400, 500, 600, 700, 800, 900], (
        "to the next one that is named"
    )


def test_windows_of_one_event_are_one_group() -> None:
    """Windows of an event resemble each other, so they are not both labeled and scored."""
    both = {"T1": "left", "T2": "right"}
    block = cut(recording(), Cutting(window=0.2, hop=0.1, events=both), Path("x.edf"))
    assert block.columns == {"group": [f"x.edf, event {1 + k // 4}" for k in range(16)]}
    assert cut(recording(), Cutting(window=0.2, events=both), Path("x.edf")).columns is None


def test_windows_with_holes_and_on_bad_stretches_are_left_out() -> None:
    assert starts(Cutting(window=2.0), "rest", bad=[Event(4.5, 0.2, "BAD_blink")]) == [0, 200, 600, 800]
    times = np.arange(1000) / SFREQ
    times[450:] += 0.5  # half a second was lost: sample 450 was recorded at 5 s
    hole = starts(Cutting(window=2.0), "rest", times=times, breaks=(450,))
    assert hole == [0, 200, 550, 750], "windows start at seconds, and none spans the hole"
    at_events = starts(Cutting(window=1.0, events={"T1": "a", "T2": "b"}), times=times, breaks=(450,))
    assert at_events == [100, 300, 450, 650]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"window": 0.0}, "window is 0.0; it must be a positive number"),
        ({"window": 1.0, "hop": -1.0}, "hop is -1.0"),
        ({"hop": 1.0}, "hop needs a window"),
        ({"events": "T1=left"}, "events needs a window"),
        ({"window": 1.0, "offset": float("nan")}, "offset is nan"),
        ({"window": 1.0, "events": ""}, "events hold ''"),
        ({"window": 1.0, "events": "T1=,T2="}, "which name no class"),
        ({"window": 1.0, "events": "T1=a,T1=b"}, "'T1' twice"),
        ({"window": 1.0, "events": "{T1"}, "no JSON"),
        ({"window": 1.0, "events": 5}, "events are 5"),
        ({"window": 1.0, "sfreq": 0.0}, "sfreq is 0.0"),
    ],
)
def test_impossible_windows_are_refused_before_reading(wrong: dict[str, Any], text: str) -> None:
    refused(text, "no-such-file.edf", **wrong)


def test_events_can_be_given_in_three_forms() -> None:
    assert (
        parse_events("T1=left, T2 = right")
        == {"T1": "left", "T2": "right"}
        == parse_events({"T1": "left", "T2": "right"})
    )
    assert parse_events("left,right") == {"left": "left", "right": "right"} == parse_events(["left", "right"])
    assert parse_events('{"a,b": "left", "c=d": "right"}') == {"a,b": "left", "c=d": "right"}
    assert parse_events({769: "left"}) == {"769": "left"}


# --- names of files ------------------------------------------------------------------------------------------------


def test_a_pattern_gives_the_meaning_of_file_names() -> None:
    def fits(path: str, pattern: str = "{subject}/{session}_{class}_*.csv") -> dict[str, str] | None:
        found = compile_pattern(pattern).fullmatch(path)
        return found and found.groupdict()

    assert fits("ann/day1_fist_003.csv") == {"subject": "ann", "session": "day1", "class": "fist"}
    assert fits("ann/day1_fist.csv") is None
    assert fits("ann/x/day1_fist_003.csv") is None
    assert fits("x/y/ann.csv", "**/{subject}.csv") == {"subject": "ann"} == fits("ann.csv", "**/{subject}.csv")
    assert fits("ann/ann_left.edf", "{subject}/{subject}_{hand}.edf") == {"subject": "ann", "hand": "left"}
    assert fits("ann/bob_left.edf", "{subject}/{subject}_{hand}.edf") is None
    assert fits("ann(1).csv", "{subject}(1).csv") == {"subject": "ann"}, "no text of it is a regular expression"
    for wrong in ("{subject", "{subject}/{.a}.csv", "{}.csv", "*.csv"):
        with pytest.raises(UserError, match="the pattern"):
            compile_pattern(wrong)


def csv_folder(folder: Path, *, header: str = "time,emg1,emg2", n_times: int = 400, step: float = 0.01) -> Path:
    for shift, person in enumerate(PEOPLE):
        for session in ("mon", "tue"):
            for name in ("fist", "open"):
                path = folder / person / f"{session}_{name}_1.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                values = ramp(n_times).T + shift / 10
                times = step * np.arange(n_times)[:, None]
                table = np.hstack([times, values]) if header.startswith("time") else values
                np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.6f")
    return folder


PATTERN = "{subject}/{session}_{class}_*.csv"


def test_a_folder_of_csv_files(tmp_path: Path) -> None:
    rec = at.load(csv_folder(tmp_path / "study"), pattern=PATTERN, window=1.0, hop=0.5)
    assert rec.subjects == PEOPLE
    assert rec.classes == ("fist", "open")
    assert rec.sfreq == 100
    assert rec.channels == ("emg1", "emg2")
    assert rec.X.shape == (3 * 2 * 2 * 7, 2, 100)
    assert rec.session is not None
    assert len(set(rec.session.tolist())) == 2
    assert rec.name == "study"
    raw = read(tmp_path / "study", Cutting(pattern=PATTERN, window=1.0))
    assert firsts(raw) == [0, 100, 200, 300] * 12
    assert raw.y == (["fist"] * 4 + ["open"] * 4) * 6


@pytest.mark.filterwarnings("ignore:the sampling rate is unknown")
def test_a_csv_file_can_be_a_window(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path / "study", header="emg1,emg2", n_times=50)
    rec = at.load(folder, pattern="{subject}/{session}_{class}_{try}.csv")
    assert rec.X.shape == (12, 2, 50)
    assert rec.sfreq is None
    assert rec.columns["try"].labels == ("1",)
    np.savetxt(folder / "ann" / "mon_fist_2.csv", ramp(60).T, delimiter=",", header="emg1,emg2", comments="")
    refused("windows of 60 samples.*--window SECONDS", folder, pattern=PATTERN)
    refused("does not state its sampling rate.*--sfreq", folder, pattern=PATTERN, window=0.2)
    assert at.load(folder, pattern=PATTERN, window=0.2, sfreq=100).X.shape == (2 * 12 + 3, 2, 20)


def test_a_column_of_labels_gives_events(tmp_path: Path) -> None:
    for person in PEOPLE:
        rows = [f"{n / 100},{n},{n + 1000},{('', 'fist', '', 'open')[n // 100 % 4]}" for n in range(800)]
        (tmp_path / f"{person}.csv").write_text("Time,a,b,Label\n" + "\n".join(rows))
    raw = read(tmp_path, Cutting(pattern="{subject}.csv", window=0.5, hop=0.5, events={"fist": "f", "open": "o"}))
    assert firsts(raw) == [100, 150, 300, 350, 500, 550, 700, 750] * 3
    assert raw.y == ["f", "f", "o", "o"] * 6
    refused("holds no y; to train.*'fist' \\(6\\), 'open' \\(6\\)", tmp_path, pattern="{subject}.csv", window=0.5)
    refused("no event is called 'rest'", tmp_path, pattern="{subject}.csv", window=0.5, events="rest,fist")
    for person in PEOPLE:
        path = tmp_path / f"{person}.csv"
        path.write_text(path.read_text().replace("open", "None"))
    raw = read(tmp_path, Cutting(pattern="{subject}.csv", window=0.5, hop=0.5, events="fist,None=rest"))
    assert raw.y == ["fist", "fist", "rest", "rest"] * 6


def test_folders_report_missing_options(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path / "study")
    refused("describe the names with --pattern '{subject}/\\*.csv', or such as", folder)
    refused(
        "holds 'ann/mon_fist_1.csv', and no file matches the pattern '.subject._x.csv'",
        folder,
        pattern="{subject}_x.csv",
    )
    refused("both events and", folder, pattern=PATTERN, window=1.0, events="a,b")
    (folder / "ann" / "mon_fist_1.txt").write_text("x")
    refused("ending is none of", folder, pattern="{subject}/*.txt")
    refused("cut already; leave out window", "synthetic", window=1.0)
    refused("there is no file", tmp_path / "no.edf")


def test_no_link_leads_out_of_a_folder(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path / "study")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    os.symlink(tmp_path / "secret.csv", folder / "ann" / "tue_open_2.csv")
    refused("leads out of", folder, pattern=PATTERN)
    (folder / "ann" / "tue_open_2.csv").unlink()
    os.symlink(tmp_path, folder / "all")
    assert len(read(folder, Cutting(pattern="{subject}/*.csv")).X) == 12, "a linked folder is not entered"


# --- EDF, BDF, GDF ---------------------------------------------------------------------------------------------------


def mne_raw(notes: list[tuple[float, float, str]] | None = None, unit: float = 1e-6) -> Any:
    mne = pytest.importorskip("mne", reason="needs the mne extra")
    info = mne.create_info(["C3", "C4"], SFREQ, "eeg", verbose=False)
    raw = mne.io.RawArray(unit * ramp(), info, verbose=False)
    return raw.set_annotations(mne.Annotations(*zip(*NOTES if notes is None else notes, strict=True)), verbose=False)


def edf_file(path: Path, notes: list[tuple[float, float, str]] | None = None) -> Path:
    pytest.importorskip("edfio", reason="the tests write .edf files with edfio")
    raw = mne_raw(notes)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw.export(path, fmt="edf", physical_range=(-5e3, 5e3), overwrite=True, verbose=False)
    return path


def test_an_edf_file_that_is_cut_short_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("mne", reason="EDF files are read by MNE")
    content = edf_file(tmp_path / "ann.edf").read_bytes()
    assert read(tmp_path / "ann.edf", Cutting(window=1.0)).notes == ()
    (tmp_path / "ann.edf").write_bytes(content[: len(content) * 2 // 3])
    (note,) = read(tmp_path / "ann.edf", Cutting(window=1.0)).notes
    assert re.search(r"'ann.edf' is cut short: it has \d+ of \d+ data records", note)
    with pytest.warns(UserWarning, match="cut short"):
        read_whole(str(tmp_path / "ann.edf"))


def test_edf_files_with_annotations(tmp_path: Path) -> None:
    for person in PEOPLE:
        edf_file(tmp_path / "study" / f"{person}.edf")
    asked: dict[str, Any] = {"window": 1.0, "offset": 0.5, "events": "T1=left,T2=right"}
    rec = at.load(tmp_path / "study", **asked)
    assert rec.subjects == PEOPLE
    assert rec.classes == ("left", "right")
    assert rec.channels == ("C3", "C4")
    assert rec.sfreq == SFREQ
    raw = read(tmp_path / "study", Cutting(**asked))
    raw = Raw(X=1e6 * np.asarray(raw.X), y=raw.y)
    assert firsts(raw) == [150, 350, 550, 750] * 3
    assert raw.y == ["left", "right"] * 6
    refused(
        "no event is called 'T9'; there are 'T1' \\(6\\), 'T2' \\(6\\)", tmp_path / "study", window=1, events="T9,T1"
    )
    refused("holds no y; to train, give names of events.*'T1' \\(6\\)", tmp_path / "study", window=1.0)
    one = read(tmp_path / "study" / "ann.edf", Cutting(window=1.0))
    assert (len(one.X), one.y, set(one.subject)) == (10, None, {"ann"})  # type: ignore[call-overload]
    named = read(tmp_path / "study", Cutting(window=1.0, pattern="{subject}.edf"))
    assert set(named.subject) == set(PEOPLE)  # type: ignore[call-overload]


def test_bids_names_and_files_without_such_events(tmp_path: Path) -> None:
    edf_file(tmp_path / "sub-01" / "sub-01_ses-a_eeg.edf")
    edf_file(tmp_path / "sub-02" / "sub-02_ses-a_eeg.edf", [(1.0, 0.0, "T1"), (3.2, 0.1, "BAD_x"), (3.0, 0.0, "T2")])
    edf_file(tmp_path / "sub-02" / "sub-02_ses-b_eeg.edf", [(1.0, 0.0, "rest")])
    with pytest.warns(UserWarning, match="1 file without a complete window will be ignored.*sub-02_ses-b"):
        raw = read(tmp_path, Cutting(window=1.0, events="T1,T2"))
    assert list(raw.subject) == ["01"] * 4 + ["02"]  # type: ignore[call-overload]
    assert raw.session == ["a"] * 5
    assert raw.y == ["T1", "T2", "T1", "T2", "T1"], "the window on the bad stretch is left out"


def test_an_annotation_that_begins_before_the_recording_keeps_its_onset(tmp_path: Path) -> None:
    edfio = pytest.importorskip("edfio", reason="the tests write .edf files with edfio")
    pytest.importorskip("mne", reason="needs the mne extra")
    signals = [
        edfio.EdfSignal(row, SFREQ, label=name, physical_dimension="uV")
        for row, name in zip(ramp(), ("C3", "C4"), strict=True)
    ]
    notes = [edfio.EdfAnnotation(*note) for note in ((-0.5, 2.0, "T1"), (0.0, 1.0, "T2"), (4.0, 2.0, "T1"))]
    edfio.Edf(signals, annotations=notes).write(tmp_path / "ann.edf")
    for more, starts in (({}, [0, 400]), ({"offset": 1.0}, [50, 100, 500]), ({"hop": 1.0}, [0, 50, 400, 500])):
        raw = read(tmp_path / "ann.edf", Cutting(window=1.0, events="T1=left,T2=right", **more))
        assert sorted(np.round(np.asarray(raw.X)[:, 0, 0] * 1e6).astype(int)) == starts


def test_a_damaged_edf_is_one_line(tmp_path: Path) -> None:
    path = edf_file(tmp_path / "ann.edf")
    path.write_bytes(path.read_bytes()[:300])
    refused("cannot be read", path, window=1.0)
    path.write_bytes(b"not edf" * 100)
    refused("cannot be read", path, window=1.0)
    pytest.importorskip("mne", reason="needs the mne extra")
    (tmp_path / "x.gdf").write_bytes(b"GDF 2.20" + bytes(300))
    refused("cannot be read", tmp_path / "x.gdf", window=1.0)


def bdf_file(path: Path) -> Path:
    """A BDF file of one channel and triggers: 24-bit samples in records of a second."""
    n, seconds = int(SFREQ), 10
    labels, scale = ["C3", "Status"], ["uV", "Boolean"]
    status = np.zeros(n * seconds, int)
    status[100:110], status[300:310] = 1, 2

    def column(values: list[object], width: int) -> bytes:
        return b"".join(str(value).ljust(width).encode() for value in values)

    head = b"\xffBIOSEMI" + column(["p", "r"], 80) + b"01.01.2501.01.01"
    head += column([256 * 3], 8) + column(["24BIT"], 44) + column([seconds, 1], 8) + column([2], 4)
    head += column(labels, 16) + column(["", ""], 80) + column(scale, 8) + column([-8388608] * 2, 8)
    head += column([8388607] * 2, 8) + column([-8388608] * 2, 8) + column([8388607] * 2, 8)
    head += column(["", ""], 80) + column([n] * 2, 8) + column(["", ""], 32)
    body = b""
    for second in range(seconds):
        for values in (np.arange(n * seconds), status):
            body += b"".join(int(v).to_bytes(3, "little") for v in values[second * n : (second + 1) * n])
    path.write_bytes(head + body)
    return path


def test_bdf_files_with_triggers(tmp_path: Path) -> None:
    pytest.importorskip("mne", reason="needs the mne extra")
    raw = read(bdf_file(tmp_path / "ann.bdf"), Cutting(window=0.5, events={1: "left", 2: "right"}))
    assert raw.y == ["left", "right"]
    assert raw.channels == ("C3",), "triggers are events, not signals"
    assert np.round(1e6 * np.asarray(raw.X)[:, 0, 0]).tolist() == [100, 300]


# --- BIDS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mne_bids = pytest.importorskip("mne_bids", reason="needs the bids extra")
    pytest.importorskip("edfio", reason="the tests write .edf files with edfio")
    root = tmp_path_factory.mktemp("bids") / "study"
    raw = mne_raw(unit=1e-8)  # the range of the file is that of the signal
    raw.info["line_freq"] = 50
    for person in ("01", "02", "03"):
        for task in ("move", "rest"):
            place = mne_bids.BIDSPath(subject=person, session="a", task=task, root=root, datatype="eeg")
            mne_bids.write_raw_bids(raw, place, format="EDF", allow_preload=True, verbose=False)
    return root


def test_a_bids_folder(bids: Path) -> None:
    rec = at.load(f"bids:{bids}?task=move", window=1.0, events={"T1": "left", "T2": "right"})
    assert rec.subjects == ("01", "02", "03")
    assert rec.classes == ("left", "right")
    assert rec.X.shape == (12, 2, 100)
    assert rec.session is not None
    assert rec.columns["task"].labels == ("move",)
    np.testing.assert_allclose(rec.X[:, 0, 0] * 1e8, [100, 300, 500, 700] * 3, atol=1)
    assert rec.name == "study"
    both = at.load(bids, window=1.0, events="T1,T2")
    assert both.columns["task"].labels == ("move", "rest")
    refused("holds no y; to train.*'T1' \\(12\\)", bids, window=1.0)
    refused("has task=sing; there are move, rest", f"bids:{bids}?task=sing", window=1.0)
    refused("unknown entity 'tusk'", f"bids:{bids}?tusk=sing", window=1.0)
    refused("leave --pattern out", bids, window=1.0, pattern="{subject}.edf")
    refused("there is no folder", "bids:no-such-folder", window=1.0)


def test_the_absolute_source_works_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.xdf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert make_absolute("bids:here?task=a/b") == f"bids:{tmp_path}/here?task=a/b"
    assert make_absolute("x.xdf?stream=EEG") == f"{tmp_path}/x.xdf?stream=EEG"
    (tmp_path / "gestures").mkdir()
    for same in ("synthetic", "gestures", "moabb:BNCI2014_001", "b.npz"):
        assert make_absolute(same) == same
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert make_absolute("bids:~/letters") == f"bids:{tmp_path / 'home' / 'letters'}"


# --- XDF -------------------------------------------------------------------------------------------------------------


def xdf_file(
    path: Path, *, streams: int = 1, lost: int = 0, stated: float = SFREQ, unit: str = "", opened: Any = open
) -> Path:
    """Streams of samples and one of markers, as LabRecorder writes them."""

    def chunk(tag: int, content: bytes) -> bytes:
        return b"\x04" + struct.pack("<I", len(content) + 2) + struct.pack("<H", tag) + content

    def head(own: int, name: str, channels: int, rate: float, kind: str) -> bytes:
        units = f"<unit>{unit}</unit>" * bool(unit)
        labels = "".join(f"<channel><label>emg{n}</label>{units}</channel>" for n in range(channels))
        text = (
            f"<?xml version='1.0'?><info><name>{name}</name><type>EMG</type><channel_count>{channels}</channel_count>"
            f"<nominal_srate>{rate}</nominal_srate><channel_format>{kind}</channel_format>"
            f"<desc><channels>{labels}</channels></desc></info>"
        )
        return chunk(2, struct.pack("<I", own) + text.encode())

    def stamped(time: float, value: bytes) -> bytes:
        return b"\x08" + struct.pack("<d", time) + value

    parts = [b"XDF:", chunk(1, b"<?xml version='1.0'?><info><version>1.0</version></info>")]
    times = 5000 + np.arange(1000) / SFREQ
    times[450:] += lost / SFREQ
    for own in range(1, streams + 1):
        rows = b"".join(stamped(t, struct.pack("<2f", n, n + 1000)) for n, t in enumerate(times))
        parts += [head(own, f"EMG{own}", 2, stated, "float32")]
        parts += [chunk(3, struct.pack("<I", own) + b"\x04" + struct.pack("<I", len(times)) + rows)]
    rows = b"".join(stamped(5000 + t, b"\x01" + bytes([len(name)]) + name.encode()) for t, _, name in NOTES)
    parts += [head(9, "markers", 1, 0, "string")]
    parts += [chunk(3, struct.pack("<I", 9) + b"\x04" + struct.pack("<I", len(NOTES)) + rows)]
    with opened(path, "wb") as stream:
        stream.write(b"".join(parts))
    return path


def test_xdf_files_with_markers(tmp_path: Path) -> None:
    pytest.importorskip("pyxdf", reason="needs the lsl extra")
    (tmp_path / "study").mkdir()
    for person in PEOPLE:
        xdf_file(tmp_path / "study" / f"{person}.xdf")
    asked = Cutting(window=1.0, events="T1=left,T2=right")
    raw = read(tmp_path / "study", asked)
    assert firsts(raw) == [100, 300, 500, 700] * 3
    assert raw.y == ["left", "right"] * 6
    assert raw.channels == ("emg0", "emg1")
    assert at.load(tmp_path / "study", window=1.0, events="T1=left,T2=right").subjects == PEOPLE
    packed = xdf_file(tmp_path / "ann.xdf.gz", opened=gzip.open)
    assert firsts(read(packed, asked)) == [100, 300, 500, 700]


@pytest.mark.parametrize(("unit", "known"), [("", None), ("N/A", None), ("microvolts", "μV"), ("uV", "μV"), ("g", "g")])
def test_the_unit_of_an_xdf_stream_is_kept(unit: str, known: str | None, tmp_path: Path) -> None:
    pytest.importorskip("pyxdf", reason="needs the lsl extra")
    path = xdf_file(tmp_path / "ann.xdf", unit=unit)
    assert read(path, Cutting(window=1.0)).unit == open_source(str(path)).signal.unit == known


def test_the_unit_of_an_lsl_stream_is_kept() -> None:
    lsl = pytest.importorskip("mne_lsl.lsl", reason="needs the lsl extra")
    source = object.__new__(LslSource)
    info, units = lsl.StreamInfo("ann", "EEG", 2, SFREQ, "float32", "ann"), []
    for stated in (None, "microvolts", [-6, -6], ["V", "none"]):
        if stated is not None:
            info.set_channel_units(stated)
        units.append(source._read_signal(info).unit)
    assert units == [None, "μV", "μV", None]


def test_xdf_files_of_several_streams_and_with_holes(tmp_path: Path) -> None:
    pytest.importorskip("pyxdf", reason="needs the lsl extra")
    path = xdf_file(tmp_path / "ann.xdf", streams=2)
    asked = Cutting(window=1.0, events="T1,T2")
    refused("has 2 streams of samples; it has 'EMG1', 'EMG2'; choose one", path, window=1.0)
    refused("no stream of samples named 'X'", f"{path}?stream=X", window=1.0)
    refused("unknown option 'strom'", f"{path}?strom=X", window=1.0)
    assert firsts(read(f"{path}?stream=EMG2", asked)) == [100, 300, 500, 700]
    holed = read(xdf_file(tmp_path / "bob.xdf", lost=150), asked)
    assert firsts(holed) == [100, 300, 550], "the third marker lies in the hole"
    (tmp_path / "cy.xdf").write_bytes(b"XDF:" + bytes(50))
    refused("cannot be read|no stream of samples", tmp_path / "cy.xdf", window=1.0)
    (tmp_path / "bomb.xdfz").write_bytes(gzip.compress(b"XDF:" + bytes(10**6)))
    refused("cannot be read|no stream of samples", tmp_path / "bomb.xdfz", window=1.0)


@pytest.mark.parametrize("lost", [1, 2, 5, 9, 60])
def test_no_window_of_an_xdf_file_spans_lost_samples(lost: int, tmp_path: Path) -> None:
    pytest.importorskip("pyxdf", reason="needs the lsl extra")
    path = xdf_file(tmp_path / "ann.xdf", lost=lost)
    before, after = range(0, 450, 50), range(500, 1000 + lost - 49, 50)
    found = firsts(read(path, Cutting(window=0.5)))
    assert found == [*before, *(place - lost for place in after if place >= 450 + lost)]
    found = firsts(read(path, Cutting(window=1.0, events="T1,T2")))
    assert found == [100, 300, *([500 - lost] if lost <= 50 else []), 700 - lost], "events are of the same clock"


def test_events_lie_where_the_clock_of_the_samples_says() -> None:
    """A clock that is 1 % slow, five lost samples, and jitter."""
    k = np.arange(1000)
    place = k + 5 * (k >= 400)  # lost samples counted
    jitter = 2e-3 * np.random.default_rng(0).random(1000)
    stamps = 5000 + 1.01 * place / 100 + jitter
    clock = Clock(stamps, 100.0, 0.5)
    events = [100, 399, 400, 600, 700, 900]
    found = clock.seconds(stamps[events] - jitter[events] + jitter.mean())
    np.testing.assert_allclose(found, clock.times[events], atol=1e-3)
    assert clock.breaks == (400,)
    np.testing.assert_allclose(clock.times[events], place[events] / 100)
    with pytest.raises(UserError, match="the times go back after sample 700"):
        Clock(stamps - 300 * (k >= 700), 100.0, 0.5)


# --- WFDB ------------------------------------------------------------------------------------------------------------


def wfdb_record(folder: Path, name: str) -> Path:
    wfdb = pytest.importorskip("wfdb", reason="needs the wfdb extra")
    folder.mkdir(parents=True, exist_ok=True)
    wfdb.wrsamp(
        name, fs=SFREQ, units=["mV"] * 2, sig_name=["I", "II"], p_signal=ramp().T, fmt=["16"] * 2,
        adc_gain=[1.0] * 2, baseline=[0] * 2, write_dir=str(folder),
    )  # fmt: skip
    symbols, notes = ["N", "V", "+", "+"], ["", "", "(AFIB", "(N"]
    wfdb.wrann(name, "atr", np.array([100, 300, 500, 700]), symbol=symbols, aux_note=notes, write_dir=str(folder))
    return folder / f"{name}.hea"


def test_wfdb_records_with_annotations(tmp_path: Path) -> None:
    for person in PEOPLE:
        wfdb_record(tmp_path / "study", person)
    beats = read(tmp_path / "study", Cutting(window=0.5, offset=-0.25, events="N=normal,V=ventricular"))
    assert firsts(beats) == [75, 275] * 3
    assert beats.y == ["normal", "ventricular"] * 3
    assert beats.channels == ("I", "II")
    assert beats.sfreq == SFREQ
    rhythm = read(tmp_path / "study" / "ann.hea", Cutting(window=1.0, hop=1.0, events="(AFIB=af,(N=sinus"))
    assert firsts(rhythm) == [500, 600, 700, 800, 900]
    assert rhythm.y == ["af", "af", "sinus", "sinus", "sinus"]


# --- a model of such recordings --------------------------------------------------------------------------------------


def test_predict_cuts_as_the_model_needs(tmp_path: Path) -> None:
    from faults import call

    draw = np.random.default_rng(0)
    clf = at.CensoredClassifier(max_epochs=1, sfreq=SFREQ, device="cpu")
    clf.fit(draw.standard_normal((24, 2, 50)), [0, 1] * 12, subjects=np.repeat(PEOPLE, 8))
    clf.model_.save(tmp_path / "run" / "model")
    rows = "".join(f"{n / SFREQ},{a},{b}\n" for n, (a, b) in enumerate(draw.standard_normal((400, 2))))
    (tmp_path / "new.csv").write_text("time,ch0,ch1\n" + rows)
    for more, windows in (((), 8), (("--hop", 0.25), 15), (("--window", 0.5, "--offset", 1), 6)):
        result = call("predict", tmp_path / "run", tmp_path / "new.csv", *more)
        assert result.code == 0, result.err
        assert len(result.out.splitlines()) == 1 + windows
        assert result.out.splitlines()[1].startswith("0,new,")
    (tmp_path / "people").mkdir()
    (tmp_path / "new.csv").rename(tmp_path / "people" / "bo.csv")
    result = call("predict", tmp_path / "run", tmp_path / "people")
    assert result.code == 2
    assert "--pattern '{subject}.csv'" in result.err
    assert "--window" not in result.err, "the model knows how long its windows are"
    assert call("predict", tmp_path / "run", tmp_path / "people", "--pattern", "{subject}.csv").code == 0


def test_calibrate_cuts_as_predict_does(tmp_path: Path) -> None:
    from autotransfer.models.loading import load_model
    from faults import assert_one_line, call

    draw = np.random.default_rng(0)
    clf = at.CensoredClassifier(max_epochs=1, sfreq=SFREQ, device="cpu")
    clf.fit(draw.standard_normal((24, 2, 50)), ["fist", "open"] * 12, subjects=np.repeat(PEOPLE, 8))
    clf.model_.save(tmp_path / "run" / "model")
    signal = draw.standard_normal((400, 2)).round(6)
    state = ["fist"] * 100 + ["open"] * 200 + ["fist"] * 100
    rows = "".join(f"{a},{b},{name}\n" for (a, b), name in zip(signal, state, strict=True))
    (tmp_path / "ann.csv").write_text("ch0,ch1,label\n" + rows)

    labeled = ("--sfreq", SFREQ, "--events", "fist,open")
    for out, more, counts in (
        ("events", (), "fist 2, open 1"),
        ("states", ("--hop", 0.5), "fist 4, open 4"),
        ("later", ("--hop", 0.5, "--offset", 0.5, "--window", 0.5), "fist 2, open 3"),
    ):
        result = call("calibrate", tmp_path / "run", tmp_path / "ann.csv", "--out", tmp_path / out, *labeled, *more)
        assert (result.code, result.err) == (0, ""), result
        assert f"labeled windows: {counts}" in result.out
    windows = signal.T.reshape(2, 8, 50).transpose(1, 0, 2)
    want = clf.calibrate(windows, state[::50]).predict_proba(windows)
    found = load_model(tmp_path / "states" / "model").predict_proba(torch.from_numpy(windows).float())
    np.testing.assert_allclose(found, want, atol=1e-5)
    unlabeled = call("calibrate", tmp_path / "run", tmp_path / "ann.csv", "--out", tmp_path / "no", "--sfreq", SFREQ)
    assert_one_line(unlabeled, 2, "--events", "'fist' (2), 'open' (1)")
    assert not (tmp_path / "no").exists()


# --- what is there, before anything is asked for ----------------------------------------------------------------------


def test_continuous_files_list_their_events_if_no_window_is_given(tmp_path: Path) -> None:
    for person in PEOPLE:
        edf_file(tmp_path / "study" / f"{person}.edf", [*NOTES, *([(8.0, 0.0, "odd, one")] if person == "cy" else [])])
    folder = tmp_path / "study"
    refused(r"study' is continuous; .*'T1' \(6\), 'T2' \(6\), 'odd, one' \(1\); .* --window 1 --events '{", folder)
    refused(r"there are 'T1' \(2\), 'T2' \(2\); .* --window 1 --events T1,T2", folder / "ann.edf")
    refused(r"holds no y; to train, .*'odd, one' \(1\)", folder, window=1.0)


def test_raw_fif_files_are_cut(tmp_path: Path) -> None:
    for person in PEOPLE:
        mne_raw(unit=1.0).save(tmp_path / f"{person}_raw.fif", verbose=False)
    refused("there are 'T1' .6., 'T2' .6.;", tmp_path)
    rec = at.load(tmp_path, window=1.0, events="T1=left,T2=right")
    assert (rec.subjects, rec.classes, rec.n_windows) == (PEOPLE, ("left", "right"), 12)
    assert firsts(read(tmp_path / "ann_raw.fif", Cutting(window=1.0, events={"T1": "l"}))) == [100, 500]


def edf_with_gaps(path: Path, gaps: dict[int, float]) -> Path:
    """Write a recording of ten records of a second as EDF+D. gaps: seconds that are missing before a record."""
    edfio = pytest.importorskip("edfio", reason="the tests write .edf files with edfio")
    signals = [
        edfio.EdfSignal(row, SFREQ, label=name, physical_dimension="uV", physical_range=(-5e3, 5e3))
        for row, name in zip(ramp(), ("C3", "C4"), strict=True)
    ]
    notes = [edfio.EdfAnnotation(onset, duration, name) for onset, duration, name in NOTES]
    edfio.Edf(signals, annotations=notes, data_record_duration=1.0).write(path)
    content = bytearray(path.read_bytes())
    content[192:197] = b"EDF+D"
    size, onset = (len(content) - 1024) // 10, 0.0
    width = size - 2 * 2 * int(SFREQ)  # bytes of annotations in a record
    for record in range(10):
        onset += gaps.get(record, 0.0) + (record > 0)
        place = content.index(b"+%d\x14\x14\x00" % record, 1024 + record * size)
        first = place if place == 1024 + record * size else 1024 + (record + 1) * size - width
        stamps = bytes(content[first : first + width]).replace(b"+%d\x14\x14" % record, b"+%g\x14\x14" % onset, 1)
        assert not any(stamps[width:]), "only zeros are cut off"
        content[first : first + width] = stamps[:width]
    path.write_bytes(content)
    return path


def test_windows_of_a_discontinuous_file_do_not_span_its_gaps(tmp_path: Path) -> None:
    """Annotations count real seconds, also those that are missing: the file has seconds 0-4 and 11-16."""
    path = edf_with_gaps(tmp_path / "ann.edf", {4: 7.0})
    raw = read(path, Cutting(window=1.0, events="T1=left,T2=right"))
    assert firsts(Raw(X=1e6 * np.asarray(raw.X))) == [100, 300], "the events at 5 and 7 s lie in the gap"
    raw = read(path, Cutting(window=1.5, hop=0.5))
    assert firsts(Raw(X=1e6 * np.asarray(raw.X))) == [0, 50, 100, 150, 200, 250, *range(400, 851, 50)]


@pytest.mark.parametrize("stated", [50.0, 99.0, 200.0])
def test_time_stamps_overrule_the_rate_that_a_stream_states(tmp_path: Path, stated: float) -> None:
    pytest.importorskip("pyxdf", reason="needs the lsl extra")
    path = xdf_file(tmp_path / "ann.xdf", stated=stated, lost=70)
    raw = read(path, Cutting(window=1.0, events="T1=left,T2=right"))
    assert firsts(raw) == [100, 300, 700 - 70], "the event at 5 s lies in the gap"
    assert raw.sfreq == SFREQ
    assert raw.notes == (f"the stream states {stated:g} Hz, but the time stamps show 100 Hz, which is used",)
    with pytest.warns(UserWarning, match="time stamps show 100 Hz"):
        assert open_source(str(path)).signal.sfreq == SFREQ


@pytest.mark.parametrize("size", [4, 50, 1000])
def test_bursts_of_equal_stamps_are_refused_with_a_remedy(tmp_path: Path, size: int) -> None:
    stamps = 5 + np.repeat(np.arange(1000 // size) * size / SFREQ, size)
    assert measure_rate(stamps) == (SFREQ if size < 1000 else None)
    with pytest.raises(UserError, match=r"same time stamp .* --sfreq HZ"):
        sampling_rate({"info": {"name": ["EMG"], "nominal_srate": ["100"]}}, stamps)
    rows = "".join(f"{t},{np.sin(n)}\n" for n, t in enumerate(stamps.tolist()))
    (tmp_path / "ann.csv").write_text(f"time,emg\n{rows}")
    refused(r"same time stamp .* --sfreq HZ", tmp_path / "ann.csv", window=1.0, pattern="{subject}.csv")


def test_a_rate_is_measured_whatever_is_lost_or_late() -> None:
    rng = np.random.default_rng(0)
    stamps = 7e5 + np.arange(20_000) / 250
    jitter = rng.normal(scale=2e-4, size=len(stamps))
    kept = rng.random(len(stamps)) > 0.02
    chunks = np.repeat(stamps[31::32], 32)
    assert measure_rate(stamps) == 250
    assert measure_rate((stamps + jitter)[kept]) == 250
    assert measure_rate(chunks) == pytest.approx(250, rel=2e-3)
    assert measure_rate(np.concatenate([stamps[:9000], stamps[12_000:]])) == 250
    assert measure_rate(stamps[:100]) is None
    assert measure_rate(np.full(1000, 3.0)) is None
    for uneven in (np.arange(1000.0) ** 2, rng.exponential(size=9000).cumsum()):
        assert measure_even_rate(uneven) is None
