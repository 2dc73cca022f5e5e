"""Density ratios against loops over rows and subjects, and against those of two Gaussians."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import softplus

from autotransfer.censoring import make_censor
from autotransfer.censoring.contrast import Contrast
from autotransfer.censoring.density_ratio import DensityRatio, logistic_loss
from censor_problems import MODES
from contrast_by_hand import Exact, check, means, train, two_people


@pytest.mark.parametrize("mode", MODES)
def test_loss_and_divergence_by_loops(mode: str) -> None:
    def loss(method, term, p):
        joint, product = means(method, term, p, lambda t, s: softplus(-t[s]), lambda t, s: softplus(t[s]))
        return (joint + product) / 2

    check("density_ratio", mode, lambda *one: math.log(2) - loss(*one), loss)


def test_with_the_true_ratio_it_is_the_jensen_shannon_divergence() -> None:
    exact = Exact(1.5)
    z, _, s = two_people(1.5)
    near = ((z[:, 0] - exact.z[0]) / (exact.z[1] - exact.z[0])).round().long()
    own = torch.eye(2, dtype=torch.float64)[s]
    contrast = Contrast(exact.ratio.log().T[near], own, torch.full_like(own, 0.5), torch.full_like(z[:, 0], 1 / len(z)))
    found = math.log(2) - float(logistic_loss(Contrast(*(one[None] for one in contrast))))
    assert found == pytest.approx(exact.jensen_shannon, abs=0.01)
    assert 0.1 < exact.jensen_shannon < exact.information


def test_a_critic_that_has_learned_is_the_log_ratio() -> None:
    exact = Exact(1.0)
    z, y, s = two_people(1.0)
    censor = make_censor("density_ratio", "marginal", latent_dim=1, n_classes=1, n_subjects=2).double()
    divergences = train(censor, z, y, s, 120)
    assert divergences[0] < divergences[-1] == pytest.approx(exact.jensen_shannon, abs=0.02)
    method = censor.methods[0]
    assert isinstance(method, DensityRatio)
    where = exact.z.abs() < 2
    values = method.critic(exact.z[where][None, :, None], frozen=True)[0].T
    assert float((values - exact.ratio[:, where].log()).abs().mean()) < 0.15
    shuffled = s[torch.randperm(len(s), generator=torch.Generator().manual_seed(0))]
    assert float(censor(z, y, shuffled)) < 0, "this critic tells wrong pairs apart worse than a coin"
