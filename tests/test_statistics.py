"""Paired statistics against enumeration, scipy and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from autotransfer.report.statistics import compare_paired, holm, signed_rank_p, summarize
from autotransfer.training.intervals import mean_interval


def enumerated(data: np.ndarray) -> float:
    """Two-sided p of the signed-rank sum over all 2ⁿ sign patterns: the definition."""
    ranks = stats.rankdata(np.abs(data))
    seen = ranks[data > 0].sum()
    sums = np.array([ranks[list(signs)].sum() for signs in itertools.product((False, True), repeat=len(data))])
    return min(1.0, 2 * min(np.mean(sums <= seen + 1e-9), np.mean(sums >= seen - 1e-9)))


@pytest.mark.parametrize(
    "data",
    [
        [0.1, 0.2, 0.3, 0.4, 0.5, -0.6],
        [0.1, 0.1, 0.1, 0.2, 0.2, -0.1, -0.2],
        [-0.3, -0.3, -0.3, -0.3, -0.3, -0.3],
        [0.05, -0.05, 0.05, -0.05, 0.1, -0.1, 0.2, 0.3],
    ],
)
def test_signed_rank_equals_enumeration_with_and_without_ties(data: list[float]) -> None:
    assert signed_rank_p(data) == pytest.approx(enumerated(np.array(data)), abs=1e-12)


@pytest.mark.parametrize("n", [6, 13, 30, 50])
def test_signed_rank_equals_scipy_exact_without_ties(n: int) -> None:
    data = np.random.default_rng(n).normal(0.3, 1, n)
    assert signed_rank_p(data) == pytest.approx(stats.wilcoxon(data, method="exact").pvalue, rel=1e-9)


def test_signed_rank_of_ties_by_rounding() -> None:
    rough = np.array([0.3 - 0.2, 0.2 - 0.1, 0.1, 0.9 - 0.8, 0.2, 0.25, -0.4])
    assert len(set(rough)) > 4  # equal to a reader, not to the computer
    assert signed_rank_p(rough) == signed_rank_p([0.1, 0.1, 0.1, 0.1, 0.2, 0.25, -0.4])


def test_signed_rank_drops_zeros() -> None:
    six = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert signed_rank_p([*six, 0.0, 0.0]) == signed_rank_p(six) == pytest.approx(2 / 2**6)
    assert signed_rank_p([0.0] * 8) == 1.0
    assert signed_rank_p([0.1] * 5) is None
    assert signed_rank_p([0.1] * 5 + [0.0] * 20) is None
    assert signed_rank_p([]) is None


def test_interval_is_independent_of_order() -> None:
    data = np.random.default_rng(1).normal(0.05, 0.1, 11)
    assert mean_interval(data) == mean_interval(data[::-1]) == mean_interval(data.tolist())


def test_interval_of_few_or_equal_values() -> None:
    assert mean_interval([0.1]) is None
    assert mean_interval([]) is None
    assert mean_interval([0.2, 0.2, 0.2], (0.0, 1.0)) == pytest.approx((0.2, 0.2))


def test_spread() -> None:
    found = summarize([0.4, 0.8, 0.6, 0.5, 0.7])
    assert (found.n, found.mean, found.lower_quartile, found.minimum) == pytest.approx((5, 0.6, 0.5, 0.4))


def test_paired_uses_the_subjects_both_have() -> None:
    first = {"a": 0.7, "b": 0.5, "c": 0.6, "only": 0.9, "broken": math.nan}
    second = {"c": 0.6, "b": 0.6, "a": 0.5, "other": 0.1, "broken": 0.4}
    pair = compare_paired(first, second)
    assert list(pair.differences) == ["c", "b", "a"]
    assert (pair.wins, pair.ties, pair.losses) == (1, 1, 1)
    assert pair.mean == pytest.approx(0.1 / 3)
    assert (pair.first.mean, pair.second.mean) == pytest.approx((0.6, 1.7 / 3))
    assert pair.p is None
    assert compare_paired({"a": 1.0}, {"b": 1.0}) is None


def test_rounding_is_a_tie() -> None:
    pair = compare_paired({"a": 0.1 + 0.2}, {"a": 0.3})
    assert (pair.wins, pair.ties, pair.mean, pair.interval) == (0, 1, 0.0, None)


scores = st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=2, max_size=9)


@given(scores, st.floats(-0.5, 0.5))
@settings(max_examples=40, deadline=None)
def test_a_constant_gain_is_found_exactly(second: dict[str, float], gain: float) -> None:
    pair = compare_paired({subject: value + gain for subject, value in second.items()}, second)
    assert pair.mean == pytest.approx(gain, abs=2e-9)
    assert pair.interval == pytest.approx((pair.mean, pair.mean), abs=1e-9)
    assert pair.wins + pair.ties + pair.losses == pair.n == len(second)


def test_holm_against_a_worked_example() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "none": None})
    assert found["none"] is None
    assert [found[k] for k in "abcd"] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
