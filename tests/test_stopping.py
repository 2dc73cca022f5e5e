"""A run stops when no gain is expected, and no subject takes part in the decision about it."""

from __future__ import annotations

import numpy as np

from autotransfer.runs.choice import Scores, StageScore
from autotransfer.search.procedure import RECENT_STAGES, count_stages_without, expects_gain

PEOPLE = [f"p{n}" for n in range(20)]


def course(*gains: float, noise: float = 0.002, seed: int = 0) -> list[Scores]:
    """Scores after each stage: so much is gained on average, more by some."""
    generator = np.random.default_rng(seed)
    steps = [generator.normal(gain, noise, len(PEOPLE)) for gain in gains]
    values = 0.5 + np.concatenate([np.zeros((1, len(PEOPLE))), np.cumsum(steps, 0)])
    return [dict(zip(PEOPLE, row.tolist(), strict=True)) for row in values]


def answers(scores: list[Scores]) -> list[StageScore]:
    return [StageScore.from_scores(f"stage {n}", n, 60.0 * n, own) for n, own in enumerate(scores)]


def test_a_run_continues_while_subjects_gain() -> None:
    assert expects_gain(course(0.05, 0.03))
    assert expects_gain(course(0.05, 0.004, 0.004))
    assert not expects_gain(course(0.05, 0.0, 0.0))
    assert not expects_gain(course(0.05, -0.01, 0.0))
    assert expects_gain(course(0.05, 0.0)), "the gain of the stage before counts as well"


def test_two_stages_come_before_any_decision() -> None:
    scores = course(*[-0.1] * RECENT_STAGES)
    assert [expects_gain(scores[:n]) for n in range(1, RECENT_STAGES + 2)] == [True] * RECENT_STAGES + [False]


def test_few_different_subjects_do_not_stop_a_run() -> None:
    few = [{name: own[name] for name in PEOPLE[:3]} for own in course(0.0, 0.0, noise=0.05)]
    assert expects_gain(few)
    assert expects_gain([{"a": 0.5}] * 5), "one person says nothing"


def test_no_subject_takes_part_in_its_own_decision() -> None:
    """One subject gains so much that the mean does; the others alone would have stopped."""
    scores = course(0.02, 0.0, 0.0, 0.0, noise=1e-4)
    for n, own in enumerate(scores):
        own["p0"] = min(1.0, 0.3 + 0.1 * n)
    assert expects_gain(scores)
    assert not expects_gain(scores, {"p0"})
    told = answers(scores)
    assert count_stages_without(told, {"p0"}) == 4, "when two stages had gained the others nothing"
    assert count_stages_without(told, {"p1"}) == len(told), "p0 makes everybody else go on"
    assert count_stages_without(told, {"p0"}, 5) == 5, "an encoder that was not tried yet"
