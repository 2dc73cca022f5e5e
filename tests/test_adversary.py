"""The adversary against a network written by hand for one member."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from autotransfer.censoring import make_censor
from autotransfer.censoring.adversary import Adversary
from autotransfer.censoring.terms import Term, make_terms
from censor_problems import MODES, batch, valid_groups


def by_hand(critic: nn.Module, term: Term, p: int, z: Tensor, classes: int) -> Tensor:
    """Mean over contexts of the mean cross-entropy of their rows in valid groups, row by row."""
    w1, b1, w2, b2 = (parameter[p] for parameter in critic.parameters())
    contexts = valid_groups(term.context[p].tolist(), term.nuisance[p].tolist())
    total = torch.zeros((), dtype=z.dtype)
    for c, inside in contexts.items():
        losses = []
        for subject, rows in inside.items():
            for i in rows:
                x = z[i] if classes == 1 else torch.cat([z[i], torch.eye(classes, dtype=z.dtype)[c]])
                logits = w2 @ (w1 @ x + b1).relu() + b2
                losses.append(logits.logsumexp(0) - logits[subject])
        total = total + torch.stack(losses).mean() / len(contexts)
    return total


@pytest.mark.parametrize("mode", MODES)
def test_losses_and_gradients_equal_those_of_a_hand_written_network(mode: str):
    z, y, s = batch(rows=24)
    censor = make_censor(
        "adversary", mode, latent_dim=6, n_classes=3, n_subjects=4, members=3, seed=[1, 2, 3], critic_hidden=5
    ).double()
    leaf = z.clone().requires_grad_()
    penalty = censor(leaf, y, s)
    penalty.sum().backward()
    loss = censor.critic_loss(z, y, s)
    loss.sum().backward()
    for p in range(3):
        mine = z.clone().requires_grad_()
        parts, terms = [], make_terms(mode, mine, y, s)
        for term, method in zip(terms, censor.methods, strict=True):
            assert isinstance(method, Adversary)
            parts.append(by_hand(method.critic, term, p, term.z[p], 3 if mode == "conditional" else 1))
        expected = sum(-term.sign * part for term, part in zip(terms, parts, strict=True))
        torch.testing.assert_close(penalty[p], expected)
        torch.testing.assert_close(loss[p], sum(parts[1:], parts[0]))
        (grad,) = torch.autograd.grad(expected, mine, retain_graph=True)
        torch.testing.assert_close(leaf.grad[p], grad[p])
        for method, part in zip(censor.methods, parts, strict=True):
            for parameter, own in zip(
                method.parameters(), torch.autograd.grad(part, list(method.parameters())), strict=True
            ):
                torch.testing.assert_close(parameter.grad[p], own[p])
