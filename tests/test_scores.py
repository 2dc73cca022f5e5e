"""Score estimators against exact scores, against each other, and against the groups one by one."""

from __future__ import annotations

import pytest
import torch
from scipy.special import eval_jacobi

from autotransfer.censoring import scores
from autotransfer.censoring.filters import nu_solve, positive_part
from autotransfer.censoring.groups import find_groups
from censor_problems import Mixture, batch, gaussian, relative_error, single_term, two_bumps

ESTIMATORS = list(scores.ESTIMATORS)
SMALL, LARGE = 100, 800
# γ at the two sample sizes, for Stein falling as 1/n
GAMMA = {
    "ssge": (3e-3, 3e-3),
    "stein": (1e-3 / SMALL, 1e-3 / LARGE),
    "tikhonov": (1e-3, 1e-3),
    "nu_method": (3e-3, 3e-3),
}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("problem", [gaussian(), two_bumps()], ids=["gaussian", "mixture"])
@pytest.mark.parametrize("length_scale", ["median", 2.0])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.slow
def test_estimates_approach_the_exact_score(name: str, length_scale: str | float, problem: Mixture):
    def error(rows: int, gamma: float) -> float:
        found = []
        for seed in range(6 if rows == SMALL else 2):
            z, _ = problem.sample(rows, seed)
            estimate = scores.ESTIMATORS[name](z, length_scale=length_scale, regularization=gamma)
            found.append(relative_error(estimate, problem.score(z)))
        return sum(found) / len(found)

    few, many = error(SMALL, GAMMA[name][0]), error(LARGE, GAMMA[name][1])
    assert many < 0.3
    assert many < 0.8 * few


def test_stein_is_tikhonov_with_n_times_the_ridge():
    z = normal(2, 50, 3)
    for length_scale in ("median", "perplexity", 1.5):
        stein = scores.stein(z, length_scale=length_scale, regularization=1e-3)
        tikhonov = scores.tikhonov(z, length_scale=length_scale, regularization=50e-3)
        torch.testing.assert_close(stein, tikhonov, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length_scale", ["median", "perplexity", 2.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_masked_is_group_by_group(name: str, length_scale: str | float):
    z, y, s = batch(rows=60)
    same = find_groups(single_term(z, y, s), 2).group
    estimate = scores.ESTIMATORS[name]
    together = estimate(z, same=same, length_scale=length_scale)
    for p in range(len(z)):
        for subject in s[p].unique():
            rows = (s[p] == subject).nonzero().flatten()
            if subject < 0:
                assert torch.equal(together[p, rows], torch.zeros_like(together[p, rows]))
            else:
                alone = estimate(z[p, rows], length_scale=length_scale)
                torch.testing.assert_close(together[p, rows], alone, rtol=1e-6, atol=1e-8)


def test_the_residuals_of_the_nu_method_are_jacobi_polynomials():
    """1 − μ g(μ) = ₂F₁(−t, t+2; 5/2; μ), for ν = 1: Engl, Hanke and Neubauer 1996, section 6.3."""
    mu = torch.cat([torch.zeros(1), torch.logspace(-9, 0, 60)]).double()
    for gamma, t in ((0.3, 2), (0.01, 11), (0.001, 32), (0.0001, 101)):
        found = nu_solve(mu.diag()[None], torch.ones(1, 61, 1).double(), torch.full((1, 1), gamma).double())[0, :, 0]
        polynomial = eval_jacobi(t, 1.5, -0.5, 1 - 2 * mu.numpy()) / eval_jacobi(t, 1.5, -0.5, 1.0)
        torch.testing.assert_close(1 - mu * found, torch.from_numpy(polynomial), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found[:2], torch.full((2,), 2 * t * (t + 2) / 5).double(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("length_scale", ["median", "perplexity"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_nearly_degenerate_float32_samples_survive(name: str, length_scale: str):
    z = normal(3, 64, 2).float()
    z[0] = 1.0  # all rows coincide
    z[1, 32:] = z[1, :32] + 1e-6  # every row twice
    z[2] *= 1e-18
    estimate = scores.ESTIMATORS[name](z, length_scale=length_scale, regularization=1e-4)
    assert estimate.isfinite().all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_member_of_nan_leaves_the_others_alone(name: str):
    z = normal(3, 30, 4)
    whole = scores.ESTIMATORS[name](z)
    z[1] = float("nan")
    broken = scores.ESTIMATORS[name](z)
    assert torch.equal(broken[[0, 2]], whole[[0, 2]])
    assert not broken[1].isfinite().any()


def test_an_indefinite_matrix_becomes_positive():
    matrix = torch.tensor([[[0.2, 0.5], [0.5, 0.2]]], dtype=torch.float64)  # eigenvalues 0.7 and −0.3
    torch.testing.assert_close(positive_part(matrix), torch.full((1, 2, 2), 0.35, dtype=torch.float64))
