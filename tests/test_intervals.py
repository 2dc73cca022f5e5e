"""Coverage of the 95 % interval for a mean over subjects, by simulation.

Scores of a subject have four shapes: `normal` (mean .70, deviation .10); `ceiling`, skewed to the left below 1 (beta
9, 1); `floor`, skewed to the right above chance (.5 + .5 beta 1, 6); `failures`, one subject in eight near chance (.52)
and the others near .88, with deviation .04 each. A study has 5, 8, 12, 20 or 36 subjects.

Most studies of `failures` with eight subjects or fewer contain no failure, so their coverage is the smallest.
Differences have no limit nearby, so their interval is Student's t.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from autotransfer.training.intervals import is_better_than_guessing, mean_interval

Floats = NDArray[np.float64]

NUMBERS = (5, 8, 12, 20, 36)
SHAPES: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Floats], float]] = {  # draws, mean
    "normal": (lambda draw, size: draw.normal(0.7, 0.1, size), 0.7),
    "ceiling": (lambda draw, size: draw.beta(9, 1, size), 0.9),
    "floor": (lambda draw, size: 0.5 + 0.5 * draw.beta(1, 6, size), 0.5 + 0.5 / 7),
    "failures": (lambda draw, size: draw.normal(np.where(draw.random(size) < 1 / 8, 0.52, 0.88), 0.04), 0.835),
}

STUDIES = 1000
COVERED = {"normal": 0.93, "ceiling": 0.92, "floor": 0.89, "failures": 0.73}  # least, for every number of subjects


@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_in_use_covers_the_mean(shape: str) -> None:
    draw, mean = SHAPES[shape]
    for n in NUMBERS:
        x = draw(np.random.default_rng([n, len(shape)]), (STUDIES, n))
        low, high = np.transpose([mean_interval(study, (0.0, 1.0)) for study in x])
        assert ((low <= mean) & (mean <= high)).mean() >= (0.9 if n >= 20 else COVERED[shape])
        assert low.min() > 0
        assert high.max() < 1
        expected = stats.t.interval(0.95, n - 1, x.mean(1), stats.sem(x, axis=1))
        np.testing.assert_allclose(np.transpose([mean_interval(study) for study in x]), expected)


@pytest.mark.parametrize("n", [5, 8, 12, 20])
def test_random_labels_are_rarely_better_than_guessing(n: int) -> None:
    """The score of a subject is the similarity of its class difference to the sum of the other differences."""
    claims, independent = 0, 0
    for differences in np.random.default_rng(n).normal(size=(STUDIES, n, 10)):
        scores = (differences * (differences.sum(0) - differences)).sum(1)
        claims += is_better_than_guessing(scores)
        independent += mean_interval(scores)[0] > 0
    assert claims <= 0.045 * STUDIES  # 0.025 for normal scores
    assert independent >= 0.05 * STUDIES


def test_a_single_subject_is_not_better_than_guessing() -> None:
    assert not is_better_than_guessing([0.4])
    assert is_better_than_guessing([0.4, 0.4])
