"""The Wasserstein distance against loops over rows and subjects, scipy, and shifted Gaussians."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import wasserstein_distance

from autotransfer.censoring import make_censor
from autotransfer.censoring.critics import MLP
from autotransfer.censoring.wasserstein import steepest_slopes
from autotransfer.randomness import as_keys
from censor_problems import MODES
from contrast_by_hand import check, means, train


@pytest.mark.parametrize("mode", MODES)
def test_distance_by_loops(mode: str) -> None:
    def distance(method, term, p, *, frozen):
        w1, _, w2, _ = (parameter[p] for parameter in method.critic.parameters())
        steep = [sum(abs(w2[o, h]) * w1[h, : term.z.shape[-1]].norm() for h in range(5)) for o in range(4)]
        steep = [one.detach() if frozen else one for one in steep]
        joint, product = means(method, term, p, *(2 * [lambda f, s: f[s] / steep[s]]))
        return joint - product

    check(
        "wasserstein", mode, lambda *one: distance(*one, frozen=True), lambda *one: -distance(*one, frozen=False)
    )  # fmt: skip


def test_no_output_is_steeper_than_its_bound() -> None:
    critic = MLP(5 + 2, 9, 4, keys=as_keys([1, 2, 3]), members=3).double()
    bound = steepest_slopes(critic, 5)
    x = torch.randn(3, 400, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    for output in range(4):
        (slope,) = torch.autograd.grad(critic(x, frozen=True)[..., output].sum(), x)
        steepest = slope[..., :5].norm(dim=-1).amax(-1)
        assert (steepest <= bound[:, output]).all()
        assert (steepest > 0.15 * bound[:, output]).all()
    with torch.no_grad():  # all units point one way and are on: the bound is the slope
        critic.weight1.copy_(critic.weight1[:, :1])
        critic.weight2.abs_()
        critic.bias1.fill_(1e3)
    (slope,) = torch.autograd.grad(critic(x, frozen=True)[..., 1].sum(), x)
    torch.testing.assert_close(slope[..., :5].norm(dim=-1), steepest_slopes(critic, 5)[:, 1:2].expand(3, 400))


def test_any_critic_stays_below_the_distance_of_the_samples_and_a_trained_one_comes_near() -> None:
    """Of each person's latents to everybody's, in standard deviations, by scipy."""
    draw = torch.Generator().manual_seed(0)
    s = torch.arange(300) // 2 % 3
    z = torch.randn(300, 1, generator=draw, dtype=torch.float64)
    z = torch.stack([z - 1, 2 * z, z.abs()])[s, torch.arange(len(s))]  # one shifted, one wide, one skewed
    unit = ((z - z.mean()) / z.std(correction=0))[:, 0].numpy()
    truth = sum(wasserstein_distance(unit[s.numpy() == g], unit) for g in range(3)) / 3
    sizes = {"latent_dim": 1, "n_classes": 1, "n_subjects": 3}
    many = make_censor("wasserstein", "marginal", members=50, seed=list(range(50)), **sizes).double()
    untrained = many(z.expand(50, -1, -1), torch.zeros_like(s), s)
    assert untrained.abs().max() < truth
    censor = make_censor("wasserstein", "marginal", **sizes).double()
    found = train(censor, z, torch.zeros_like(s), s, 150)
    assert max(found) < truth * (1 + 1e-5)
    assert found[-1] > 0.85 * truth
