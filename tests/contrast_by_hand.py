"""Methods with a value for every subject, by hand: one member, row by row, every pair of a row and a subject."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from autotransfer.censoring import make_censor
from autotransfer.censoring.contrast import ContrastMethod
from autotransfer.censoring.terms import Term, make_terms
from censor_problems import batch, counting_groups

# Of all values of one row (subjects,), and a subject's number: what a row gives on the joint, on the product
Row = Callable[[Tensor, int], Tensor]
Means = tuple[Tensor, Tensor]


def means(method: ContrastMethod, term: Term, p: int, joint: Row, product: Row) -> Means:
    """Mean over contexts of the mean over rows with their own subject, and over all pairs of a row and a subject."""
    w1, b1, w2, b2 = (parameter[p] for parameter in method.critic.parameters())
    z = term.z[p]
    contexts = counting_groups(term.context[p].tolist(), term.nuisance[p].tolist())
    subjects = [{i: s for s, rows in inside.items() for i in rows} for inside in contexts.values()]
    if method.unit_variance:
        center = torch.stack([z[list(rows)].mean(0) for rows in subjects]).mean(0)
        variance = torch.stack([(z[list(rows)] - center).square().mean(0) for rows in subjects]).mean(0)
        z = (z - center) / (variance + 1e-6).sqrt()
    found: list[tuple[Tensor, Tensor]] = []
    for c, subject in zip(contexts, subjects, strict=True):
        own, crossed = [], []
        for i in subject:
            x = z[i] if method.contexts == 1 else torch.cat([z[i], torch.eye(method.contexts, dtype=z.dtype)[c]])
            values = w2 @ (w1 @ x + b1).relu() + b2
            own.append(joint(values, subject[i]))
            crossed += [product(values, subject[j]) for j in subject]
        found.append((torch.stack(own).mean(), torch.stack(crossed).mean()))
    return torch.stack([one[0] for one in found]).mean(), torch.stack([one[1] for one in found]).mean()


def check(
    name: str, mode: str, dependence: Callable[[ContrastMethod, Term, int], Tensor],
    critic_loss: Callable[[ContrastMethod, Term, int], Tensor],
) -> None:  # fmt: skip
    """Penalty, critic loss and the gradients of both against formulas for one term and member."""
    z, y, s = batch(rows=24)
    sizes = {"latent_dim": 6, "n_classes": 3, "n_subjects": 4}
    censor = make_censor(name, mode, members=3, seed=[1, 2, 3], critic_hidden=5, **sizes).double()
    leaf = z.clone().requires_grad_()
    penalty = censor(leaf, y, s)
    penalty.sum().backward()
    loss = censor.critic_loss(z, y, s)
    assert loss is not None
    loss.sum().backward()
    assert leaf.grad is not None
    for p in range(3):
        mine = z.clone().requires_grad_()
        terms = make_terms(mode, mine, y, s)
        parts = [dependence(method, term, p) for method, term in zip(censor.methods, terms, strict=True)]
        expected = sum(term.sign * part for term, part in zip(terms, parts, strict=True))
        assert abs(float(penalty[p].detach())) > 1e-3, "a flipped sign would not show"
        torch.testing.assert_close(penalty[p], expected)
        (grad,) = torch.autograd.grad(expected, mine, retain_graph=True)
        torch.testing.assert_close(leaf.grad[p], grad[p])
        losses = [critic_loss(method, term, p) for method, term in zip(censor.methods, terms, strict=True)]
        torch.testing.assert_close(loss[p], sum(losses))
        for method, own in zip(censor.methods, losses, strict=True):
            names = list(method.parameters())
            for parameter, one in zip(names, torch.autograd.grad(own, names, allow_unused=True), strict=True):
                assert parameter.grad is not None
                expected_one = torch.zeros_like(parameter) if one is None else one
                torch.testing.assert_close(parameter.grad[p], expected_one[p])


def two_people(shift: float, dim: int = 1, rows: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """z (rows, dim) of two people at ±shift along the first axis, with unit noise; y and s (rows,).

    Along that axis they are quantiles, so that few rows have the moments of many.
    """
    s = torch.arange(rows) % 2
    z = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z[:, 0] = torch.special.ndtri((torch.arange(rows, dtype=z.dtype) // 2 + 0.5) / (rows // 2)) + shift * (2 * s - 1)
    return z, torch.zeros_like(s), s


class Exact:
    """Two people at ±shift with unit noise: p(z | s), p(z) on a fine grid, and what follows by integration."""

    def __init__(self, shift: float) -> None:
        self.z = torch.linspace(-12, 12, 48001, dtype=torch.float64)
        width = float(self.z[1] - self.z[0])
        each = [(-(self.z - m).square() / 2).exp() / math.sqrt(2 * math.pi) for m in (-shift, shift)]
        self.ratio = torch.stack([one / (sum(each) / 2) for one in each]).clamp(min=1e-300)  # p(z, s) / p(z) p(s)
        self.joint = torch.stack(each) / 2 * width
        self.product = (sum(each) / 4 * width).expand(2, -1)

    @property
    def information(self) -> float:
        return float((self.joint * self.ratio.log()).sum())

    @property
    def reverse(self) -> float:
        """KL(product ‖ joint)."""
        return float(-(self.product * self.ratio.log()).sum())

    @property
    def jensen_shannon(self) -> float:
        real = (self.joint * (2 * self.ratio / (1 + self.ratio)).log()).sum()
        return float(real + (self.product * (2 / (1 + self.ratio)).log()).sum()) / 2


def train(censor: torch.nn.Module, z: Tensor, y: Tensor, s: Tensor, steps: int, lr: float = 0.03) -> list[float]:
    """Critic updates alone; the penalty after each."""
    optimizer = torch.optim.Adam(censor.parameters(), lr=lr)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        censor.critic_loss(z, y, s).backward()
        optimizer.step()
        found.append(float(censor(z, y, s)))
    return found
