"""Pooled differences against scipy, Student's t and what must follow from the definition."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from benchmarks.evidence import pooled
from benchmarks.inference import over_equal_sets
from scipy import stats

from autotransfer.report.statistics import holm
from autotransfer.report.wording import significance
from autotransfer.training.intervals import bootstrap_interval


def sets(*sizes: int, gain: float = 0.05, seed: int = 0) -> dict[str, dict[str, float]]:
    generator = np.random.default_rng(seed)
    return {f"set {k}": {str(i): gain + 0.1 * generator.normal() for i in range(n)} for k, n in enumerate(sizes)}


def numbered(groups: Iterable[np.ndarray]) -> dict[str, dict[str, float]]:
    return {f"set {k}": {str(i): float(value) for i, value in enumerate(group)} for k, group in enumerate(groups)}


def test_subjects_of_all_sets_count_once() -> None:
    data = sets(30, 12, 5)
    everyone = np.array([v for own in data.values() for v in own.values()])
    found = pooled(data)
    assert found is not None
    assert found.n == found.wins + found.ties + found.losses == 47
    assert found.mean == pytest.approx(everyone.mean())
    assert found.p == pytest.approx(stats.wilcoxon(everyone, method="exact").pvalue)
    theirs = stats.bootstrap((everyone,), np.mean, method="percentile", n_resamples=10_000, rng=0)
    limits = theirs.confidence_interval
    assert found.interval == pytest.approx((limits.low, limits.high), abs=0.003)


def test_equal_sets_weigh_the_same() -> None:
    data = {"large": dict.fromkeys(map(str, range(40)), 0.1), "small": {"a": -0.1, "b": -0.1}}
    by_subject, by_set = pooled(data), over_equal_sets(data)
    assert by_subject is not None
    assert by_subject.mean == pytest.approx((40 * 0.1 - 2 * 0.1) / 42)
    assert by_set.value == pytest.approx(0.0, abs=1e-12)
    assert by_set.interval == pytest.approx((0.0, 0.0), abs=1e-9)  # nobody differs from their set


def test_stratified_interval_approaches_welchs() -> None:
    generator = np.random.default_rng(3)
    groups = [generator.normal(0.1, 0.2, 60), generator.normal(-0.1, 0.05, 40)]
    mean = over_equal_sets(numbered(groups), resamples=40_000)
    error = np.sqrt(sum(own.var(ddof=1) / len(own) for own in groups)) / 2
    middle = np.mean([own.mean() for own in groups])
    expected = middle + error * np.array([-1.99, 1.99])  # about 69 degrees of freedom
    assert mean.value == pytest.approx(middle)
    assert mean.interval == pytest.approx(expected, abs=0.003)


def test_stratified_interval_of_one_set_is_the_plain_one() -> None:
    own = np.random.default_rng(4).normal(0.0, 0.1, 20)
    assert over_equal_sets(numbered([own])).interval == pytest.approx(bootstrap_interval(own, seed=1), abs=0.004)


def test_stratified_interval_covers_as_often_as_it_says() -> None:
    """Three sets of 5: without the two corrections it covers about 0.87."""
    generator = np.random.default_rng(5)
    hits = 0
    for study in range(300):
        limits = over_equal_sets(numbered(generator.normal(0, 1, (3, 5))), seed=study, resamples=1000).interval
        assert limits is not None
        hits += limits[0] <= 0 <= limits[1]
    assert 0.915 < hits / 300 < 0.985


def test_pooling_is_seeded_and_knows_its_limits() -> None:
    data = sets(6, 7)
    reversed_order = {name: dict(reversed(own.items())) for name, own in data.items()}
    first = over_equal_sets(data, seed=1)
    assert over_equal_sets(reversed_order, seed=1).interval == first.interval
    assert over_equal_sets(data, seed=2).interval != first.interval
    assert pooled({}) is None
    assert pooled({"empty": {}}) is None
    few = {"a": {"x": 0.1}, "b": {"y": 0.2, "z": 0.3}}
    assert over_equal_sets(few).interval is None
    single = pooled(few)
    assert single is not None
    assert single.p is None


def test_significance_in_words() -> None:
    p = holm({"mmd": 0.02, "began": 0.03, "mige": 0.9})
    assert p["mmd"] == pytest.approx(0.06)
    nothing = significance(p, {"mmd": 0.02, "began": 0.02, "mige": 0.0})
    assert nothing.startswith("No method differs significantly")
    assert "3 methods" in nothing
    assert "0.060" in nothing
    found = significance(holm({"mmd": 0.001, "began": 0.002, "mige": 0.9}), {"mmd": 0.02, "began": -0.1, "mige": 0.0})
    assert "MMD better" in found
    assert "BEGAN worse" in found
    assert "1 method without" in found
    assert "could be tested" in significance({"mmd": None}, {"mmd": 0.1})
