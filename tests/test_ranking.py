"""Shortlist and choice on numbers whose answer is known."""

from __future__ import annotations

import numpy as np

from autotransfer.search.ranking import (
    Score,
    best_lower_quartile,
    best_mean,
    lower_quartile,
    scores_by_subject,
    shortlist,
)


def scores(**values: list[float]) -> list[Score]:
    return [Score(setting, subject, v) for setting, own in values.items() for subject, v in enumerate(own)]


def test_the_choice_is_the_highest_lower_quartile_not_the_highest_mean() -> None:
    found = scores(bold=[0.2, 0.2, 0.99, 0.99, 0.99], steady=[0.6, 0.6, 0.6, 0.6, 0.6])
    assert np.mean([0.2, 0.2, 0.99, 0.99, 0.99]) > 0.6
    assert best_lower_quartile(found, ["bold", "steady"]) == "steady"
    assert lower_quartile(scores_by_subject(found, "bold")) == 0.2


def test_seeds_are_averaged_per_subject_first() -> None:
    found = [Score("a", 0, 0.0), Score("a", 0, 1.0), Score("a", 1, 0.5), Score("b", 0, 0.4), Score("b", 1, 0.4)]
    assert lower_quartile(scores_by_subject(found, "a")) == 0.5
    assert best_lower_quartile(found, ["a", "b"]) == "a"


def test_the_mean_decides_and_the_lower_quartile_breaks_near_ties() -> None:
    found = scores(bold=[0.3, 0.3, 1.0, 1.0], steady=[0.6] * 4, near=[0.648] * 4, low=[0.644] * 4)
    assert best_mean(found, ["steady", "bold"]) == "bold"
    assert best_mean(found, ["bold", "near"]) == "near", "0.002 below, and better for the worst quarter"
    assert best_mean(found, ["bold", "low"]) == "bold", "0.006 below"


def test_the_shortlist_keeps_three_of_each_method_and_the_baseline() -> None:
    methods = {"base": None, **{f"mmd{i}": "mmd" for i in range(5)}, "adv0": "adversary"}
    found = scores(base=[0.1], mmd0=[0.5], mmd1=[0.9], mmd2=[0.7], mmd3=[0.8], mmd4=[0.6], adv0=[0.2])
    assert shortlist(found, methods) == ["base", "mmd1", "mmd2", "mmd3", "adv0"]
