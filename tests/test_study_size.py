"""Learning curves: the fit against known curves, and studies with a known truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.recordings import save_npz
from autotransfer.search.study_size import EXPONENTS, ClassSums, expected_gain, extrapolate_gains
from autotransfer.training.closed_form import ClassMoments

SHARED = np.array([0.6, 0.6, 0.0, 0.0])  # by which the classes of everybody differ


def study(people: int, windows: int = 24, own: float = 1.2, shared: float = 1.0) -> at.Recordings:
    """Every subject has their own direction next to one that all share: more subjects tell the shared one better."""
    draw = np.random.default_rng(0)
    subject, y = np.repeat(np.arange(people), windows), np.tile([0, 1], people * windows // 2)
    direction = own * draw.standard_normal((people, 4)) + shared * SHARED
    X = draw.standard_normal((len(y), 4, 16)) + ((2 * y - 1)[:, None] * direction[subject])[:, :, None]
    return at.Recordings(X, y, subject, sfreq=16, name="pilot")


def test_the_fit_is_exact_where_the_curve_is_a_power_law() -> None:
    n = np.array([2.0, 4.0, 8.0, 16.0])
    curves = np.stack([0.8 - 0.5 * n**-1.0, 0.5 + 0.2 * n**-0.5])
    risen = dict(zip(EXPONENTS, extrapolate_gains([2, 4, 8, 16], curves, 16, 32), strict=True))
    assert risen[1.0][0] == pytest.approx(0.5 / 16 - 0.5 / 32)
    assert risen[0.5][1] == pytest.approx(0.2 * (32**-0.5 - 16**-0.5))
    assert risen[0.25][0] > risen[1.0][0] > risen[1.25][0]  # the slower, the more is left to gain


@pytest.mark.parametrize("drop", [0.6, 0.0])
def test_the_interval_holds_the_true_gain(drop: float) -> None:
    """Scores are drawn around 0.8 − drop / n; subjects differ from each other, and from size to size."""
    draw, sizes, hits, below = np.random.default_rng(0), [2, 4, 8, 15], 0, 0
    true = drop * (1 / 15 - 1 / 25)
    for _ in range(100):
        people = 0.1 * draw.standard_normal((12, 1)) + 0.04 * draw.standard_normal((12, 4))
        gain, low, high = expected_gain(sizes, 0.8 - drop / np.array(sizes) + people, 15, 25)
        hits += low <= true <= high
        below += low < 0
        assert low <= gain <= high < gain + 0.06
    assert hits >= 85  # more than 90: the exponent is not known
    assert drop or below > 80  # where nothing is gained it says so


def test_sums_by_subject_give_the_discriminant_of_all_windows() -> None:
    draw = torch.Generator().manual_seed(0)
    codes, y = torch.randn(60, 7, generator=draw, dtype=torch.float64), torch.arange(60) % 3
    codes[:, 6] = 4.0  # the same in all
    asked = torch.randn(5, 7, generator=draw, dtype=torch.float64)
    mean, deviation = codes.mean(0), codes.std(0, correction=0)
    scale = torch.where(deviation > 0, 1 / deviation, 0.0)
    weight, bias = ClassMoments((codes - mean) * scale, y, 4).solve(0.5)
    expected = torch.log_softmax((asked - mean) * scale @ weight.T + bias, 1)
    people = [ClassSums.of(codes[rows], y[rows], 4) for rows in torch.arange(60).split(20)]
    torch.testing.assert_close(ClassSums.total(people).predict_log_proba(asked), expected)


@pytest.mark.slow
def test_a_study_that_gains_by_subjects_is_detected() -> None:
    gaining = at.plan_study(study(14)).subjects
    assert gaining.unit == "subjects"
    assert (gaining.sizes[0], gaining.sizes[-1]) == (2, 13)
    assert (gaining.current, gaining.planned) == (13, 23)
    assert gaining.scores[-1] > gaining.scores[0]
    assert gaining.gain > 0
    nothing = at.plan_study(study(14, own=0.0, shared=0.0)).subjects  # noise alone
    assert nothing.low < 0 < nothing.high
    assert abs(nothing.scores[-1] - 0.5) < 0.12


@pytest.mark.slow
def test_the_predicted_gain_is_reached_with_more_subjects() -> None:
    """Twelve of twenty-two subjects predict what training on the other ten as well gains, measured on all."""
    plan, everybody = at.plan_study(study(12)).subjects, at.plan_study(study(22)).subjects
    assert plan.planned == everybody.current
    truth = everybody.scores[-1] - float(np.interp(11, everybody.sizes, everybody.scores))
    assert plan.low <= truth <= plan.high


def test_the_command_prints_the_same(tmp_path: Path) -> None:
    file = tmp_path / "pilot.npz"
    save_npz(file, study(7, windows=12))
    expected = at.plan_study(at.load(file), more_subjects=3)
    text = CliRunner().invoke(app, ["plan-study", str(file), "--subjects", "3"]).output
    assert text.splitlines() == expected.lines()


@pytest.mark.parametrize("value", [0, -3, 10**6, True, 2.5])
def test_invalid_numbers_of_subjects_are_refused(value: object) -> None:
    with pytest.raises(at.UserError, match="whole number"):
        at.plan_study(study(6), more_subjects=value)  # type: ignore[arg-type]


def test_too_few_subjects_are_refused() -> None:
    with pytest.raises(at.UserError, match="at least 5"):
        at.plan_study(study(4))
