"""The Cauchy–Schwarz divergence against loops, an analytic answer, and every way to draw a group."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from autotransfer.censoring import make_censor
from autotransfer.censoring.terms import Term, make_terms
from censor_problems import MODES, batch, counting_groups

SIZES = {"n_classes": 3, "n_subjects": 4}


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def looped(term: Term, p: int, length_scale: str | float) -> float:
    """With the variances of the means over all groups of the same size, drawn one by one."""
    z, found = term.z[p], []
    for inside in counting_groups(term.context[p].tolist(), term.nuisance[p].tolist()).values():
        c = [i for rows in inside.values() for i in rows]
        distance = {(i, j): float((z[i] - z[j]).norm()) for i in c for j in c}
        sigma = length_scale
        if length_scale == "median":
            sigma = float(np.median([distance[i, j] for i, j in itertools.combinations(c, 2)]))
        k = {pair: math.exp(-(d**2) / (2 * float(sigma) ** 2)) for pair, d in distance.items()}

        def within(g: list[int], k: dict = k) -> float:
            return mean([k[i, j] for i in g for j in g if i != j])

        def cross(g: list[int], k: dict = k, c: list[int] = c) -> float:
            return mean([k[i, j] for i in c for j in g if i != j])

        for g in inside.values():
            drawn = [list(one) for one in itertools.combinations(c, len(g))]
            noise_within = float(np.var([within(one) for one in drawn])) / within(c) ** 2
            noise_cross = float(np.var([cross(one) for one in drawn])) / within(c) ** 2
            divergence = math.log(within(g) * within(c) / cross(g) ** 2)
            found.append(divergence + noise_within / 2 - noise_cross)
    return mean(found) if found else 0.0


@pytest.mark.parametrize("length_scale", ["median", 1.4])
@pytest.mark.parametrize("mode", MODES)
def test_it_equals_loops_over_rows_and_groups(mode: str, length_scale: str | float):
    z, y, s = batch(rows=15, members=2)
    censor = make_censor("cauchy_schwarz", mode, latent_dim=6, members=2, length_scale=length_scale, **SIZES)
    terms = make_terms(mode, z, y, s)
    expected = [sum(t.sign * looped(t, p, length_scale) for t in terms) for p in range(2)]
    torch.testing.assert_close(censor(z, y, s), torch.tensor(expected, dtype=z.dtype), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_of_many_rows_it_is_that_of_gaussians():
    """Two people at ±a with variance 1, smoothed by σ: ∫pq of Gaussians is a Gaussian of their distance."""
    a, sigma, draws, rows = 0.7, 0.6, 40, 400
    s = torch.arange(rows) % 2
    z = torch.randn(draws, rows, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = z + a * (2 * s - 1)[:, None]
    censor = make_censor("cauchy_schwarz", "marginal", latent_dim=1, members=draws, length_scale=sigma, **SIZES)
    found = censor(z, torch.zeros_like(s), s)
    same, other = 1.0, math.exp(-((2 * a) ** 2) / (2 * (2 + sigma**2)))  # up to a factor that cancels
    within_context = cross = (same + other) / 2
    expected = math.log(same) + math.log(within_context) - 2 * math.log(cross)
    assert abs(float(found.mean()) - expected) < 3 * float(found.std()) / math.sqrt(draws)
    assert expected > 10 * float(found.std()) / math.sqrt(draws)


def test_at_independence_the_mean_over_draws_is_zero():
    draws = 400
    z = torch.randn(draws, 40, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    s = torch.tensor([0] * 4 + [1] * 6 + [2] * 10 + [3] * 20)  # uneven on purpose
    censor = make_censor("cauchy_schwarz", "marginal", latent_dim=8, members=draws, **SIZES)
    found = censor(z, torch.zeros_like(s), s)
    standard_error = float(found.std()) / math.sqrt(draws)
    assert abs(float(found.mean())) < 3 * standard_error
    z[:, 20:] += 0.5  # able to fail: a shift of half a deviation is far outside
    assert float(censor(z, torch.zeros_like(s), s).mean()) > 10 * standard_error
