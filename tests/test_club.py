"""CLUB against loops over rows and subjects, and against the information of two Gaussians."""

from __future__ import annotations

import pytest
import torch

from autotransfer.censoring import make_censor
from censor_problems import MODES
from contrast_by_hand import Exact, check, means, train, two_people


@pytest.mark.parametrize("mode", MODES)
def test_bound_and_likelihood_by_loops(mode: str) -> None:
    """With log q in full: the code leaves the normalizer out."""

    def log_q(values, s):
        return values[s] - values.logsumexp(0)

    def bound(method, term, p):
        joint, product = means(method, term, p, log_q, log_q)
        return joint - product

    check("club", mode, bound, lambda method, term, p: -means(method, term, p, log_q, log_q)[0])


def test_with_the_true_conditional_it_exceeds_the_information_by_the_reverse_divergence() -> None:
    shift = 1.0
    z, y, s = two_people(shift)
    censor = make_censor("club", "marginal", latent_dim=1, n_classes=1, n_subjects=2, critic_hidden=2).double()
    # log q(s | z) = ±shift · z + constant, z in its own units: as relu(z) and relu(−z)
    slope = shift * float(z.std(correction=0))
    with torch.no_grad():
        for parameter, value in zip(
            censor.parameters(), ([[1], [-1]], [0, 0], [[-slope, slope], [slope, -slope]], [0, 0]), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    exact, found = Exact(shift), float(censor(z, y, s))
    assert exact.information + exact.reverse == pytest.approx(shift**2, abs=1e-6)  # KL both ways
    assert found == pytest.approx(shift**2, abs=0.03)
    assert found > exact.information > 0.3
    shuffled = s[torch.randperm(len(s), generator=torch.Generator().manual_seed(0))]
    assert abs(float(censor(z, y, shuffled))) < 0.1


def test_a_critic_that_has_learned_bounds_the_information_from_above() -> None:
    z, y, s = two_people(1.0)
    censor = make_censor("club", "marginal", latent_dim=1, n_classes=1, n_subjects=2).double()
    bounds = train(censor, z, y, s, 60, lr=0.01)
    assert bounds[0] < Exact(1.0).information < bounds[-1] < 1.3
