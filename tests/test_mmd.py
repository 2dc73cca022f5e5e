"""MMD and pairwise MMD against double loops, unbiased, and with the pairs they should have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from autotransfer.censoring import Censor, make_censor
from autotransfer.censoring.mmd import PairwiseMMD
from autotransfer.censoring.terms import Term, make_terms
from autotransfer.randomness import fold_in, uniform
from censor_problems import MODES, batch, valid_groups

SIZES = {"n_classes": 3, "n_subjects": 4}


def kernel_of(z: torch.Tensor, rows: list[int], length_scale: str | float):
    """k(i, j) with one σ, the median over the pairs of `rows`."""
    distances = [float((z[i] - z[j]).norm()) for a, i in enumerate(rows) for j in rows[a + 1 :]]
    sigma = float(np.median(distances)) if length_scale == "median" else float(length_scale)
    return lambda i, j: math.exp(-float((z[i] - z[j]).square().sum()) / (2 * sigma**2))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def looped_mmd(term: Term, p: int, length_scale: str | float) -> float:
    z, found = term.z[p], []
    for inside in valid_groups(term.context[p].tolist(), term.nuisance[p].tolist()).values():
        c = [i for rows in inside.values() for i in rows]
        k = kernel_of(z, c, length_scale)
        within_c = mean([k(i, j) for i in c for j in c if i != j])
        for g in inside.values():
            within_g = mean([k(i, j) for i in g for j in g if i != j])
            found.append(within_c + within_g - 2 * mean([k(i, j) for i in c for j in g if i != j]))
    return mean(found) if found else 0.0


def looped_pairs(term: Term, p: int, length_scale: str | float, select) -> float:
    """select(subjects of the context) -> the ordered pairs that are used."""
    z, found = term.z[p], []
    for inside in valid_groups(term.context[p].tolist(), term.nuisance[p].tolist()).values():
        k = kernel_of(z, [i for rows in inside.values() for i in rows], length_scale)
        for a, b in select(sorted(inside)):
            g, h = inside[a], inside[b]
            within_g = mean([k(i, j) for i in g for j in g if i != j])
            within_h = mean([k(i, j) for i in h for j in h if i != j])
            found.append(within_g + within_h - 2 * mean([k(i, j) for i in g for j in h]))
    return mean(found) if found else 0.0


@pytest.mark.parametrize("length_scale", ["median", 1.4])
@pytest.mark.parametrize("mode", MODES)
def test_mmd_equals_a_double_loop(mode: str, length_scale: str | float):
    z, y, s = batch(members=2, rows=30)
    censor = make_censor("mmd", mode, latent_dim=6, members=2, length_scale=length_scale, **SIZES)
    terms = make_terms(mode, z, y, s)
    expected = [sum(t.sign * looped_mmd(t, p, length_scale) for t in terms) for p in range(2)]
    torch.testing.assert_close(censor(z, y, s), torch.tensor(expected, dtype=z.dtype), rtol=1e-9, atol=1e-12)


def pair_rule(censor: Censor, p: int):
    """The pairs of a step, from the member's key: written out subject by subject."""
    method = censor.methods[0]
    assert isinstance(method, PairwiseMMD)
    key = fold_in(censor.keys, censor.step)[p]
    place = {subject: fold_in(key, subject) for subject in range(4)}

    def select(subjects: list[int]) -> list[tuple[int, int]]:
        pairs = [(a, b) for a in subjects for b in subjects if a != b]
        if method.options.fraction is not None:
            return [(a, b) for a, b in pairs if float(uniform(fold_in(place[a], b), 1)) < method.options.fraction]
        if method.options.size is not None:
            first = sorted(subjects, key=lambda subject: int(place[subject]))[: method.options.size]
            return [(a, b) for a, b in pairs if a in first and b in first]
        return pairs

    return select


@pytest.mark.parametrize(
    "options",
    [{}, {"pairs": "bernoulli", "fraction": 0.4}, {"pairs": "clique", "size": 3}, {"pairs": "clique", "size": 2}],
    ids=["all", "bernoulli", "clique3", "clique2"],
)
@pytest.mark.parametrize("mode", MODES)
def test_pairwise_mmd_equals_a_double_loop(mode: str, options: dict):
    z, y, s = batch(members=2, rows=30)
    censor = make_censor("pairwise_mmd", mode, latent_dim=6, members=2, seed=[4, 5], **SIZES, **options)
    terms = make_terms(mode, z, y, s)
    for _ in range(2 if options else 1):  # all pairs are the same at each step
        expected = [sum(t.sign * looped_pairs(t, p, "median", pair_rule(censor, p)) for t in terms) for p in range(2)]
        torch.testing.assert_close(censor(z, y, s), torch.tensor(expected, dtype=z.dtype), rtol=1e-9, atol=1e-12)
        censor.after_step()


@pytest.mark.parametrize("method", ["mmd", "pairwise_mmd"])
def test_at_independence_the_mean_over_draws_is_zero(method: str):
    draws = 400
    z = torch.randn(draws, 40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    s = torch.tensor([0] * 4 + [1] * 6 + [2] * 10 + [3] * 20)  # uneven on purpose
    censor = make_censor(method, "marginal", latent_dim=3, members=draws, **SIZES)
    found = censor(z, torch.zeros_like(s), s)
    standard_error = float(found.std()) / math.sqrt(draws)
    assert abs(float(found.mean())) < 3 * standard_error
    z[:, 20:] += 0.5  # able to fail: a shift of half a deviation is far outside
    assert float(censor(z, torch.zeros_like(s), s).mean()) > 10 * standard_error
