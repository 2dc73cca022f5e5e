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


def test_the_best_is_bold() -> None:
    assert bold_best([0.5, None, 0.71, 0.7101]) == [".500", "–", "**.710**", "**.710**"]
    assert bold_best([None]) == ["–"]


def test_readme_quotes_the_scores() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    first = re.search(r"\.\d{3} balanced accuracy \(95 % interval \.\d{3} to \.\d{3}\)", readme)
    assert first is not None
    assert first[0] == confirmation.headline(RESULTS), "the first number is the confirmation's"
    assert re.findall(r"(?<!\d)\.\d{3}\b", readme)[:3] == re.findall(r"\.\d{3}", first[0])
    confirmed = confirmation.ConfirmationScores(RESULTS)
    assert sum(map(len, confirmed.zero_shot[confirmation.ENSEMBLE].values())) == 166
