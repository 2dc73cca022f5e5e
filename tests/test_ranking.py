"""Shortlist and selection on numbers with a known answer."""

from __future__ import annotations

import numpy as np

from autotransfer.runs.choice import NamedSetting
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.held_out import Score, lower_quartile, scores_by_subject, shortlist
from autotransfer.settings import Setting


def scores(**values: list[float]) -> list[Score]:
    return [Score(setting, subject, v) for setting, own in values.items() for subject, v in enumerate(own)]


def best(rule: str, **values: list[float]) -> str:
    """Return the candidate that is best by its scores on each subject."""
    named = [NamedSetting(name, Setting(lr=0.001 * (k + 1))) for k, name in enumerate(values)]
    found = scores(**{one.setting.key: values[one.name] for one in named})
    evidence = ClassificationEvidence(tuple(named), (), {}, {}, scores=tuple(found), rule=rule)
    return named[evidence.best(range(len(named)))].name


def test_the_choice_is_the_highest_lower_quartile_not_the_highest_mean() -> None:
    bold, steady = [0.2, 0.2, 0.99, 0.99, 0.99], [0.6, 0.6, 0.6, 0.6, 0.6]
    assert np.mean(bold) > 0.6
    assert best("published", bold=bold, steady=steady) == "steady"
    assert lower_quartile(scores_by_subject(scores(bold=bold), "bold")) == 0.2


def test_seeds_are_averaged_per_subject_first() -> None:
    found = [Score("a", 0, 0.0), Score("a", 0, 1.0), Score("a", 1, 0.5), Score("b", 0, 0.4), Score("b", 1, 0.4)]
    assert scores_by_subject(found, "a").tolist() == [0.5, 0.5]


def test_the_mean_decides_and_the_lower_quartile_breaks_near_ties() -> None:
    bold = [0.3, 0.3, 1.0, 1.0]
    assert best("average", steady=[0.6] * 4, bold=bold) == "bold"
    assert best("average", bold=bold, near=[0.648] * 4) == "near", "0.002 below, and better for the worst quarter"
    assert best("average", bold=bold, low=[0.644] * 4) == "bold", "0.006 below"


def test_the_shortlist_keeps_three_of_each_method_and_the_baseline() -> None:
    methods = {"base": None, **{f"mmd{i}": "mmd" for i in range(5)}, "adv0": "adversary"}
    found = scores(base=[0.1], mmd0=[0.5], mmd1=[0.9], mmd2=[0.7], mmd3=[0.8], mmd4=[0.6], adv0=[0.2])
    assert shortlist(found, methods) == ["base", "mmd1", "mmd2", "mmd3", "adv0"]
