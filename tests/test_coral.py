"""CORAL against moments worked out row by row, unbiased, and blind to the units of the code."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from autotransfer.censoring import make_censor
from autotransfer.censoring.terms import Term, make_terms
from censor_problems import MODES, batch, counting_groups, every_draw

SIZES = {"n_classes": 3, "n_subjects": 4}


def mean(values: list) -> float:
    return sum(values) / len(values)


def looped(term: Term, p: int, means: bool) -> float:
    """Moments as vectors and matrices; products of two estimates leave out what two rows i = j would add."""
    z, found = term.z[p].numpy(), []
    dim = z.shape[1]
    for inside in counting_groups(term.context[p].tolist(), term.nuisance[p].tolist()).values():
        c = [i for rows in inside.values() for i in rows]
        own = (z - z[c].mean(0)) / np.sqrt(z[c].var(0) + 1e-6)

        def product(i: int, j: int, own: np.ndarray = own) -> float:
            second = float((np.outer(own[i], own[i]) * np.outer(own[j], own[j])).sum()) / (4 * dim**2)
            return second + means * float(own[i] @ own[j]) / dim

        of_context = mean([product(i, j) for i in c for j in c if i != j])
        for g in inside.values():
            of_group = mean([product(i, j) for i in g for j in g if i != j])
            found.append(of_context + of_group - 2 * mean([product(i, j) for i in c for j in g if i != j]))
    return mean(found) if found else 0.0


@pytest.mark.parametrize("means", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_it_equals_a_double_loop(mode: str, means: bool):
    z, y, s = batch()
    censor = make_censor("coral", mode, latent_dim=6, members=3, means=means, **SIZES)
    expected = [sum(t.sign * looped(t, p, means) for t in make_terms(mode, z, y, s)) for p in range(3)]
    torch.testing.assert_close(censor(z, y, s), torch.tensor(expected, dtype=z.dtype), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("means", [True, False])
def test_of_many_rows_it_is_the_printed_distance(means: bool):
    """‖C_g − C_c‖²/4D² by numpy's covariances, in groups whose means agree, and the distance of means beside it."""
    draw, rows, dim = torch.Generator().manual_seed(0), 4000, 3
    s = torch.arange(3 * rows) % 3
    z = torch.randn(3 * rows, dim, generator=draw, dtype=torch.float64)
    z[s == 1] @= torch.tensor([[1.5, 0.8, 0], [0, 1, 0], [0, -0.5, 0.4]], dtype=torch.float64)
    for subject in range(3):
        z[s == subject] -= z[s == subject].mean(0)
    z = z / z.std(0, correction=0)
    shift = torch.tensor([[0.05, 0.0, 0.0], [-0.05, 0.04, 0.0], [0.0, -0.04, 0.0]], dtype=torch.float64)
    expected = [float(np.square(np.cov(z[s == g].T) - np.cov(z.T)).sum()) / (4 * dim**2) for g in range(3)]
    if means:
        z = z + shift[s]
        expected = [value + float(shift[g].square().sum()) / dim for g, value in enumerate(expected)]
    censor = make_censor("coral", "marginal", latent_dim=dim, n_classes=2, n_subjects=3, members=150, means=means)
    taken = torch.stack([torch.randperm(len(z), generator=draw)[:300] for _ in range(150)])
    found = censor(z[taken], torch.zeros_like(taken), s[taken])
    standard_error = float(found.std()) / math.sqrt(150)
    assert abs(float(found.mean()) - mean(expected)) < 3 * standard_error < 0.2 * mean(expected)


@pytest.mark.parametrize("means", [True, False])
def test_over_all_draws_of_a_group_its_mean_is_zero(means: bool):
    """Whatever the code is: subjects that are shuffled push it nowhere on average."""
    z, s = every_draw(rows=7, group=3)
    censor = make_censor("coral", "marginal", latent_dim=z.shape[-1], members=len(z), means=means, **SIZES)
    leaf = z[0].clone().requires_grad_()
    found = censor(leaf.expand(z.shape), torch.zeros_like(s), s)
    found.mean().backward()
    assert abs(float(found.detach().mean())) < 1e-14 < 1e-3 < float(found.detach().std())
    assert leaf.grad is not None
    assert leaf.grad.abs().max() < 1e-13
