"""How the days of one person differ, and what labels of earlier days tell about another one.

The effects of a person (training/effects.py: a shift δ, and an effect ε of each class) are partly theirs and partly the
day's: electrodes lie elsewhere, skin and effort differ. The variances b of δ and e of ε are the same on every day; of
each, a share is kept from day to day. Windows of one day share all of δ and ε, those of two days the kept part:

    cov(δ, δ') = kept_b · b        cov(ε_c, ε'_c) = kept_e · e        on two days

The shares come from training people who came on several days. Yesterday's labels count for the part that people keep:
with shares of 1 a label counts whenever it was given, with 0 only on its day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .effects import KNOWN, LEAST, Effects, Evidence

FEWEST = 3  # people who came on several days, from whom something can be learned


class Days(NamedTuple):
    """Shares of variances that are kept from day to day, of P members."""

    shift: Tensor  # (P,)
    interaction: Tensor  # (P,)


def fit_days(
    effects: Effects, codes: Tensor, y: Tensor, people: Tensor, sessions: Tensor, n_classes: int
) -> Days | None:
    """Fit one member (P = 1), whose effects are those of the codes (n, D) of these people (n,) in their sessions (n,);
    None where hardly anybody came on several days."""
    x = effects.project(codes[None])[0].double() - effects.means[0].double()[y]  # (n, R)
    total = {"shift": 0.0, "interaction": 0.0}
    kept = dict.fromkeys(total, 0.0)
    counted = 0
    for person in people.unique():  # type: ignore[no-untyped-call]  # torch's
        rows = people == person
        _, day = sessions[rows].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        n_days = int(day.max()) + 1
        weight = torch.nn.functional.one_hot(day * n_classes + y[rows], n_days * n_classes).double()
        count = weight.sum(0).view(n_days, n_classes)
        shown = (count > 0).all(0)  # classes that are there on every day
        if n_days < 2 or not shown.any():
            continue
        mean = (weight.T @ x[rows]).view(n_days, n_classes, -1)[:, shown] / count[:, shown, None]  # (days, classes, R)
        noise = (1 / count[:, shown]).mean()
        shift = mean.mean(1, keepdim=True)
        classes = int(shown.sum())
        # The mean over pairs of days of products: what the days share. Squares of a day have its noise in them.
        for name, part, less in (
            ("shift", shift, noise / classes),
            ("interaction", mean - shift, noise * (1 - 1 / classes)),
        ):
            together = part.sum(0).square() - part.square().sum(0)
            kept[name] += float((together / (n_days * (n_days - 1))).mean(0).sum())
            total[name] += float((part.square().mean((0, 1)) - less).sum())
        counted += 1
    if counted < FEWEST:
        return None
    shares = [min(max(kept[name] / total[name], 0.0), 1.0) if total[name] > 0 else 1.0 for name in total]
    return Days(*(torch.tensor([share]) for share in shares))


def on_another_day(effects: Effects, days: Days, earlier: Sequence[Evidence], alike: float = KNOWN) -> Effects:
    """Effects of a person on a new day, given labels of earlier days; alike: windows that count as one. Means are
    exact, variances the mean over classes, as in `Effects.given`."""
    n_classes = effects.means.shape[1]
    counts = torch.stack([evidence.counts for evidence in earlier]).double()  # (days, C)
    day, label = (counts > 0).nonzero(as_tuple=True)  # (N,) cells that have windows
    if not len(day):
        return effects
    n = counts[day, label] / alike
    same_day, same_class = day[:, None] == day, label[:, None] == label
    cells = label == torch.arange(n_classes)[:, None]  # (C, N)
    equal = torch.eye(n_classes, dtype=torch.bool)
    means, variances = [], []
    for member in range(len(effects.means)):  # one by one: matrices of all at once may be large
        mu, b, e = (tensor[member].double() for tensor in (effects.means, effects.shift, effects.interaction))
        b, e = b[:, None, None], e[:, None, None]  # (R, 1, 1)
        kept_b, kept_e = days.shift[member].double() * b, days.interaction[member].double() * e
        sums = torch.stack([evidence.sums[member] for evidence in earlier]).double()[day, label]  # (N, R)
        residual = (sums / counts[day, label, None] - mu[label]).T[..., None]  # (R, N, 1)
        windows = torch.where(same_day, b + e * same_class, kept_b + kept_e * same_class) + torch.diag(1 / n)
        between = kept_b + kept_e * cells  # (R, C, N)
        solved = torch.linalg.solve(windows, torch.cat([residual, between.mT], -1))  # (R, N, 1 + C)
        means.append(mu + (between @ solved[..., :1])[..., 0].T)
        variances.append(b + e * equal - between @ solved[..., 1:])  # (R, C, C)
    covariance = torch.stack(variances)  # (P, R, C, C)
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    off = (covariance.sum((-2, -1)) / n_classes - variance) / (n_classes - 1)
    shift = off.clamp(min=LEAST * LEAST)
    interaction = (variance - shift).clamp(min=LEAST * LEAST)
    return effects._replace(
        means=torch.stack(means).to(effects.means),
        shift=shift.to(effects.shift),
        interaction=interaction.to(effects.shift),
    )
