"""Costs of mistakes as a metric: the score by hand, what guessing gets, and files that make no sense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotransfer as at
from autotransfer.report.person_scores import PersonScores
from autotransfer.runs.options import RunOptions
from autotransfer.training.mistake_costs import for_classes
from autotransfer.training.scoring import label_of, metric_of

COSTS = "cost:[[0,1,4],[2,0,2],[10,3,0]]"


def test_the_score_is_the_share_of_the_worst_cost_that_was_avoided() -> None:
    y, predicted = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 0, 2, 1])
    metric = metric_of(COSTS)
    assert metric.score(y, np.eye(3)[predicted]) == pytest.approx(1 - (0 + 4 + 2 + 0 + 3) / (4 + 4 + 2 + 10 + 10))
    weight = np.array([1.0, 0, 0, 0, 3])
    assert metric.score(y, np.eye(3)[predicted], weight) == pytest.approx(1 - 3 * 3 / (4 + 3 * 10))
    assert metric.score(y, np.eye(3)[y]) == 1
    assert metric.score(y, np.eye(3)[[2, 2, 0, 0, 0]]) == 0
    assert np.isnan(metric.score(y[:2], np.eye(3)[predicted[:2]]))  # one class alone
    assert label_of(COSTS) == "avoided cost"


def test_a_model_that_always_says_the_cheap_class_only_guesses() -> None:
    y, who = np.tile([0, 1], 40), np.repeat(["a", "b", "c", "d"], 20).tolist()
    told = PersonScores(["rest", "grasp"], y, np.tile([0.9, 0.1], (80, 1)), who).lines("cost:[[0,5],[1,0]]")
    assert told[0] == "Not clearly better than guessing (chance .83)"


def test_named_classes_are_put_in_order() -> None:
    named = 'cost:{"classes":["c","a","b"],"costs":[[0,1,2],[3,0,4],[5,6,0]]}'
    assert for_classes(named, ["a", "b", "c"]) == "cost:[[0.0,4.0,3.0],[6.0,0.0,5.0],[1.0,2.0,0.0]]"
    again = for_classes(named, ["a", "b", "c"])
    assert for_classes(again, ["a", "b", "c"]) == again
    with pytest.raises(at.UserError, match="costs are of the classes c, a, b; the recordings have a, b, x"):
        for_classes(named, ["a", "b", "x"])
    with pytest.raises(at.UserError, match="costs are of 3 classes, and there are 2"):
        for_classes(COSTS, [0, 1])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[[0, 1]]", "must be a square table of numbers"),
        ("[[0, 1], [1]]", "must be a square table of numbers"),
        ('[[0, "a"], [1, 0]]', "must be a square table of numbers"),
        ("[[0, true], [1, 0]]", "must be a square table of numbers"),
        ("[[0, -1], [1, 0]]", "must be a number of at least 0"),
        ("[[0, NaN], [1, 0]]", "must be a number of at least 0"),
        ("[[1, 1], [1, 0]]", "the diagonal must be 0"),
        ("[[0, 0], [1, 0]]", "some mistake must cost more"),
        ('{"costs": [[0, 1], [1, 0]]}', "costs have the entries"),
        ('{"classes": ["a", "a"], "costs": [[0, 1], [1, 0]]}', "must be a square table of numbers"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(at.UserError, match=complaint) as error:
        RunOptions.of("recommended", source="x", metric=str(tmp_path / "costs.json"))
    assert "\n" not in str(error.value)
