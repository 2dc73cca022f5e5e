"""MIGE: the estimated gradient against that of I(z; s) for Gaussian groups, its weights and its projection."""

from __future__ import annotations

import pytest
import torch

from autotransfer.censoring import make_censor, scores
from autotransfer.censoring.groups import find_groups
from autotransfer.censoring.terms import make_terms
from censor_problems import MODES, Mixture, batch

ESTIMATORS = list(scores.ESTIMATORS)


def gradient(z: torch.Tensor, y: torch.Tensor, s: torch.Tensor, mode: str = "marginal", **options) -> torch.Tensor:
    members = None if z.ndim == 2 else len(z)
    censor = make_censor("mige", mode, latent_dim=z.shape[-1], n_classes=3, n_subjects=8, members=members, **options)
    z = z.clone().requires_grad_()
    censor(z, y, s).sum().backward()
    return z.grad


def by_group(values: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch.stack([values[s == subject].sum(0) for subject in range(int(s.max()) + 1)])


@pytest.mark.parametrize("projection", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["tikhonov", "ssge", "nu_method"])
def test_the_gradient_of_the_group_means_is_that_of_the_mutual_information(name: str, projection: bool):
    """H(z|s) does not see a group's mean, so ∂I/∂mean_s = −p(s) E[∇ log p(z) | s], exact for a mixture."""
    draw = torch.Generator().manual_seed(3)
    problem = Mixture(torch.randn(4, 4, generator=draw, dtype=torch.float64) * 0.8, torch.eye(4, dtype=torch.float64))
    z, s = problem.sample(1000, 0)
    g = gradient(z, torch.zeros_like(s), s, estimator=name, regularization=1e-3, projection=projection)
    found, exact = by_group(g, s), by_group(-problem.score(z) / len(z), s)
    cosine = float((found * exact).sum() / (found.norm() * exact.norm()))
    scale = float((found * exact).sum() / exact.square().sum())
    assert cosine >= 0.95
    assert 0.8 <= scale <= 1.25


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_projection_leaves_what_the_mutual_information_can_have(name: str, mode: str):
    z, y, s = batch(rows=60)
    g = gradient(z, y, s, mode, estimator=name)
    half = g.shape[-1] // 2
    parts = [g] if mode != "complementary" else [g[..., :half], g[..., half:]]
    for term, part in zip(make_terms(mode, z, y, s), parts, strict=True):
        groups = find_groups(term, 2)
        assert part.abs().max() > 1e-4
        for c in term.context.unique()[1:]:
            inside = ((term.context == c) & groups.valid)[..., None]
            torch.testing.assert_close((part * inside).sum(1), torch.zeros_like(part[:, 0]), rtol=0, atol=1e-12)
            along = (part * inside * term.z).sum(1)
            torch.testing.assert_close(along, torch.zeros_like(along), rtol=0, atol=1e-11)


@pytest.mark.parametrize("mode", MODES)
def test_without_projection_it_is_scores_with_the_weights_of_the_groups(mode: str):
    """Σ_c p(c) [H(z|c) − Σ_g p(g|c) H(z|g)] group by group, each entropy's gradient −mean score."""
    z, y, s = batch(rows=60)
    g = gradient(z, y, s, mode, estimator="tikhonov", regularization=0.02, projection=False)
    expected = []
    for term in make_terms(mode, z, y, s):
        groups = find_groups(term, 2)
        part = torch.zeros_like(term.z)
        for p in range(len(z)):
            total = int(groups.valid[p].sum())
            for c in term.context[p].unique().tolist():
                inside = (term.context[p] == c) & groups.valid[p]
                if c < 0 or not inside.any():
                    continue
                n_c = int(inside.sum())
                share = n_c / total
                part[p, inside] += share * -scores.tikhonov(term.z[p, inside], regularization=0.02) / n_c
                for subject in term.nuisance[p, inside].unique():
                    group = inside & (term.nuisance[p] == subject)
                    n_g = int(group.sum())
                    weight = share * n_g / n_c
                    part[p, group] -= weight * -scores.tikhonov(term.z[p, group], regularization=0.02) / n_g
        expected.append(term.sign * part)
    torch.testing.assert_close(g, torch.cat(expected, -1), rtol=1e-8, atol=1e-10)
