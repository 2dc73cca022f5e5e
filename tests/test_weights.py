"""Weights of candidates equal direct formulas and shrink towards equal ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from autotransfer.search.weights import (
    _log_loss,
    balanced_sample_weight,
    combine_log_probs,
    fit_weights,
    sharpness,
    shrunk_sharpness,
)


def drawn(quality: list[float], n: int = 400, classes: int = 3, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Log-probabilities (K, n, C) of candidates that know the class as well as `quality` says, and the classes."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, n)
    logits = generator.normal(size=(len(quality), n, classes))
    logits[:, np.arange(n), y] += np.array(quality)[:, None]
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), y


def even(n: int) -> NDArray:
    return np.full(n, 1 / n)


def test_the_slope_is_the_slope() -> None:
    log_p, y = drawn([1.0, 0.5, 2.0])
    weight = balanced_sample_weight(y)
    beta = np.array([0.2, 0.7, 0.4])
    _, slope = _log_loss(beta, log_p, y, weight)
    found = approx_fprime(beta, lambda b: _log_loss(b, log_p, y, weight)[0], 1e-7)
    np.testing.assert_allclose(slope, found, atol=1e-5)


def test_without_shrinkage_the_loss_is_lowest_and_with_much_of_it_weights_are_equal() -> None:
    log_p, y = drawn([2.0, 1.0, 0.5], n=60)
    weight = even(len(y))
    free, usual, equal = (fit_weights(log_p, y, weight, much) for much in (0.0, 0.01, 1e4))
    losses = [_log_loss(beta, log_p, y, weight)[0] for beta in (free, usual, equal)]
    assert losses[0] <= losses[1] <= losses[2]
    assert np.ptp(equal) < 1e-3 * equal.mean()
    assert equal.sum() == pytest.approx(sharpness(log_p.mean(0), y, weight), rel=1e-3), "calibrated all the same"
    assert np.ptp(usual) < np.ptp(free)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_the_temperature_is_found(factor: float) -> None:
    """Classes drawn from the probabilities themselves are calibrated: whoever sharpens them is undone."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 4)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    y = (p.cumsum(1) > generator.random((len(p), 1))).argmax(1)
    assert sharpness(np.log(p) * factor, y, even(len(y))) == pytest.approx(1 / factor, rel=0.05)


def test_predictions_without_a_mistake_do_not_become_certain() -> None:
    y = np.array([0, 1, 0, 1])
    log_p = np.log(np.where(np.eye(2)[y] > 0, 0.7, 0.3))
    assert 2 < sharpness(log_p, y, even(4)) < 50


def factor_of(logits: NDArray, factor: float) -> NDArray:
    return combine_log_probs(np.array([factor]), logits[None])


def people_with(factors: list[float], n: int = 400, seed: int = 0) -> tuple[list[NDArray], list[NDArray]]:
    """Log-probabilities (n, 3) of subjects, and classes that these would be right about if multiplied by a factor each
    (their own logarithm)."""
    generator, log_p, y = np.random.default_rng(seed), [], []
    for factor in factors:
        logits = 1.5 * generator.normal(size=(n, 3))
        p = np.exp(factor_of(logits, np.exp(factor)))
        y.append((p.cumsum(1) > generator.random((n, 1))).argmax(1))
        log_p.append(factor_of(logits, 1.0))
    return log_p, y


@pytest.mark.parametrize("center", [0.0, -1.1])
def test_a_temperature_of_two_subjects_hardly_harms_the_next(center: float) -> None:
    """Of subjects who differ by as much as in recordings, around no temperature at all or around a strong one."""
    generator = np.random.default_rng(0)
    losses = np.zeros(3)  # the best for both subjects, none, drawn towards none
    for seed in range(40):
        log_p, y = people_with((center + 0.6 * generator.normal(size=3)).tolist(), n=150, seed=seed)
        weight = np.concatenate([balanced_sample_weight(classes) for classes in y[:2]]) / 2
        plain = sharpness(np.concatenate(log_p[:2]), np.concatenate(y[:2]), weight)
        for place, factor in enumerate((plain, 1.0, shrunk_sharpness(log_p[:2], y[:2]))):
            losses[place] += _log_loss(np.array([factor]), log_p[2][None], y[2], balanced_sample_weight(y[2]))[0] / 40
    best, none, drawn_to_none = losses
    assert drawn_to_none - none < (0.4 * (best - none) if center == 0 else -0.05)
