"""Score estimators against exact scores, against each other, and against dense or per-group forms."""

from __future__ import annotations

import pytest
import torch

from autotransfer.censoring import scores
from autotransfer.censoring.filters import nu_polynomial, positive_part
from autotransfer.censoring.groups import find_groups
from autotransfer.errors import UserError
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


@pytest.mark.parametrize("name", ESTIMATORS)
def test_leading_axes_and_one_gamma_for_each(name: str):
    z = normal(2, 3, 20, 4)
    gamma = torch.tensor([[0.02, 0.05, 0.1], [0.2, 0.01, 0.03]], dtype=torch.float64)
    estimate = scores.ESTIMATORS[name]
    together = estimate(z, regularization=gamma)
    assert together.shape == z.shape
    for a in range(2):
        for b in range(3):
            alone = estimate(z[a, b], regularization=float(gamma[a, b]))
            torch.testing.assert_close(together[a, b], alone, rtol=1e-9, atol=1e-9)


def test_the_closed_form_of_the_nu_method_is_its_iteration():
    mu = torch.cat([torch.zeros(1), torch.logspace(-9, 0, 60)]).double()
    for gamma, steps in ((0.3, 2), (0.01, 11), (0.001, 32), (0.0001, 101)):
        before = now = torch.zeros_like(mu)
        for t in range(1, steps + 1):  # Zhou, Shi and Zhu 2020, example C.4, with ν = 1
            momentum = (t - 1) * (2 * t - 3) * (2 * t + 1) / ((t + 1) * (2 * t + 3) * (2 * t - 1))
            rate = 4 * (2 * t + 1) * t / ((t + 1) * (2 * t + 3))
            before, now = now, now + momentum * (now - before) + rate * (1 - mu * now)
        g, slope = nu_polynomial(mu, torch.tensor(gamma, dtype=torch.float64))
        torch.testing.assert_close(g, now, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(g[0] + mu * slope, g, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "imq"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_at_the_sample_the_extension_is_the_estimate(name: str, kernel: str):
    z = normal(2, 40, 3)
    estimate = scores.ESTIMATORS[name]
    inside = estimate(z, kernel=kernel, regularization=0.02)
    outside = estimate(z, kernel=kernel, regularization=0.02, points=z)
    torch.testing.assert_close(outside, inside, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_new_points_are_estimated_too(name: str):
    problem = gaussian()
    z, _ = problem.sample(600, 0)
    points, _ = problem.sample(200, 1)
    estimate = scores.ESTIMATORS[name](z, points=points, regularization=GAMMA[name][1])
    assert relative_error(estimate, problem.score(points)) < 0.35


def dense_curl_free(z: torch.Tensor, sigma: float, gamma: float, kernel: str) -> torch.Tensor:
    """The (N·D)² matrix by autograd of σ² times the scalar kernel, and the ν-method's polynomial of it."""
    n, dim = z.shape

    def phi(r: torch.Tensor) -> torch.Tensor:
        u = r.square().sum() / sigma**2
        return sigma**2 * (torch.exp(-u / 2) if kernel == "curl_free_rbf" else (1 + u) ** -0.5)

    matrix = torch.zeros(n, dim, n, dim, dtype=z.dtype)
    zeta = torch.zeros(n, dim, dtype=z.dtype)
    for i in range(n):
        for j in range(n):
            r = z[i] - z[j]
            matrix[i, :, j] = -torch.autograd.functional.hessian(phi, r)
            zeta[i] += torch.autograd.functional.jacobian(
                lambda q: torch.autograd.functional.hessian(phi, q, create_graph=True).trace(), r
            )
    values, basis = torch.linalg.eigh(matrix.reshape(n * dim, n * dim) / n)
    g, _ = nu_polynomial(values.clamp(0, 1), torch.tensor(gamma, dtype=torch.float64))
    return -(basis @ (g * (basis.T @ (zeta / n).flatten()))).reshape(n, dim)


@pytest.mark.parametrize("kernel", ["curl_free_rbf", "curl_free_imq"])
def test_curl_free_products_equal_the_dense_matrix(kernel: str):
    z = normal(7, 3)
    found = scores.nu_method(z, kernel=kernel, length_scale=1.3, regularization=0.02)
    torch.testing.assert_close(found, dense_curl_free(z, 1.3, 0.02, kernel), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("kernel", "gamma"), [("curl_free_rbf", 0.01), ("curl_free_imq", 0.03)])
@pytest.mark.parametrize("problem", [gaussian(), two_bumps()], ids=["gaussian", "mixture"])
def test_curl_free_estimates_approach_the_exact_score(kernel: str, gamma: float, problem: Mixture):
    def error(rows: int) -> float:
        samples = [problem.sample(rows, seed)[0] for seed in range(3)]
        found = [scores.nu_method(z, kernel=kernel, regularization=gamma) for z in samples]
        return sum(relative_error(e, problem.score(z)) for e, z in zip(found, samples, strict=True)) / 3

    few, many = error(75), error(300)
    assert many < 0.45
    assert many < 0.8 * few


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


def test_estimates_have_no_gradient_and_bad_input_is_named():
    z = normal(10, 2).requires_grad_()
    assert not scores.stein(z).requires_grad
    with pytest.raises(UserError, match=r"unknown kernel 'cubic'.*'rbf', 'imq'"):
        scores.stein(z, kernel="cubic")
    with pytest.raises(UserError, match=r"unknown length_scale 'mean'"):
        scores.ssge(z, length_scale="mean")
    with pytest.raises(UserError, match=r"regularization is 0"):
        scores.tikhonov(z, regularization=0)
    with pytest.raises(UserError, match=r"points= is for one block"):
        scores.nu_method(z, length_scale="perplexity", points=z)
    with pytest.raises(UserError, match=r"z has the shape \(10,\)"):
        scores.stein(z[:, 0])
