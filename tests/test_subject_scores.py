"""Predictions are scored by subject without any model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from autotransfer.report.subject_scores import SubjectScores
from autotransfer.tasks.classification import METRICS


def scores(
    right: list[list[bool]], *, named: bool = True, classes: tuple[str, ...] = ("rest", "fist")
) -> SubjectScores:
    """Of each subject two classes in turn, and whether each window is predicted rightly."""
    y = np.concatenate([np.arange(len(own)) % 2 for own in right])
    hit = np.concatenate([np.array(own) for own in right])
    said = np.where(hit, y, 1 - y)
    probability = np.where(np.arange(len(classes)) == said[:, None], 0.9, 0.1 / (len(classes) - 1))
    people = [f"p{n}" for n, own in enumerate(right) for _ in own]
    return SubjectScores(list(classes), y, probability, people if named else None)


def test_every_subject_has_a_score_and_classes_are_counted() -> None:
    found = scores([[True] * 8, [True, False] * 4, [True]])
    table = found.table().set_index("subject")
    assert table["balanced_accuracy"].tolist()[:2] == [1.0, 0.5]
    assert np.isnan(table.loc["p2", "balanced_accuracy"]), "a single window says nothing"
    assert table.loc["p2", "accuracy"] == 1
    assert table.loc["p1", ["rest as rest", "rest as fist", "fist as rest", "fist as fist"]].tolist() == [4, 0, 4, 0]
    lines = found.lines()
    assert lines[0] == "Not clearly better than guessing (chance .500)", "p1 guesses, and there are two people"
    assert lines[1].startswith("balanced accuracy on 2 subjects (chance .500): mean .750")
    assert [line.split() for line in lines[2:5]] == [
        ["p0", "1.000", "8", "windows"], ["p1", ".500", "8", "windows"], ["p2", "–", "1", "window"],
    ]  # fmt: skip
    assert [line.split() for line in lines[-2:]] == [["rest", "9", "0"], ["fist", "4", "4"]]


@pytest.mark.parametrize(("metric", "chance"), [("roc_auc", ".500"), ("cohen_kappa", ".000"), ("f1_macro", ".500")])
def test_the_metric_can_be_chosen(metric: str, chance: str) -> None:
    lines = scores([[True] * 8] * 3).lines(metric)
    assert f"on 3 subjects (chance {chance}): mean 1.000" in lines[0]


def test_missing_and_many_subjects() -> None:
    assert scores([[True] * 8], named=False).lines()[0] == "balanced accuracy on 8 windows: 1.000 (chance .500)"
    many = scores([[True] * 4] * 30, classes=tuple(f"class {n}" for n in range(20))).lines()
    assert "  and 10 more; --scores FILE lists all subjects" in many
    assert many[-1] == "The confusion matrix of 20 classes is in --scores FILE"
    rude = scores([[True] * 4], classes=("a\x1b[31m\n", "b")).lines()
    assert all(line.isprintable() for line in rude)


def test_unanswered_windows_and_sets_are_described() -> None:
    found = scores([[True, True, True, False]])
    table = pd.DataFrame({"answered": [True, True, True, False]})
    sets = {"set_rest": [True, True, True, True], "set_fist": [False, True, False, False]}
    first, second = found.describe_decisions(table.assign(**sets), METRICS["balanced_accuracy"])
    assert first == "1 window of 4 left unanswered; balanced accuracy on answered windows: 1.000"
    assert second == "the sets of 75 % of windows contain the true class; mean size 1.2 classes"
    assert found.describe_decisions(table[[]], METRICS["balanced_accuracy"]) == []
