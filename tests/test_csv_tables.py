"""No cell of a written CSV is a formula to a spreadsheet, and reading restores names."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.csv_rows import read_table, unescape_formula
from hypothesis import given
from hypothesis import strategies as st

import autotransfer as at
from autotransfer.csv_tables import csv_text, escape_formula
from autotransfer.recordings import save_npz
from faults import call, few_settings
from tiny import tiny

STARTS = tuple("=+-@\t\r\n＝＋－＠")
SOURCES = ("src/autotransfer", "benchmarks", "examples")


def is_formula(cell: str) -> bool:
    """As a spreadsheet sees it."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(STARTS)
    return False


@given(st.text(alphabet=["'", *STARTS, "1", ".", "e", "a", '"', ","], max_size=6))
def test_text_is_no_formula_and_comes_back(text: str) -> None:
    assert not is_formula(escape_formula(text))
    assert unescape_formula(escape_formula(text)) == text


@pytest.mark.parametrize("value", [-0.5, -1, "-0.5", "+1", "-1e-05", ".5", "a=1", "", "p_=1", None, True, "2 - 1"])
def test_numbers_and_other_text_stay_as_they_are(value: object) -> None:
    assert escape_formula(value) is value


@pytest.mark.parametrize("value", ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "'=1", "-", "-1-1"])
def test_formulas_get_an_apostrophe(value: str) -> None:
    assert escape_formula(value) == f"'{value}"


def test_a_table_comes_back(tmp_path: Path) -> None:
    table = pd.DataFrame({"=who": ["=1", "'=1", "a", "-2", ""], "score": [-0.5, 1.0, 0.1, -1e-7, 3.0]})
    (tmp_path / "t.csv").write_text(csv_text(table))
    cells = [cell for row in csv.reader(io.StringIO(csv_text(table))) for cell in row]
    assert not any(map(is_formula, cells))
    assert [cell for cell in cells if cell.startswith("'")] == ["'=who", "'=1", "''=1"]
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), table)


def test_a_run_and_its_predictions_have_no_formulas(tmp_path: Path) -> None:
    rec = tiny(3)
    people = np.array(["=cmd|' /C calc'!A0", "+me", "-2"])[rec.subject]
    classes = np.array(["@SUM(A1:A9)", "-left"])[rec.y]
    save_npz(tmp_path / "odd.npz", at.Recordings(rec.X, classes, people, name="=1", sfreq=16))
    with few_settings():
        short = ("--epochs", 1, "--adaptation", "none", "--seeds", 1, "--device", "cpu")
        assert call("run", tmp_path / "odd.npz", *short, "--out", tmp_path / "run").code == 0
    predict = ("predict", tmp_path / "run", tmp_path / "odd.npz")
    assert call(*predict, "--out", tmp_path / "predicted.csv").code == 0
    texts = [
        (tmp_path / "run" / "results.csv").read_text(),
        (tmp_path / "run" / "scores.csv").read_text(),
        (tmp_path / "predicted.csv").read_text(),
        call(*predict).out,
    ]
    for text in texts:
        assert not [cell for row in csv.reader(io.StringIO(text)) for cell in row if is_formula(cell)]
    assert set(read_table(tmp_path / "run" / "results.csv")["test_subject"]) == set(people)
    assert set(read_table(tmp_path / "predicted.csv")["prediction"]) <= set(classes)


def test_there_is_one_place_that_writes_tables() -> None:
    root = Path(__file__).parents[1]
    files = [path for folder in SOURCES for path in (root / folder).rglob("*.py")]
    assert [path.name for path in files if ".to_csv(" in path.read_text()] == ["csv_tables.py"]
