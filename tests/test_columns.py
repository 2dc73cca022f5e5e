"""Additional columns become groups or continuous values, and are saved and loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.recordings import load, save_npz
from faults import refused
from tiny import save_folder, tiny


def with_columns(recordings: at.Recordings, session: object = None, **columns: object) -> at.Recordings:
    raw = recordings.raw()
    return at.Recordings.from_raw(replace(raw, session=raw.session if session is None else session, columns=columns))


N = 48


def columns() -> dict[str, Any]:
    age = np.linspace(20, 60, N)
    age[3] = np.nan
    return {"age": age, "place": ["a", "", "b", None] * 12, "rep": np.arange(N) % 5, "left handed": [True, False] * 24}


def assert_same_columns(a: at.Recordings, b: at.Recordings) -> None:
    assert list(a.columns) == list(b.columns)
    for name, column in a.columns.items():
        assert column.labels == b.columns[name].labels, name
        np.testing.assert_array_equal(column.values, b.columns[name].values)
        assert column.values.dtype == b.columns[name].values.dtype


def test_whole_numbers_and_text_are_groups_and_other_numbers_are_continuous() -> None:
    rec = with_columns(tiny(), **columns())
    found = rec.columns
    assert [name for name, column in found.items() if column.is_continuous] == ["age"]
    assert found["place"].labels == ("a", "b")
    assert found["place"].values[:4].tolist() == [0, -1, 1, -1]
    assert found["rep"].labels == (0, 1, 2, 3, 4)
    assert found["left handed"].labels == (0, 1)
    assert np.isnan(found["age"].values).tolist() == [n == 3 for n in range(N)]
    assert_same_columns(with_columns(tiny(), **pd.DataFrame(columns())), rec)
    assert_same_columns(at.Recordings.from_raw(rec.raw()), rec)
    mixed = with_columns(tiny(), hour=[1, 2.5] * 24, count=[1, None] * 24)
    assert (mixed.columns["hour"].is_continuous, mixed.columns["count"].labels) == (True, (1,))
    assert tiny().columns == {}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([1, 2], r"columns are \[1, 2\]; give a dict or a DataFrame"),
        ({"age": [1, 2]}, "the column 'age' has 2 entries but X has 48 windows"),
        ({"age": np.zeros((N, 2))}, "the column 'age' has the shape"),
        ({"age": [1, "x"] * 24}, r"the column 'age' holds \[1, 'x'.*numbers or text, not both"),
        ({"age": [None, ""] * 24}, "the column 'age' holds .* at least one known value"),
        ({"age": [(1, 2)] * N}, r"the column 'age' holds \[\(1, 2\)"),
        ({"y": [1] * N}, "a column is called 'y'"),
        ({"session": [1] * N}, "a column is called 'session'"),
        ({"../../x": [1] * N}, "a column is called '../../x'"),
        ({"a/b": [1] * N}, "a column is called 'a/b'"),
        ({3: [1] * N}, "a column is called 3"),
    ],
)
def test_wrong_columns_are_refused_in_one_line(given: Any, text: str) -> None:
    refused(lambda: at.Recordings.from_raw(replace(tiny().raw(), columns=given)), text)


def test_columns_are_saved_and_loaded(tmp_path: Path) -> None:
    rec = with_columns(tiny(), session=np.arange(N) % 2, **columns())
    save_npz(tmp_path / "a.npz", rec)
    save_folder(tmp_path / "a", rec)
    for path in (tmp_path / "a.npz", tmp_path / "a"):
        names = sorted(rec.columns)
        assert_same_columns(with_columns(load(path), **{n: load(path).columns[n] for n in rec.columns}), rec)
        assert sorted(load(path).columns) == names
    save_npz(tmp_path / "b.npz", with_columns(tiny(), rep=[3, None] * 24))
    assert load(tmp_path / "b.npz").columns["rep"].labels == ("3",), "a file has no missing whole number"


@pytest.mark.filterwarnings("ignore:the sampling rate is unknown")
def test_arrays_of_a_file_that_can_be_columns_are(tmp_path: Path) -> None:
    plain = tiny()
    arrays: dict[str, Any] = {
        "X": plain.X.numpy(), "y": plain.y.numpy(), "subject": plain.subject.numpy(),
        "age": np.linspace(1, 2, N), "day": np.arange(N, dtype=np.uint8) % 3, "place": np.array([b"x", b"y"] * 24),
        "word": np.array(["a", ""] * 24),
    }  # fmt: skip
    ignored: dict[str, Any] = {
        "matrix": np.zeros((N, 2)), "short": np.zeros(3), "objects": np.array([{}] * N, dtype=object),
        "complex": np.zeros(N, dtype=complex), ".ab": np.zeros(N), "nothing": np.full(N, np.nan), "one": np.array(1),
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", **arrays, **ignored)
    (tmp_path / "a").mkdir()
    for name, array in (arrays | ignored).items():
        np.save(tmp_path / "a" / f"{name}.npy", array)
    for path in (tmp_path / "a.npz", tmp_path / "a"):
        found = load(path).columns
        assert sorted(found) == ["age", "day", "place", "word"]
        assert found["age"].is_continuous
        assert [found[name].labels for name in ("day", "place", "word")] == [(0, 1, 2), ("x", "y"), ("a",)]
        assert found["word"].values[:2].tolist() == [0, -1]


def test_columns_of_epochs(tmp_path: Path) -> None:
    mne = pytest.importorskip("mne", reason="pip install '.[mne]'")
    people = np.repeat(["ann", "bob", "cem"], 16)
    table: dict[str, Any] = columns() | {
        "subject": people, "session": [1, 2] * 24, "when": pd.Timestamp("2020"), "list": [[1]] * N, "X": 1, "word": "w",
    }  # fmt: skip
    plain = tiny()
    info = mne.create_info(2, 16.0, "eeg")
    events = np.c_[np.arange(N), np.zeros(N, int), 1 + plain.y.numpy()]
    epochs = mne.EpochsArray(plain.X.numpy(), info, events, metadata=pd.DataFrame(table), verbose="ERROR")
    rec = at.Recordings.from_epochs(epochs)
    expected = with_columns(plain, **columns(), word=["w"] * N)
    assert_same_columns(rec, expected)
    assert rec.session is not None
    assert rec.session.tolist() == [1, 2] * 24
    assert at.Recordings.from_epochs(epochs, session="rep").session.tolist() == (np.arange(N) % 5).tolist()
    assert "rep" not in at.Recordings.from_epochs(epochs, label="rep").columns
    epochs.metadata = epochs.metadata.drop(columns=["when"])  # a number in a file
    epochs.save(tmp_path / "a-epo.fif", verbose="ERROR")
    assert list(load(tmp_path / "a-epo.fif").columns) == list(rec.columns)
    (tmp_path / "parts").mkdir()
    parts = {who: epochs[people == who] for who in ("ann", "bob", "cem")}
    parts["cem"].metadata = parts["cem"].metadata.drop(columns=["age", "session"])
    parts["bob"].metadata = parts["bob"].metadata.assign(rep="x")
    for who, part in parts.items():
        part.save(tmp_path / "parts" / f"{who}-epo.fif", verbose="ERROR")
    divided = load(tmp_path / "parts")
    assert list(divided.columns) == ["place", "left handed", "word"], "what all have, of one kind"
    assert divided.session is None
