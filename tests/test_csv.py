"""CSV files are read correctly, or refused with the option that settles an ambiguity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import Cutting, read
from autotransfer.recordings.csv_files import open_csv
from autotransfer.recordings.cutting import Continuous
from faults import assert_one_line, call

N = 64
VALUES = np.random.default_rng(0).standard_normal((N, 2)).round(3)
STEPS = np.arange(N)
STATES = [("", "fist", "NA", "open")[n // 16] for n in STEPS]
COUNTED = [str(n // 16) for n in STEPS]  # 0, 1, 2, 3


def lines(*columns: Any, values: Any = VALUES, sep: str = ",", mark: str = ".") -> list[str]:
    """Rows of two channels after these columns."""
    channels = [[f"{value:.3f}".replace(".", mark) for value in channel] for channel in values.T]
    return [sep.join(map(str, row)) for row in zip(*columns, *channels, strict=True)]


def opened(folder: Path, header: str, rows: list[str], after: dict[str, str] | None = None, **how: Any) -> Continuous:
    path = folder / "ann.csv"
    path.write_text("\n".join([header] * bool(header) + rows) + "\n", encoding="utf-8")
    return open_csv(path, Cutting(**how), after or {})


def holds(recording: Continuous, values: Any = VALUES, channels: tuple[str, ...] = ("a", "b")) -> None:
    assert recording.channels == channels
    np.testing.assert_allclose(recording.read(0, recording.n_times).T, values, atol=1e-5)


READ = {  # header, rows, options, names of events
    "comma": ("a,b", lines(), {"sfreq": 64}, None),
    "tab": ("a\tb", lines(sep="\t"), {"sfreq": 64}, None),
    "semicolon and decimal comma": ("a;b", lines(sep=";", mark=","), {"sfreq": 64, "decimal": ","}, None),
    "another separator": ("a|b", lines(sep="|"), {"sfreq": 64, "sep": "|"}, None),
    "comment and units in names": ("# device X\n\na (uV),b [uV]", lines(), {"sfreq": 64}, None),
    "no names": ("", lines(), {"sfreq": 64}, None),
    "quoted": ('"a","b"', [row.replace(",", '","').join('""') for row in lines()], {"sfreq": 64}, None),
    "numbers as names": ("0,1", lines(), {"sfreq": 64}, None),
    "an index and numbers as names": (",1,2", lines(STEPS), {"sfreq": 64}, None),
    "an index without a name": (",a,b", lines(STEPS), {"sfreq": 64}, None),
    "time in s": ("Time,a,b", lines(STEPS / 64), {}, None),
    "time in ms": ("Timestamp_ms,a,b", lines(1000 * STEPS / 64), {}, None),
    "time in us": ("time [us],a,b", lines(15625 * STEPS), {}, None),
    "ms since 1970": ("timestamp (ms),a,b", lines((1.7e12 + 15.625 * STEPS).round(3)), {}, None),
    "ISO dates": ("datetime,a,b", lines([f"2024-05-01T10:00:{n / 64:09.6f}Z" for n in STEPS]), {}, None),
    "time without a unit, and the rate": ("time,a,b", lines(15.625 * STEPS), {"sfreq": 64}, None),
    "a named time column": ("x7,a,b", lines(STEPS / 64), {"time_column": "x7"}, None),
    "text labels": ("label,a,b", lines(STATES), {"sfreq": 64}, ["fist", "NA", "open"]),
    "integer labels": ("stimulus,a,b", lines(COUNTED), {"sfreq": 64}, ["0", "1", "2", "3"]),
    "labels that begin like a comment": ("label,a,b", lines([f"#{s}" for s in COUNTED]), {"sfreq": 64},
                                         ["#0", "#1", "#2", "#3"]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_unambiguous_files_are_read(tmp_path: Path, name: str) -> None:
    header, rows, how, events = READ[name]
    recording = opened(tmp_path, header, rows, **how)
    named = {"no names": ("ch0", "ch1"), "numbers as names": ("0", "1"), "an index and numbers as names": ("1", "2")}
    named |= {"comment and units in names": ("a (uV)", "b [uV]")}
    holds(recording, channels=named.get(name, ("a", "b")))
    assert recording.sfreq == 64
    assert recording.breaks == ()
    assert [event.name for event in recording.events] == (events or [])
    if events:
        assert [event.duration for event in recording.events] == [0.25] * len(events)
        assert recording.events[-1].onset == 0.75


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_ends_of_lines(tmp_path: Path, encoding: str, end: str) -> None:
    path = tmp_path / "ann.csv"
    path.write_bytes(end.join(["a (µV),b", *lines()]).encode(encoding))
    holds(open_csv(path, Cutting(sfreq=64), {}), channels=("a (µV)", "b"))


def test_a_blank_line_of_one_channel_is_a_missing_value(tmp_path: Path) -> None:
    recording = opened(tmp_path, "a", ["1.5", "", "2.5", "", ""], sfreq=64)
    np.testing.assert_array_equal(recording.read(0, recording.n_times)[0], [1.5, np.nan, 2.5])


def test_missing_values_are_nan_and_labels_are_text(tmp_path: Path) -> None:
    rows = lines(["NA"] * N)
    rows[3], rows[5] = "NA,,1.5", "NA,nan,NaN"
    recording = opened(tmp_path, "label,a,b", rows, sfreq=64)
    values = recording.read(0, N).T
    assert np.argwhere(np.isnan(values)).tolist() == [[3, 0], [5, 0], [5, 1]]
    assert [event.name for event in recording.events] == ["NA"]


THOUSANDS = (5000 * VALUES).round()
REFUSED = {  # header, rows, options, what the message names
    # found earlier: each was read wrongly without a word
    "labels shifted by names of rows": ("a,b,label", [f"{n},1.0,2.5,fist" for n in STEPS], {}, "4 fields"),
    "names of rows": ("a,b", lines([f"r{n}" for n in STEPS]), {"sfreq": 64}, "3 fields, and there are 2 columns"),
    "labels under another name": ("movement,a,b", lines(COUNTED), {"sfreq": 64}, r"\?label=movement"),
    "one label for the file": ("target,a,b", lines([1] * N), {"sfreq": 64}, r"\?label=target"),
    "the person of each row": ("Subject ID,a,b", lines(STEPS // 32), {"sfreq": 64}, r"label=Subject ID"),
    "two columns of labels": ("trigger,label,a,b", lines(COUNTED, STATES), {"sfreq": 64}, r"\?label=NAME"),
    "ms without a unit": ("time,a,b", lines(5 * STEPS), {}, "--sfreq HZ"),
    "fractions of ms without a unit": ("time,a,b", lines(STEPS / 2), {}, "--sfreq HZ"),
    "stamps of ms since 1970": ("timestamp,a,b", lines(1_714_557_600_000 + 5 * STEPS), {}, "--sfreq HZ"),
    "days of Excel": ("time,a,b", lines([f"{45000 + n / 64 / 86400:.12f}" for n in STEPS]), {}, "--sfreq HZ"),
    "times of day": ("time,a,b", lines([f"10:00:{n / 64:09.6f}" for n in STEPS]), {}, r"\?channels=NAME"),
    "a rate that the times contradict": ("time_ms,a,b", lines(5 * STEPS), {"sfreq": 100}, "200 Hz if milli"),
    "thousands after commas": ("a;b", [f"{a:,.0f};{b:,.0f}" for a, b in THOUSANDS], {}, "separators of thousands"),
    "thousands and decimal commas": ("a;b", [f"{a:,.2f};{b:,.2f}".translate(str.maketrans(",.", ".,"))
                                             for a, b in THOUSANDS], {"decimal": ","}, "not a number"),
    # ambiguous otherwise
    "decimal commas": ("a;b", lines(sep=";", mark=","), {}, "--decimal ,"),
    "decimal commas between commas": ("a,b", lines(mark=","), {}, "--decimal ,"),
    "two separators": ("a;b,c", lines(), {}, "--sep"),
    "two times": ("time,timestamp,a,b", lines(STEPS / 64, STEPS / 64), {}, "--time-column NAME"),
    "a clock under another name": ("x7,a,b", lines(STEPS / 64), {"sfreq": 64}, "--time-column 'x7'"),
    "a counter": ("frame,a,b", lines(STEPS % 48), {"sfreq": 64}, r"\?channels=NAME"),
    "uneven times": ("time,a,b", lines(STEPS**2), {"sfreq": 64}, "do not rise evenly"),
    "text": ("hand,a,b", lines(["left"] * N), {"sfreq": 64}, r"\?label=hand"),
    "units below the names": ("a,b", ["uV,uV", *lines()], {"sfreq": 64}, "has 'uV' in the column 'a'"),
    "a table after the table": ("a,b", [*lines(), "a,b", *lines()], {"sfreq": 64}, "has 'a' in the column 'a'"),
    "a row that was cut off": ("a,b", [*lines(), "1"], {"sfreq": 64}, "line 66 .* 1 field"),
    "two columns of a name": ("a,a", lines(), {"sfreq": 64}, "two columns named 'a'"),
    "no channel": ("time,label", [f"{n / 64},x" for n in STEPS], {}, "no column of samples"),
    "no such column": ("a,b", lines(), {"time_column": "when"}, "no column 'when' for --time-column"),
    "nothing": ("", [], {}, "is empty"),
    "no samples": ("a,b", [], {}, "holds no samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_files_are_refused(tmp_path: Path, name: str) -> None:
    header, rows, how, told = REFUSED[name]
    with pytest.raises(UserError, match=told) as caught:
        opened(tmp_path, header, rows, **how)
    assert "\n" not in str(caught.value)
    assert "ann.csv'" in str(caught.value)


def test_options_settle_ambiguous_files(tmp_path: Path) -> None:
    holds(opened(tmp_path, "frame,a,b", lines(STEPS), {"channels": "a,b"}, sfreq=64))
    recording = opened(tmp_path, "trigger,label,a,b", lines(COUNTED, STATES), {"label": "trigger"}, sfreq=64)
    holds(recording)
    assert [event.name for event in recording.events] == ["0", "1", "2", "3"]
    listed = opened(tmp_path, "heart,a,b", lines([70] * N), {"channels": "heart,a,b"}, sfreq=64)
    holds(listed, np.c_[np.full(N, 70), VALUES], ("heart", "a", "b"))
    assert opened(tmp_path, "", [f"{n},{n}" for n in STEPS % 7], sep=",").channels == ("ch0", "ch1")
    comma = opened(tmp_path, "", [f"{n},25" for n in STEPS % 7], decimal=",")
    holds(comma, STEPS[:, None] % 7 + 0.25, ("ch0",))


def test_columns_are_described_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "ann.csv").write_text("\n".join(["Time_ms,label,frame,a,b", *lines(5 * STEPS, STATES, STEPS)]))
    source = f"{tmp_path / 'ann.csv'}?channels=a,b"
    told = (
        "columns: channels 'a, b'; time 'Time_ms' in ms; labels 'label'; left out 'frame'; rate 200 Hz from the times"
    )
    result = call("inspect", source, "--window", 0.05, "--events", "fist,open")
    assert result.out.count(told) == 1, result
    assert_one_line(call("inspect", source, "--decimal", ";"), 2, "unknown decimal mark ';'")


def test_files_that_are_not_cut_are_told(tmp_path: Path) -> None:
    for person in ("ann", "bob", "cy"):
        (tmp_path / f"{person}_up.csv").write_text("\n".join(["time,a,b", *lines(STEPS / 64)]))
    uncut = call("inspect", tmp_path, "--pattern", "{subject}_{class}.csv")
    assert "! each file is one window; to cut files into windows, give --window SECONDS" in uncut.out
    cut = call("inspect", tmp_path, "--pattern", "{subject}_{class}.csv", "--window", 0.25)
    assert "--window" not in cut.out


def test_load_takes_the_options_too(tmp_path: Path) -> None:
    for person in ("ann", "bob", "cy"):
        rows = [row.replace(".", ",") for row in lines(STEPS / 64, STATES, sep="|")]
        (tmp_path / f"{person}.csv").write_text("\n".join(["when|label|a|b", *rows]))
    how = {"pattern": "{subject}.csv", "sep": "|", "decimal": ",", "time_column": "when"}
    with pytest.warns(UserWarning, match="time 'when' in s"):
        at.load(tmp_path, window=0.25, events="fist,open", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stamps", "begins"),
    [
        (5 * np.arange(400) + 300 * (np.arange(400) >= 250), [0, 50, 100, 150, 290]),  # 60 samples lost
        (5 * np.arange(400) + 5 * (np.arange(400) >= 250), [0, 50, 100, 150, 299]),  # one
        (np.where(np.arange(400) == 249, np.nan, 5 * np.arange(400)), [0, 50, 100, 250, 300]),  # no time
    ],
)
def test_no_window_spans_a_gap_in_the_times(tmp_path: Path, stamps: Any, begins: list[int]) -> None:
    values = np.random.default_rng(1).standard_normal((400, 2)).round(4)
    rows = [f"{stamp},{a},{b}" for stamp, (a, b) in zip(stamps, values, strict=True)]
    (tmp_path / "ann.csv").write_text("\n".join(["Timestamp_ms,a,b", *rows]))
    for sfreq in (None, 200):  # a rate that is given hides no gap
        raw = read(tmp_path / "ann.csv", Cutting(window=0.5, hop=0.25, sfreq=sfreq))
        assert [int(np.argmin(np.abs(values[:, 0] - window[0, 0]))) for window in raw.X] == begins
        assert raw.has_gaps
