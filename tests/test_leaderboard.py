"""Correct submissions to the leaderboard pass, and errors are named."""

from __future__ import annotations

import pandas as pd
import pytest
from benchmarks.leaderboard import COLUMNS, FOLDER, check, main, update

from autotransfer.errors import UserError

PEOPLE = ["1", "2", "3"]
BOARD = pd.DataFrame([["set", "zero-shot", "ours", name, 0.6] for name in PEOPLE], columns=COLUMNS)


def submission() -> pd.DataFrame:
    rows = [["set", "zero-shot", "other", name, 0.7, ";".join(set(PEOPLE) - {name})] for name in PEOPLE]
    return pd.DataFrame(rows, columns=[*COLUMNS, "trained_on"])


def test_a_right_submission_passes() -> None:
    check(submission(), BOARD)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("trained_on", "1;2"), ("trained_on", "2;unknown"), ("score", 1.2), ("score", float("nan")), ("mode", "zero"),
        ("dataset", "other"), ("subject", "9"), ("subject", "2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(column: str, value: object) -> None:
    wrong = submission()
    wrong.loc[0, column] = value
    if column == "subject":
        wrong.loc[0, "trained_on"] = "1;3"
    with pytest.raises(UserError, match=f"{column}|{value}"):
        check(wrong, BOARD)


def test_every_subject_needs_a_score() -> None:
    for wrong in (submission().iloc[:2], BOARD):
        with pytest.raises(UserError):
            check(wrong, BOARD)


def test_the_committed_board_is_up_to_date() -> None:
    board = pd.read_csv(FOLDER / "leaderboard.csv", dtype={"subject": str})
    pd.testing.assert_frame_equal(board, update(FOLDER).reset_index(drop=True), check_dtype=False)


def test_a_file_is_checked_by_a_command(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    BOARD.to_csv(tmp_path / "leaderboard.csv", index=False)
    path = tmp_path / "submission.csv"
    submission().to_csv(path, index=False)
    assert main(["--check", str(path), "--folder", str(tmp_path)]) == 0
    assert "the 3 scores on 1 data sets are valid" in capsys.readouterr().out
    for text in (submission().assign(score="high").to_csv(index=False), "", "dataset\nset\n"):
        path.write_text(text)
        assert main(["--check", str(path), "--folder", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["--check", str(tmp_path / "none.csv"), "--folder", str(tmp_path)]) == 2
