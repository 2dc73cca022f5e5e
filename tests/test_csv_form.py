"""CSV files as programs write them: each is read as it is meant, or refused in one line with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotransfer.errors import UserError
from autotransfer.recordings.csv_files import open_csv
from autotransfer.recordings.cutting import Continuous, Cutting

N = 64
VALUES = np.random.default_rng(0).standard_normal((N, 3)).round(3)


def opened(path: Path, text: str | bytes, sfreq: float | None = 64.0, **options: str) -> Continuous:
    path = path / "x.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_csv(path, Cutting(sfreq=sfreq), options)


def holds(recording: Continuous, values: Any, *channels: str) -> None:
    assert recording.channels == channels
    np.testing.assert_allclose(recording.read(0, recording.n_times).T, values, atol=1e-5)


def refused(path: Path, text: str, why: str, sfreq: float | None = 64.0) -> None:
    with pytest.raises(UserError, match=why) as caught:
        opened(path, text, sfreq)
    assert "\n" not in str(caught.value)
    assert "x.csv'" in str(caught.value)


def rows(values: Any = VALUES, form: str = "{:.3f}", separator: str = ",") -> list[str]:
    return [separator.join(form.format(value) for value in row) for row in values]


def comma(values: Any = VALUES, separator: str = ";") -> list[str]:
    return [row.replace(".", ",") for row in rows(values, separator=separator)]


# --- rows with more fields than the header ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["{}", '"{}"', '"r{}"'])
@pytest.mark.parametrize("separator", ",;\t")
def test_names_of_rows_as_r_writes_them(tmp_path: Path, name: str, separator: str) -> None:
    lines = [f"{name.format(n + 1)}{separator}{row}" for n, row in enumerate(rows(separator=separator))]
    recording = opened(tmp_path, "\n".join([separator.join(('"a"', '"b"', '"c"')), *lines]))
    holds(recording, VALUES, "a", "b", "c")
    assert next(iter(recording.notes)).endswith("the first is the name of the row, as R writes it")


def test_rows_that_r_has_left_out(tmp_path: Path) -> None:
    kept = [n for n in range(N) if n % 7 or n < 20]
    lines = [f"{n + 1},{row}" for n, row in enumerate(rows()) if n in kept]
    holds(opened(tmp_path, "\n".join(["a,b,c", *lines])), VALUES[kept], "a", "b", "c")


def test_separators_at_the_end(tmp_path: Path) -> None:
    for header in ("a,b,c", "a,b,c,", "a,b,c,,"):
        for end in (",", ",,"):
            holds(opened(tmp_path, "\n".join([header, *(row + end for row in rows())])), VALUES, "a", "b", "c")


def test_rows_that_are_too_short(tmp_path: Path) -> None:
    lines = rows()
    for place, fields in ((0, "1.0"), (20, "1.0,2.0"), (N - 1, "1.0,2.0")):  # the last one is often cut off
        cut = [*lines[:place], fields, *lines[place + 1 :]]
        why = f"line {place + 2} of .* has {fields.count(',') + 1} fields?, and other rows have 3; complete it"
        refused(tmp_path, "\n".join(["a,b,c", *cut]), why)
    missing = [*lines[:20], "1.0,2.0,", "   ", "", *lines[21:]]
    assert np.isnan(opened(tmp_path, "\n".join(["a,b,c", *missing])).read(0, N)).sum() == 1, "a field without a value"
    recording = opened(tmp_path, "\n".join(["a,b,c,d,e", *lines]))
    holds(recording, VALUES, "a", "b", "c")
    assert next(iter(recording.notes)) == "rows have 3 fields and the header 5 names: 'd', 'e' left out"
    assert opened(tmp_path, "\n".join(["a,b,c,label", *lines])).events == []
    refused(tmp_path, "\n".join(["a,b,c,label", f"{lines[0]},x", *lines[1:]]), "line 3 of .* has 3 fields")


def test_other_fields_without_a_name_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, "\n".join(["a,b,c", *(row + ",9" for row in rows())]), "line 2 of .* has 4 fields, .* names 3")
    some = [row + (",9" if n < 5 else "") for n, row in enumerate(rows())]
    refused(tmp_path, "\n".join(["a,b,c", *some]), "line 7 of .* has 3 fields, and the header names 3 of up to 4")
    one = [row + (",9" if n == 30 else "") for n, row in enumerate(rows())]
    refused(tmp_path, "\n".join(["a,b,c", *one]), "line 32 of .* has 4 fields, and the table 3 columns")
    refused(tmp_path, "\n".join(["a,b", *comma(VALUES[:, :2], ",")]), "line 2 .* 4 fields.*semicolon between columns")


# --- decimal commas and thousands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", ";\t")
def test_decimal_commas(tmp_path: Path, separator: str) -> None:
    names = separator.join("abc")
    holds(opened(tmp_path, "\n".join([names, *comma(separator=separator)])), VALUES, "a", "b", "c")
    holds(opened(tmp_path, "\n".join(comma(separator=separator))), VALUES, "ch0", "ch1", "ch2")
    whole = np.vstack([np.zeros((30, 3)), VALUES])
    lines = [*[separator.join("000")] * 30, *comma(separator=separator)]
    holds(opened(tmp_path, "\n".join([names, *lines])), whole, "a", "b", "c")
    quoted = ['"' + row.replace(separator, '","') + '"' for row in comma(separator=separator)]
    holds(opened(tmp_path, "\n".join(["a,b,c", *quoted])), VALUES, "a", "b", "c")


@pytest.mark.parametrize("separator", ";\t")
@pytest.mark.parametrize("mark", ",.")
def test_thousands_apart_are_refused(tmp_path: Path, separator: str, mark: str) -> None:
    large = rows(5000 * VALUES, "{:,.0f}", separator)
    text = "\n".join([separator.join("abc"), *large]).replace(",", mark)
    refused(tmp_path, text, r"line 2 of .* has '3[.,]200' in the column 'c' beside .*: 3200 with .*, or 3\.200; write")
    both = [row.replace(",", "_").replace(".", ",").replace("_", ".") for row in rows(5000 * VALUES, "{:,.2f}", ";")]
    refused(
        tmp_path, "\n".join(["a;b;c", *both]), "has '3.200,00' in the column 'c', and ',' is the decimal mark; write"
    )


def test_what_settles_a_comma(tmp_path: Path) -> None:
    thousands = 1 + np.round(np.abs(VALUES[:, :2]), 3)  # 1,234 but never 0,234
    lines = comma(thousands)
    refused(tmp_path, "\n".join(["a;b", *lines]), "line 2 of .*: 1126 with thousands apart, or 1.126; write")
    third = [f"{line};{-0.25 * n}".replace(".", ",") for n, line in enumerate(lines)]
    holds(opened(tmp_path, "\n".join(["a;b;c", *third])), np.c_[thousands, -0.25 * np.arange(N)], "a", "b", "c")
    third = [f"{line};{1000 + n}" for n, line in enumerate(lines)]
    holds(opened(tmp_path, "\n".join(["a;b;c", *third])), np.c_[thousands, 1000 + np.arange(N)], "a", "b", "c")
    third = [f"{line};{n / 4}" for n, line in enumerate(lines)]
    refused(tmp_path, "\n".join(["a;b;c", *third]), "'1,126' in the column 'a', with thousands apart")
    points = rows(thousands, separator=";")
    holds(opened(tmp_path, "\n".join(["a;b", *points])), thousands, "a", "b")
    whole = [[f"{1000 * n + 5}", f"{n}"] for n in range(N)]
    holds(opened(tmp_path, "\n".join(["a;b", *map(";".join, whole)])), np.array(whole, float), "a", "b")


def test_one_column_of_decimal_commas(tmp_path: Path) -> None:
    lines = comma(VALUES[:, :1])
    recording = opened(tmp_path, "\n".join(lines))
    holds(recording, VALUES[:, :1], "ch0")
    assert list(recording.notes) == ["the comma is taken for the decimal mark: one column without a name"]
    holds(opened(tmp_path, "\n".join(["a", *lines])), VALUES[:, :1], "a")
    refused(tmp_path, "\n".join(comma(VALUES[:, :2], ",")), "commas within numbers and between them.*a semicolon")
    counts = np.abs(1000 * VALUES[:, :2]).round() + 100
    holds(opened(tmp_path, "\n".join(rows(counts, "{:.0f}"))), counts, "ch0", "ch1")
    padded = rows(counts, "{:06.0f}")
    holds(opened(tmp_path, "\n".join(padded)), counts, "ch0", "ch1")


# --- comments, blank lines, quotes, encodings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before", ["# device X\n", '% device X, 64 Hz\n% "it\'s 5" long\n', "\n", "  \n\n#\n", "sep=,\n"]
)
def test_what_stands_before_the_names(tmp_path: Path, before: str) -> None:
    holds(opened(tmp_path, before + "\n".join(["a,b,c", *rows()])), VALUES, "a", "b", "c")
    holds(opened(tmp_path, before + "\n".join(rows())), VALUES, "ch0", "ch1", "ch2")


def test_comments_and_blank_lines_within(tmp_path: Path) -> None:
    lines = rows()
    within = [*lines[:9], "# paused", "", *lines[9:], "% end"]
    holds(opened(tmp_path, "\n".join(["a,b,c", "# units", *within])), VALUES, "a", "b", "c")
    labels = [f"#{n // 32},{row}" for n, row in enumerate(lines)]
    recording = opened(tmp_path, "\n".join(["label,a,b,c", *labels]))
    holds(recording, VALUES, "a", "b", "c")
    assert [event.name for event in recording.events] == ["#0", "#1"], "a label may begin like a comment"


def test_names_in_a_comment_as_numpy_writes_them(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "y.csv", VALUES, delimiter=",", header="a,b,c")
    holds(opened(tmp_path, (tmp_path / "y.csv").read_bytes()), VALUES, "a", "b", "c")


def test_quoted_names(tmp_path: Path) -> None:
    for name in ("EMG, mV", "EMG; mV", "EMG\nmV"):
        recording = opened(tmp_path, "\n".join([f'"{name}","b","c"', *rows()]))
        holds(recording, VALUES, name.replace("\n", " "), "b", "c")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_ends_of_lines(tmp_path: Path, encoding: str, end: str) -> None:
    text = end.join(["a (µV),b,c", *rows()])
    holds(opened(tmp_path, text.encode(encoding)), VALUES, "a (µV)", "b", "c")


def test_what_is_no_sample_is_named(tmp_path: Path) -> None:
    refused(tmp_path, "\n".join(["a,b,c", *rows()]).encode("utf-16-le").decode("latin-1"), "export it as UTF-8")
    refused(tmp_path, "\n".join(["a,b,c", "uV,uV,uV", *rows()]), "below the names holds no numbers .'uV'.; take rows")
    refused(tmp_path, "\n".join(["a,b,c", *rows(), "a,b,c", *rows()]), "line 66 of .* has 'a' in the column 'a'")


# --- times ------------------------------------------------------------------------------------------------------------

STEPS = np.arange(N) / 64


@pytest.mark.parametrize(
    ("name", "seconds", "start"),
    [
        ("time_min", 60, 0), ("Time [min]", 60, 0), ("minutes", 60, 0), ("time (h)", 3600, 0), ("hours", 3600, 0),
        ("time_days", 86400, 45000), ("t [ms]", 1e-3, 0), ("Timestamp_us", 1e-6, 0), ("time of day", 1, 40000),
        ("timestamp", 1e-7, 638_000_000_000_000_000),
    ],
)  # fmt: skip
def test_units_of_times(tmp_path: Path, name: str, seconds: float, start: int) -> None:
    stamps = [str(start + round(t / seconds)) if start > 1e9 else f"{start + t / seconds:.12f}" for t in STEPS]
    text = "\n".join([f"{name},a,b,c", *(f"{stamp},{row}" for stamp, row in zip(stamps, rows(), strict=True))])
    recording = opened(tmp_path, text, sfreq=None)
    holds(recording, VALUES, "a", "b", "c")
    assert recording.sfreq == pytest.approx(64, rel=1e-3)
    given = opened(tmp_path, text)
    assert (given.sfreq, given.breaks) == (64.0, ())
    assert "not used" not in " ".join(given.notes)


def timed(stamps: Any) -> str:
    return "\n".join(["time,a,b,c", *(f"{stamp:.12f},{row}" for stamp, row in zip(stamps, rows(), strict=True))])


def test_times_whose_rate_is_absurd(tmp_path: Path) -> None:
    for start in (45_000, 739_000):  # days of Excel and MATLAB
        refused(tmp_path, timed(start + STEPS / 86400), r"'time' are .*: 5.5\de\+06 Hz in seconds.*--sfreq HZ", None)
        refused(tmp_path, timed(start + 64 * STEPS / 86400), r": 8.64e\+04 Hz in seconds.*--sfreq HZ", None)
        assert opened(tmp_path, timed(start + STEPS / 86400)).sfreq == 64
    assert opened(tmp_path, timed(STEPS / 500), None).sfreq == 32_000
    refused(tmp_path, timed(12_800 * STEPS), "0.005 Hz in seconds, 5 Hz in milliseconds", None)


def test_times_that_may_be_milliseconds_are_told(tmp_path: Path) -> None:
    recording = opened(tmp_path, timed(32 * STEPS), None)
    assert recording.sfreq == 2
    assert list(recording.notes) == [
        "column 'time' is taken for seconds: 2 Hz; if it is milliseconds, give --sfreq 2000"
    ]
    assert opened(tmp_path, timed(STEPS), None).notes == {}


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["None", "NA", "null", "nan", "N/A"])
def test_labels_that_look_like_missing_ones(tmp_path: Path, name: str) -> None:
    lines = [f"{row},{(name, 'fist', '')[n // 8 % 3]}" for n, row in enumerate(rows())]
    recording = opened(tmp_path, "\n".join(["a,b,c,label", *lines]))
    assert {event.name for event in recording.events} == {name, "fist"}
    assert len(recording.events) == 6
    assert f"{name!r} in the column 'label'" in next(iter(recording.notes))
    lost = [row.replace(row.split(",")[0], name) if n == 5 else row for n, row in enumerate(rows())]
    assert np.isnan(opened(tmp_path, "\n".join(["a,b,c", *lost])).read(0, N)[0, 5]), "of a number it is none"


def test_a_second_column_of_labels_is_no_channel(tmp_path: Path) -> None:
    for cells in ("01", ("go", "stop")):
        lines = [f"{row},{cells[n // 16 % 2]},{n // 32}" for n, row in enumerate(rows())]
        recording = opened(tmp_path, "\n".join(["a,b,c,trigger,label", *lines]))
        holds(recording, VALUES, "a", "b", "c")
        assert [event.name for event in recording.events] == ["0", "1"]
        assert "'trigger' holds labels by its name, and is no channel" in next(iter(recording.notes))
        recording = opened(tmp_path, "\n".join(["a,b,c,trigger,label", *lines]), label="trigger")
        holds(recording, VALUES, "a", "b", "c")
        assert [event.name for event in recording.events] == [*cells, *cells]


def test_columns_that_name_the_person(tmp_path: Path) -> None:
    for name in ("Subject ID", "subj", "patient", "participant_id"):
        lines = [f"{row},{n // 32}" for n, row in enumerate(rows())]
        refused(tmp_path, "\n".join([f"a,b,c,{name}", *lines]), f"holds 2 people .column '{name}'.")
        holds(opened(tmp_path, "\n".join([f"a,b,c,{name}", *(f"{row},7" for row in rows())])), VALUES, "a", "b", "c")
