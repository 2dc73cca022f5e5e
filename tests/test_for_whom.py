"""Scores by group of the columns beside the data, with a truth that is known."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.runs.choice import GroupScore, Playback
from autotransfer.search.for_whom import group_scores
from autotransfer.training.scoring import METRICS
from report_example import averaged

BALANCED = METRICS["balanced_accuracy"]


def study(people: int = 20, n: int = 40, seed: int = 0) -> tuple[at.Recordings, dict[int, np.ndarray]]:
    """Women's windows are read worse, and everybody's at night; sites do not differ."""
    draw = np.random.default_rng(seed)
    subject, y = np.repeat(np.arange(people), n), np.tile([0, 1], people * n // 2)
    sex, night = np.where(subject % 2, "f", "m"), np.tile(np.repeat([0, 1], n // 2), people)
    columns = {
        "sex": sex, "age": 20 + subject, "site": np.where(subject < 3, "A", "B"),
        "time": np.where(night == 1, "night", "day"),
    }  # fmt: skip
    rec = at.Recordings(draw.standard_normal((len(y), 2, 8)), y, subject, sfreq=8, columns=columns)
    right = draw.random(len(y)) < 0.9 - 0.2 * (sex == "f") - 0.15 * night
    p = np.where((y == 1) == right, 0.8, 0.2)
    log_p = np.log(np.stack([1 - p, p], 1))
    return rec, {k: log_p[subject == k] for k in range(people)}


def of(found: list[GroupScore], column: str) -> dict[str, GroupScore]:
    return {one.group: one for one in found if one.column == column}


def test_groups_that_are_worse_are_named_and_others_are_not() -> None:
    rec, log_probs = study()
    found = group_scores(rec, BALANCED, log_probs)
    assert {one.column for one in found} == {"sex", "age", "site", "time"}
    sex, time, site, age = (of(found, column) for column in ("sex", "time", "site", "age"))
    assert sex["f"].concern == "worse"
    assert sex["m"].concern == ""
    assert sex["f"].difference[0] < -0.2 < sex["f"].difference[1]  # the truth
    assert not sex["f"].within
    y, who = rec.y.numpy(), rec.subject.numpy()
    own = [
        np.mean([(log_probs[k].argmax(1) == y[who == k])[y[who == k] == c].mean() for c in (0, 1)])
        for k in range(1, 20, 2)
    ]
    assert sex["f"].mean == pytest.approx(np.mean(own))
    assert time["night"].concern == "worse"
    assert time["night"].within
    assert time["night"].people == 20
    assert site["A"].concern == "few"
    assert site["B"].concern == ""
    assert set(age) == {"up to 29.5", "above 29.5"}  # as many values as people
    assert all(one.concern == "" for one in age.values())


def test_a_missing_value_is_in_no_group_and_one_group_is_none() -> None:
    rec, log_probs = study()
    hand = ["left" if k % 4 == 0 else "right" if k % 4 == 1 else None for k in rec.subject.tolist()]
    columns = {"hand": hand, "all": ["same"] * rec.n_trials}
    other = at.Recordings(rec.X, rec.y.numpy(), rec.subject.numpy(), sfreq=8, columns=columns)
    found = group_scores(other, BALANCED, log_probs)
    assert [(one.column, one.group, one.people) for one in found] == [("hand", "left", 5), ("hand", "right", 5)]


def test_harm_is_the_share_of_people_who_lose() -> None:
    run = averaged()
    assert run.choice is not None
    assert run.choice.playback is not None
    values = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8}
    lower = values | {"a": 0.4, "b": 0.585}
    played = Playback(
        zero_shot={"recorded": values}, adapted={"recorded": lower}, before={"1": values}, calibrated={"1": values},
        follows="none", calibrates=[], ways={}, own={},
    )  # fmt: skip
    assert played.harmed == (0.25, 4)
    assert played.harmed_by_labels == {"1": (0.0, 4)}
