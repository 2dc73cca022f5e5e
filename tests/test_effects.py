"""Subject effects in latents: the posterior against the joint Gaussian, and the gain of a subject."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from autotransfer.training.effects import Effects, fit_effects, stack_effects


def people(
    seed: int = 0, *, n_people: int = 12, n_classes: int = 3, dim: int = 5, shift: float = 1.5, own: float = 0.5
):
    """Latents (n, D), classes, subjects: drawn from the model."""
    rng = np.random.default_rng(seed)
    mu = 2 * rng.standard_normal((n_classes, dim))
    delta = shift * rng.standard_normal((n_people, dim))
    epsilon = own * rng.standard_normal((n_people, n_classes, dim))
    s, y = (one.ravel() for one in np.meshgrid(np.arange(n_people), np.arange(n_classes), indexing="ij"))
    s, y = np.repeat(s, 40), np.repeat(y, 40)
    z = mu[y] + delta[s] + epsilon[s, y] + rng.standard_normal((len(y), dim))
    return torch.from_numpy(z), torch.from_numpy(y), torch.from_numpy(s)


def one(b: float, e: float, mu: Tensor) -> Effects:
    """A member with one direction, which is the code itself."""
    return Effects(torch.ones(1, 1, 1), mu.view(1, -1, 1).float(), torch.full((1, 1), b), torch.full((1, 1), e))


@pytest.mark.parametrize("counts", [(1, 0, 2), (4, 4, 4), (30, 0, 0)])
def test_posterior_is_that_of_the_joint_gaussian(counts: tuple[int, ...]) -> None:
    """By brute force: condition (δ, ε_1 … ε_C) on every window, and read off the means of the classes."""
    b, e, mu = 2.0, 0.7, torch.tensor([0.0, 1.0, -2.0])
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(3), counts)
    x = rng.normal(3, 2, len(y))
    design = np.concatenate([np.ones((len(y), 1)), np.eye(3)[y]], 1)  # of (δ, ε)
    prior = np.diag([b, e, e, e])
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + np.eye(len(y)))
    mean, cov = gain @ (x - mu.numpy()[y]), prior - gain @ design @ prior
    reads = np.concatenate([np.ones((3, 1)), np.eye(3)], 1)  # δ + ε_c
    effects = one(b, e, mu)
    evidence = effects.sum_windows(torch.from_numpy(x).float().view(1, -1, 1), torch.eye(3)[torch.from_numpy(y)])
    found = effects.posterior(evidence, design_effect=1.0)
    np.testing.assert_allclose(found.means[0, :, 0], mu.numpy() + reads @ mean, atol=1e-5)
    variance = np.diag(reads @ cov @ reads.T).mean()
    np.testing.assert_allclose(float(found.shift + found.interaction), variance, atol=1e-5)


def test_correction_is_the_difference_of_two_discriminants() -> None:
    """log N(x; M_c, V) − log N(x; μ_c, V₀), up to a number that classes share."""
    z, y, s = people()
    effects = fit_effects(z, y, s, 3)
    evidence = effects.sum_windows(effects.project(z[None, :7].float()), torch.eye(3)[y[:7]])
    after = effects.posterior(evidence)
    x = effects.project(z[None, -9:].float())
    weight, bias = effects.correction(after)

    def discriminant(own: Effects) -> Tensor:
        variance = 1 + own.shift + own.interaction
        away = x[:, :, None] - own.means[:, None]
        return -0.5 * (away.square() / variance[:, None, None]).sum(-1)

    wanted = discriminant(after) - discriminant(effects)
    found = x @ weight + bias[:, None]
    np.testing.assert_allclose(found - found.mean(-1, keepdim=True), wanted - wanted.mean(-1, keepdim=True), atol=1e-4)


def accuracy(effects: Effects, posterior: Effects, z: Tensor, y: Tensor) -> float:
    """Of the prior's discriminant and what the posterior adds."""
    x = effects.project(z[None].float())
    variance = 1 + effects.shift + effects.interaction
    plain = -0.5 * ((x[:, :, None] - effects.means[:, None]).square() / variance[:, None, None]).sum(-1)
    weight, bias = effects.correction(posterior)
    return float(((plain + x @ weight + bias[:, None])[0].argmax(-1) == y).double().mean())


def test_a_shifted_subject_gains_from_one_class_alone() -> None:
    gained = []
    for seed in range(10):
        z, y, s = people(seed, shift=2.0, own=0.3)
        seen, new = s > 0, s == 0
        effects = fit_effects(z[seen], y[seen], s[seen], 3)
        first = torch.flatten((new & (y == 0)).nonzero())[:30]  # nothing but class 0
        x = effects.project(z[None, first].float())
        posterior = effects.posterior(effects.sum_windows(x, torch.eye(3)[y[first]]))
        others = new & (y != 0)
        before = accuracy(effects, effects.posterior(effects.zero_sums), z[others], y[others])
        gained.append(accuracy(effects, posterior, z[others], y[others]) - before)
    assert np.mean(gained) > 0.05
    assert min(gained) > -0.03


def test_members_with_fewer_subjects_are_the_same_stacked_and_alone() -> None:
    """Groups of subjects that are held out need not be equal: fewer cells than numbers in a code, fewer directions."""
    z, y, s = people(dim=20, n_people=6)
    few = s < 4
    alone = [fit_effects(z, y, s, 3), fit_effects(z[few], y[few], s[few], 3)]
    assert [own.shift.shape[-1] for own in alone] == [18, 12]
    together = stack_effects(alone)
    latents, labels = z[:9].float()[None], torch.eye(3).repeat(3, 1)
    both = latents.expand(2, -1, -1)
    weight, bias = together.correction(together.posterior(together.sum_windows(together.project(both), labels)))
    found = together.project(both) @ weight + bias[:, None]
    for member, own in enumerate(alone):
        weight, bias = own.correction(own.posterior(own.sum_windows(own.project(latents), labels)))
        torch.testing.assert_close(found[member], (own.project(latents) @ weight + bias[:, None])[0])
