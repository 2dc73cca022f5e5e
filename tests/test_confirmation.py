"""Statistics of subjects that are nested in data sets, and the collection of baselines, have known results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks import inference
from benchmarks.evidence import collect_baselines, read_baseline_rows, select_best
from benchmarks.markdown import bold_best
from scipy import stats

from autotransfer.training.intervals import mean_interval

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def nested(seed: int, sets: int = 12, people: int = 15, between: float = 0.03) -> dict[str, dict[str, float]]:
    """Differences with mean .05: sets deviate by `between`, subjects by .05 within them."""
    draw = np.random.default_rng(seed)
    return {
        str(k): dict(zip(map(str, range(people)), draw.normal(draw.normal(0.05, between), 0.05, people), strict=True))
        for k in range(sets)
    }


def test_the_interval_of_sets_and_subjects_covers_the_mean() -> None:
    """If sets differ, an interval over subjects alone is far too narrow; the hierarchical one covers at least 95 %."""
    both = people = 0
    for seed in range(60):
        low, high = inference.mean_over_both(nested(seed), resamples=500).interval or (0, 0)
        both += low <= 0.05 <= high
        everyone = [value for people in nested(seed).values() for value in people.values()]
        low, high = mean_interval(everyone) or (0, 0)
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


def test_a_new_file_of_baselines_counts(tmp_path: Path) -> None:
    for path in RESULTS.rglob("*.csv"):
        (tmp_path / path.relative_to(RESULTS)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.relative_to(RESULTS)).symlink_to(path)
    before = collect_baselines(tmp_path, "emg_minimal", "zero-shot")
    rows = [f"emg_minimal,new,zero-shot,{k},0.99" for k in range(10)]  # one subject is missing
    rows += ["emg_minimal,mean only,zero-shot,,0.97", "emg_minimal,moving,transductive,,0.98"]
    (tmp_path / "baselines" / "new.csv").write_text("\n".join(["dataset,baseline,adaptation,subject,score", *rows]))
    collect_baselines.cache_clear()
    read_baseline_rows.cache_clear()
    after = collect_baselines(tmp_path, "emg_minimal", "zero-shot")
    assert {baseline.name for baseline in after} - {baseline.name for baseline in before} == {"mean only"}
    best = select_best(after)
    assert (best.name, best.kind, best.source, best.mean) == ("mean only", "generic", "new", 0.97)
    assert best.subtract_from({"a": 1.0, "b": 0.9}) == pytest.approx({"a": 0.03, "b": -0.07})
    assert "moving, all windows" in {b.name for b in collect_baselines(tmp_path, "emg_minimal", "transductive")}
    assert len(after) > 25
    assert all("" in b.scores or len(b.scores) == 11 for b in after)
