"""Statistics of the confirmation have known results, and README quotes their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import confirmation, inference
from benchmarks.markdown import bold_best
from scipy import stats

from autotransfer.training.intervals import bootstrap_interval

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"


def nested(seed: int, sets: int = 12, people: int = 15, between: float = 0.03) -> dict[str, dict[str, float]]:
    """Differences with mean .05: sets deviate by `between`, subjects by .05 within them."""
    draw = np.random.default_rng(seed)
    return {
        str(k): dict(zip(map(str, range(people)), draw.normal(draw.normal(0.05, between), 0.05, people), strict=True))
        for k in range(sets)
    }


def test_the_interval_of_sets_and_subjects_covers_the_mean() -> None:
    """Where sets differ, an interval over subjects alone is far too narrow; the hierarchical one covers at least 95
    %."""
    both = people = 0
    for seed in range(60):
        low, high = inference.mean_over_both(nested(seed), resamples=500).interval or (0, 0)
        both += low <= 0.05 <= high
        everyone = [value for people in nested(seed).values() for value in people.values()]
        low, high = bootstrap_interval(everyone, seed=0, resamples=500) or (0, 0)
        people += low <= 0.05 <= high
    assert both >= 55
    assert people < 48


def test_its_width_is_that_of_sets_if_subjects_agree() -> None:
    differences = {str(k): dict.fromkeys("abc", 0.01 * k) for k in range(9)}
    sets, both = inference.mean_over_sets(differences), inference.mean_over_both(differences)
    assert both.value == sets.value == pytest.approx(0.04)
    np.testing.assert_allclose(both.interval, sets.interval, atol=2e-3)
    alike = {str(k): {"a": -0.1, "b": 0.1, "c": -0.1, "d": 0.1} for k in range(6)}
    low, high = inference.mean_over_both(alike).interval or (0, 0)
    assert inference.mean_over_sets(alike).interval == (0, 0), "sets do not differ"
    assert (high - low) / 2 == pytest.approx(2.8 * 0.1 / np.sqrt(4 * 6), rel=0.15), "people do: 2.8 is t's for 6 sets"
    shuffled = {name: dict(reversed(people.items())) for name, people in nested(1).items()}
    assert inference.mean_over_both(shuffled) == inference.mean_over_both(nested(1)), "order of subjects"


def test_equivalence_is_two_one_sided_tests() -> None:
    values = np.random.default_rng(0).normal(0.002, 0.01, 30)
    equivalence = inference.equivalence(values)
    one, other = (
        stats.ttest_1samp(values, edge, alternative=side).pvalue for edge, side in ((-0.01, "greater"), (0.01, "less"))
    )
    assert equivalence.p == pytest.approx(max(one, other))
    assert equivalence.p < 0.05
    assert -0.01 < equivalence.interval[0] < equivalence.interval[1] < 0.01
    assert inference.equivalence(values + 0.01).p > 0.5, "a difference of .012 is one"
    wide = inference.equivalence(np.random.default_rng(0).normal(0.0, 0.2, 8))
    assert wide.p > 0.05, "nothing is shown by eight noisy sets"


def test_harm_counts_subjects_beyond_the_margin() -> None:
    differences = {"a": {"1": -0.03, "2": -0.02, "3": 0.5, "4": 0.02}, "b": {"1": 0.021, "2": 0.0}}
    assert inference.harm_rates(differences) == (pytest.approx(1 / 6), pytest.approx(2 / 6))
    row = inference.harm_table({"step": differences}).splitlines()[2]
    assert "25\u00a0% (a)" in row
    assert "−0.030" in row


def test_the_best_is_bold() -> None:
    assert bold_best([0.5, None, 0.71, 0.7101]) == ["0.500", "–", "**0.710**", "**0.710**"]
    assert bold_best([None]) == ["–"]


def test_readme_quotes_the_scores() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    first = re.search(r"\d\.\d{3} balanced accuracy \(95 % interval \d\.\d{3} to \d\.\d{3}\)", readme)
    assert first is not None
    assert first[0] == confirmation.headline(RESULTS), "the first number is the confirmation's"
    assert re.findall(r"\b0\.\d{3}\b", readme)[:3] == re.findall(r"0\.\d{3}", first[0])
    confirmed = confirmation.ConfirmationScores(RESULTS)
    assert sum(map(len, confirmed.zero_shot[confirmation.ENSEMBLE].values())) == 166
