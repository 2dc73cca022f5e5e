"""Submissions to the leaderboard: one that is right, and everything that can be wrong with one."""

from __future__ import annotations

import pandas as pd
import pytest
from benchmarks.leaderboard import COLUMNS, FOLDER, check, known, main
from benchmarks.results import read

from autotransfer.errors import UserError

PEOPLE = ["1", "2", "3"]
BOARD = pd.DataFrame([["set", "zero-shot", "ours", name, 0.6] for name in PEOPLE], columns=COLUMNS)


def submission() -> pd.DataFrame:
    rows = [["set", "zero-shot", "theirs", name, 0.7, ";".join(set(PEOPLE) - {name})] for name in PEOPLE]
    return pd.DataFrame(rows, columns=[*COLUMNS, "trained_on"])


def test_a_right_submission_passes() -> None:
    check(submission(), BOARD)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("trained_on", "1;2", "their own labels"),
        ("trained_on", "2;stranger", "'stranger'"),
        ("score", 1.2, "between 0 and 1"),
        ("score", float("nan"), "between 0 and 1"),
        ("mode", "zero", "one of zero-shot"),
        ("dataset", "other", "there are set"),
        ("subject", "9", "nobody of that name"),
        ("subject", "2", "'2' is there twice"),
    ],
)
def test_what_is_wrong_is_named(column: str, value: object, said: str) -> None:
    wrong = submission()
    wrong.loc[0, column] = value
    if column == "subject":
        wrong.loc[0, "trained_on"] = "1;3"
    with pytest.raises(UserError, match=said):
        check(wrong, BOARD)


def test_everybody_has_to_be_left_out() -> None:
    with pytest.raises(UserError, match="'3' is missing"):
        check(submission().iloc[:2], BOARD)
    with pytest.raises(UserError, match="no column 'trained_on'"):
        check(BOARD, BOARD)


def test_the_committed_board_is_what_the_tables_say() -> None:
    board = pd.read_csv(FOLDER / "leaderboard.csv", dtype={"subject": str})
    made = known(FOLDER).reset_index(drop=True)
    pd.testing.assert_frame_equal(board, made, check_dtype=False)
    ours = board[(board["mode"] == "zero-shot") & (board["pipeline"] == "AutoTransfer")]
    nested = read(FOLDER / "average" / "zero-shot").ours["nested"]
    assert ours.groupby("dataset").size().to_dict() == {dataset: len(own) for dataset, own in nested.items()}


def test_a_submission_is_ranked(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    BOARD.to_csv(tmp_path / "leaderboard.csv", index=False)
    submission().to_csv(tmp_path / "theirs.csv", index=False)
    assert main([str(tmp_path / "theirs.csv"), "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.index("theirs") < said.index("ours")
    submission().iloc[1:].to_csv(tmp_path / "theirs.csv", index=False)
    assert main([str(tmp_path / "theirs.csv"), "--folder", str(tmp_path)]) == 2
