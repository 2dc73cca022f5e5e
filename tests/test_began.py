"""BEGAN: both variants against transcriptions, and its control k."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from autotransfer.censoring import make_censor
from autotransfer.censoring.began import BEGAN
from autotransfer.censoring.terms import Term, make_terms
from autotransfer.randomness import fold_in
from censor_problems import MODES, batch, valid_groups

SIZES = {"latent_dim": 6, "n_classes": 3, "n_subjects": 4}


def restored(critic: nn.Module, p: int, x: Tensor) -> Tensor:
    w1, b1, w2, b2 = (parameter.detach()[p] for parameter in critic.parameters())
    return (x @ w1.T + b1).relu() @ w2.T + b2


def printed_losses(critic: nn.Module, term: Term, p: int) -> tuple[Tensor, Tensor]:
    """L_p(z) and L_p(z|s) as in the paper's algorithms, averaged over classes and groups instead of summed."""

    def autoencoder_loss(rows: list[int]) -> Tensor:
        z = term.z[p, rows]
        return (z - restored(critic, p, z)).abs().mean()

    contexts = valid_groups(term.context[p].tolist(), term.nuisance[p].tolist())
    real = [autoencoder_loss([i for rows in inside.values() for i in rows]) for inside in contexts.values()]
    fake = [autoencoder_loss(rows) for inside in contexts.values() for rows in inside.values()]
    return torch.stack(real).mean(), torch.stack(fake).mean()


@pytest.mark.parametrize("mode", MODES)
def test_the_paper_variant_is_the_printed_algorithm_step_by_step(mode: str):
    beta, gamma = [0.3, 0.1, 0.5], [0.7, 1.2, 0.9]
    censor = make_censor(
        "began", mode, members=3, seed=[1, 2, 3], variant="paper", control_rate=beta, diversity=gamma, **SIZES
    ).double()
    k = [[0.0] * 3 for _ in censor.methods]
    for step in range(6):
        z, y, s = batch(seed=step)
        penalty, loss = censor(z, y, s), censor.critic_loss(z, y, s)
        censor.after_step()
        encoder, discriminator = torch.zeros(3, dtype=z.dtype), torch.zeros(3, dtype=z.dtype)
        for index, (term, method) in enumerate(zip(make_terms(mode, z, y, s), censor.methods, strict=True)):
            assert isinstance(method, BEGAN)
            for p in range(3):
                real, fake = printed_losses(method.critic, term, p)
                discriminator[p] += real - k[index][p] * fake
                encoder[p] += fake if term.sign > 0 else real - k[index][p] * fake
                k[index][p] = min(max(k[index][p] + beta[p] * (gamma[p] * float(real) - float(fake)), 0.0), 1.0)
        torch.testing.assert_close(penalty, encoder)
        torch.testing.assert_close(loss, discriminator)
        for index, method in enumerate(censor.methods):
            assert method.k.tolist() == pytest.approx(k[index], abs=1e-12)
    assert any(0 < value < 1 for own in k for value in own), "k should have moved somewhere between its bounds"


@pytest.mark.parametrize("mode", MODES)
def test_the_labeled_variant_written_out(mode: str):
    z, y, s = batch()
    censor = make_censor("began", mode, members=3, seed=[1, 2, 3], **SIZES).double()
    key = fold_in(censor.keys, censor.step)
    penalty, loss = censor(z, y, s), censor.critic_loss(z, y, s)
    encoder, critic = torch.zeros(3, dtype=z.dtype), torch.zeros(3, dtype=z.dtype)
    for term, method in zip(make_terms(mode, z, y, s), censor.methods, strict=True):
        for p in range(3):
            real, fake = [], []
            contexts = valid_groups(term.context[p].tolist(), term.nuisance[p].tolist())
            groups = [term.z[p, rows] for inside in contexts.values() for rows in inside.values()]
            mean = torch.stack([group.mean(0) for group in groups]).mean(0)  # every group weighs the same
            variance = torch.stack([(group - mean).square().mean(0) for group in groups]).mean(0)
            for c, inside in contexts.items():
                circle = sorted(inside, key=lambda subject, p=p: int(fold_in(key[p], subject)))
                for subject, rows in inside.items():
                    other = circle[(circle.index(subject) + 1) % len(circle)]
                    own = (term.z[p, rows] - mean) / (variance + 1e-6).sqrt()
                    for found, label in ((real, subject), (fake, other)):
                        code = torch.eye(4, dtype=z.dtype)[label].expand(len(rows), 4)
                        if mode == "conditional":
                            code = torch.cat([torch.eye(3, dtype=z.dtype)[c].expand(len(rows), 3), code], -1)
                        error = own - restored(method.critic, p, torch.cat([own, code], -1))
                        found.append(error.abs().mean())
            own_error, other_error = torch.stack(real).mean(), torch.stack(fake).mean()
            encoder[p] += term.sign * (other_error - own_error)
            critic[p] += own_error - method.k[p] * other_error
    torch.testing.assert_close(penalty, encoder)
    torch.testing.assert_close(loss, critic)


def test_k_moves_once_per_main_step_of_active_members():
    z, y, s = batch()
    censor = make_censor("began", "complementary", members=3, control_rate=0.5, diversity=0.5, **SIZES).double()
    start = [method.k.clone() for method in censor.methods]
    for _ in range(3):  # critic steps do not move it, evaluating twice does not move it twice
        censor.critic_loss(z, y, s)
        censor(z, y, s)
    balance = [method.balance.clone() for method in censor.methods]
    censor.after_step(torch.tensor([True, False, True]))
    for method, before, measured in zip(censor.methods, start, balance, strict=True):
        moved = (before + 0.5 * measured).clamp(0, 1)
        assert method.k.tolist() == pytest.approx([float(moved[0]), float(before[1]), float(moved[2])])
        assert method.k[0] != before[0]
    assert censor.step.tolist() == [1, 0, 1]
    after = [method.k.clone() for method in censor.methods]
    censor.after_step()  # nothing measured since: k stays
    assert all(torch.equal(method.k, k) for method, k in zip(censor.methods, after, strict=True))
