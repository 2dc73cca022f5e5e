"""One person of a run in words, and each class of everybody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import precision_score, recall_score

import autotransfer as at
from autotransfer.report.mistake_figures import class_rows
from autotransfer.report.one_person import person_lines
from report_example import averaged, finished

COUNTS = np.array([[6, 2, 0], [1, 3, 0], [0, 5, 0]])


def test_recall_and_precision_are_those_of_scikit_learn() -> None:
    true, predicted = (np.repeat(index.ravel(), COUNTS.ravel()) for index in np.indices(COUNTS.shape))
    rows = class_rows(COUNTS, ["a", "b", "c"], "balanced_accuracy")
    recalls = recall_score(true, predicted, average=None)
    assert [row[3] for row in rows] == [f"{100 * value:.0f}\u00a0%" for value in recalls]
    precisions = precision_score(true, predicted, average=None, zero_division=0)[:2]
    assert [row[4] for row in rows] == [*(f"{100 * value:.0f}\u00a0%" for value in precisions), "–"]
    assert [row[1] for row in rows][2] == "c taken for b, 5 of 5 windows"


def test_a_class_has_its_share_of_what_was_paid() -> None:
    rows = class_rows(COUNTS, ["a", "b", "c"], "cost:[[0,1,1],[3,0,1],[1,1,0]]")
    assert [row[5] for row in rows] == ["20\u00a0%", "30\u00a0%", "50\u00a0%"]


def test_everybody_can_be_asked_for() -> None:
    run = averaged()
    assert run.choice is not None
    ranked = sorted(run.choice.estimate, key=lambda who: -run.choice.estimate[who] if run.choice else 0)
    for place, name in enumerate(ranked, 1):
        text = "\n".join(person_lines(run, name))
        assert text.startswith(f"{name}, ")
        assert f"{run.metric} {run.choice.estimate[name]:.3f} (chance" in text
        ties = [own for own in run.choice.estimate.values() if own > run.choice.estimate[name]]
        assert f"place {1 + len(ties)} of {len(ranked)}:" in text
        assert 1 + len(ties) <= place
        for row in run.choice.confusions[name]:
            assert any([*map(int, line.split()[-len(row) :])] == row for line in _tables(text, len(row)))
        own = run.choice.reliability[name]
        assert f"mean confidence {own.confidence:.3f}, right {own.accuracy:.3f}" in text


def _tables(text: str, size: int) -> list[str]:
    return [line for line in text.splitlines() if all(word.isdigit() for word in line.split()[-size:])]


def test_what_is_not_known_is_not_told() -> None:
    run = finished()
    assert run.choice is not None
    name = next(iter(run.choice.estimate))
    lacking = replace(run, choice=replace(run.choice, confusions={}, reliability={}, answering=None, at_least=0.99))
    text = "\n".join(person_lines(lacking, name))
    assert "windows by class" not in text
    assert "mean confidence" not in text
    assert "below 0.99, which you need of everybody" in text
    with pytest.raises(at.UserError, match="has no answer yet"):
        person_lines(replace(run, choice=None), name)


def test_unknown_names_are_answered_with_near_ones() -> None:
    run = finished(names=("anna", "bert", "carla"), n_subjects=3)
    with pytest.raises(at.UserError, match=r"nobody in .* is called 'Ana'; did you mean 'anna'"):
        person_lines(run, "Ana")
    with pytest.raises(at.UserError, match="did you mean 'anna', 'bert', 'carla'"):
        person_lines(run, "xyz")
