"""The headline: its numbers against oracles, and one sentence wherever a result is stated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.models.loading import load_model
from autotransfer.report.findings import describe_worst, write_summary
from autotransfer.report.statistics import compare_paired
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.headline import best_baseline
from autotransfer.search.baselines import LINEAR_BASELINES, PYRIEMANN, RECENTERED
from autotransfer.training.intervals import describe_next_subject, next_subject
from autotransfer.versions import versions
from report_example import averaged
from tiny import auto_classifier, tiny


def of(**changes: Any) -> Choice:
    choice = averaged().choice
    return replace(choice, **changes)


# ---- the next subject


def test_order_statistics_give_the_interval_from_nineteen_subjects() -> None:
    scores = np.random.default_rng(0).permutation(np.linspace(0.3, 0.9, 39))
    few, nineteen, many = (next_subject(scores[:n]) for n in (18, 19, 39))
    assert (few.assumes, nineteen.assumes) == ("normal", "nothing")
    assert (nineteen.low, nineteen.high) == (scores[:19].min(), scores[:19].max())
    assert (many.low, many.high) == (np.sort(scores)[1], np.sort(scores)[-2])


@pytest.mark.parametrize("n", [19, 24, 39, 60])
def test_the_interval_covers_nine_subjects_of_ten_for_any_distribution(n: int) -> None:
    draw = np.random.default_rng(n).beta(0.7, 0.4, (4000, n + 1))  # scores that crowd at both ends
    found = [next_subject(row[:-1]) for row in draw]
    inside = np.mean([one.low <= row[-1] <= one.high for one, row in zip(found, draw, strict=True) if one])
    k = (n + 1) // 20
    assert inside == pytest.approx((n + 1 - 2 * k) / (n + 1), abs=0.015)
    assert inside > 0.885


def test_fewer_subjects_have_students_interval() -> None:
    scores = [0.5, 0.62, 0.55, 0.71]
    found = next_subject(scores)
    expected = stats.t.interval(0.9, 3, np.mean(scores), np.std(scores, ddof=1) * np.sqrt(1.25))
    assert (found.low, found.high) == pytest.approx(expected)
    assert "normal" in str(describe_next_subject(found))
    draw = np.clip(np.random.default_rng(1).normal(0.6, 0.05, (4000, 8)), 0, 1)
    inside = np.mean([one.low <= row[-1] <= one.high for row in draw if (one := next_subject(row[:-1]))])
    assert inside == pytest.approx(0.9, abs=0.02)
    assert next_subject([0.5]) is None
    found = next_subject([*(k / 20 for k in range(18)), float("nan")])
    assert (found.n_subjects, found.assumes, np.isfinite(found.high)) == (18, "normal", True)
    assert next_subject([1.0, 1.0, 1.0]) is None, "people who are all alike say nothing of how others differ"
    wide = next_subject([0.1, 0.9])
    assert (wide.low, wide.high) == (0.0, 1.0)


# ---- next to the best simple model


def test_the_best_baseline_is_compared_by_subject() -> None:
    own = {str(n): 0.5 + 0.03 * n for n in range(10)}
    baselines = {"low": {s: v - 0.2 for s, v in own.items()},
             "high": {s: v - 0.01 * (1 + int(s) % 3) for s, v in own.items() if s != "9"}}  # fmt: skip
    found, pair = best_baseline(own, baselines), compare_paired(own, baselines["high"])
    assert (found.name, found.n_subjects, found.comparison) == ("high", 9, "better")
    assert (found.mean, found.difference) == pytest.approx((pair.second.mean, pair.mean))
    assert found.interval == pytest.approx(pair.interval)
    assert best_baseline(own, {"nobody": {"0": float("nan")}}) is None


@pytest.mark.parametrize(
    ("gains", "comparison"),
    [([0.1, 0.2, 0.15, 0.12, 0.2, 0.3], "better"), ([-0.1, -0.2, -0.15, -0.1, -0.2, -0.3], "worse"),
     ([0.1, -0.2, 0.02, -0.05, 0.01, 0.1], "similar"), ([0.1, 0.2, 0.15], "too few"), ([0.1], "too few")],
)  # fmt: skip
def test_a_difference_is_claimed_only_if_its_interval_excludes_zero(gains: list[float], comparison: str) -> None:
    own = {str(n): 0.5 for n in range(len(gains))}
    found = best_baseline(own, {"baseline": {str(n): 0.5 - gain for n, gain in enumerate(gains)}})
    assert found.comparison == comparison


def test_the_headline_follows_from_the_scores() -> None:
    choice = of()
    values = json.loads(json.dumps(schema.to_values(choice)))
    assert values["headline"] == choice.headline
    assert values["next_subject"]["low"] == choice.next_subject.low
    assert values["best_baseline"]["name"] == "pyRiemann tangent space + LDA"
    edited = values | {"headline": "the best model ever", "next_subject": None}
    assert schema.from_values(Choice, edited) == choice
    for name in (*LINEAR_BASELINES.values(), PYRIEMANN, RECENTERED):
        assert name in of(baselines={name: choice.estimate}).headline, "a known name is whole"
    assert "so far" in choice.headline, "a baseline was skipped"
    assert "so far" not in of(skipped_baselines={}).headline


def test_subjects_below_the_required_score_are_named() -> None:
    scores = {"anna": 0.55, "ben": 0.81, "cleo": 0.69}
    choice = of(nested_test_scores=scores, at_least=0.7)
    assert list(choice.low_scores) == ["anna", "cleo"]
    line = describe_worst(choice)
    assert line in write_summary(choice)
    assert "anna" in line
    assert "cleo" in line
    for wrong in (0.0, 1.0, 70.0, float("nan")):
        with pytest.raises(UserError, match="between 0 and 1"):
            replace(choice, at_least=wrong)


def test_estimator_card_model_page_and_file_have_the_same_headline(tmp_path: Path) -> None:
    recordings = tiny(n_subjects=4)
    recordings.y[:3] = 1 - recordings.y[:3]  # subjects' scores differ
    auto = auto_classifier(
        "uncensored", adaptation="none", max_epochs=20, batch_size=8, seeds=1, device="cpu", at_least=0.9,
        run_folder=tmp_path / "run",
    )  # fmt: skip
    auto.fit(recordings.X, recordings.y, subjects=recordings.subject)
    choice, card = read_choice(tmp_path / "run"), load_model(tmp_path / "run" / "model").card
    assert auto.verdict_ == auto.choice_["headline"] == choice.headline == card.scores["headline"]
    assert auto.next_subject_ == (choice.next_subject.low, choice.next_subject.high)
    assert card.scores["next_subject"]["low"] == choice.next_subject.low
    assert choice.at_least == 0.9
    page = (tmp_path / "run" / "model" / "README.md").read_text().replace("\\", "")
    assert choice.headline in page
    assert str(describe_next_subject(choice.next_subject)) in page
    assert card.made_with == versions()
    assert f"kernels {versions()['kernels']}" in page
    # what the delivered model confuses is what its scores rest on
    for person, counts in choice.confusions.items():
        recalls = np.diag(counts) / np.sum(counts, 1)
        assert choice.reliability[person].accuracy == pytest.approx(np.mean(recalls))
        assert choice.reliability[person].confidence >= choice.chance
