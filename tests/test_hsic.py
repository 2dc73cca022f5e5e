"""HSIC against loops over pairs, triples and quadruples, unbiased, on one scale for any number of subjects."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from autotransfer.censoring import make_censor
from autotransfer.censoring.terms import Term, make_terms
from censor_problems import MODES, batch, counting_groups, every_draw

SIZES = {"n_classes": 3, "n_subjects": 4}


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def looped_hsic(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    """E k l + E k E l − 2 E k(1, 2) l(1, 3), each a mean over rows that all differ: kernels (m, m) of any kind."""
    rows = range(len(k))
    pairs = mean([k[i, j] * l[i, j] for i, j in itertools.permutations(rows, 2)])
    triples = mean([k[i, j] * l[i, q] for i, j, q in itertools.permutations(rows, 3)])
    quadruples = mean([k[i, j] * l[q, r] for i, j, q, r in itertools.permutations(rows, 4)])
    return pairs + quadruples - 2 * triples


def looped(term: Term, p: int, length_scale: str | float) -> float:
    z, found = term.z[p], []
    for inside in counting_groups(term.context[p].tolist(), term.nuisance[p].tolist()).values():
        c = [i for rows in inside.values() for i in rows]
        distance = np.array([[float((z[i] - z[j]).norm()) for j in c] for i in c])
        sigma = np.median(distance[np.triu_indices(len(c), 1)]) if length_scale == "median" else float(length_scale)
        label = [int(term.nuisance[p, i]) for i in c]
        k = np.exp(-np.square(distance) / (2 * sigma**2))
        same = np.array([[float(a == b) for a in label] for b in label])
        found.append(looped_hsic(k, same) / looped_hsic(same, same))
    return mean(found) if found else 0.0


@pytest.mark.parametrize("length_scale", ["median", 1.4])
@pytest.mark.parametrize("mode", MODES)
def test_it_equals_loops_over_rows(mode: str, length_scale: str | float):
    z, y, s = batch(rows=19, members=2)
    censor = make_censor("hsic", mode, latent_dim=6, members=2, length_scale=length_scale, **SIZES)
    terms = make_terms(mode, z, y, s)
    expected = [sum(t.sign * looped(t, p, length_scale) for t in terms) for p in range(2)]
    torch.testing.assert_close(censor(z, y, s), torch.tensor(expected, dtype=z.dtype), rtol=1e-9, atol=1e-12)


def test_over_all_draws_of_a_group_its_mean_is_zero():
    """Whatever the code is: subjects that are shuffled push it nowhere on average."""
    z, s = every_draw(rows=7, group=3)
    censor = make_censor("hsic", "marginal", latent_dim=z.shape[-1], members=len(z), **SIZES)
    leaf = z[0].clone().requires_grad_()
    found = censor(leaf.expand(z.shape), torch.zeros_like(s), s)
    found.mean().backward()
    assert abs(float(found.detach().mean())) < 1e-14 < 1e-3 < float(found.detach().std())
    assert leaf.grad is not None
    assert leaf.grad.abs().max() < 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 4])
def test_the_number_of_subjects_and_their_rows_do_not_change_its_size(rows: int):
    """Twice as many people who differ as much, or twice as many rows of each, are worth the same strength."""
    draw, value = torch.Generator().manual_seed(0), []
    for subjects in (8, 16, 32):
        s = torch.arange(rows * subjects) % subjects
        z = torch.randn(300, len(s), 4, generator=draw, dtype=torch.float64)
        z = z + torch.randn(300, subjects, 4, generator=draw, dtype=torch.float64)[:, s]
        censor = make_censor("hsic", "marginal", latent_dim=4, n_classes=2, n_subjects=subjects, members=300)
        value.append(float(censor(z, torch.zeros_like(s), s).mean()))
    assert max(value) < 1.1 * min(value)
