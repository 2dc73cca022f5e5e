"""Turn: an armband that somebody wears turned is turned back, as far as their unlabelled windows tell.

    transductive   by all of a person's windows
    online         the same for training people; a new person by their windows so far

A window of a ring of R channels is described by f: the log power of every channel less the window's mean of it, and
the correlations of every channel with the next few around the ring. Turning the band by r places rolls every part of f
by r. f is taken to be normal with the mean and covariance of the training people, each of whom counts the same, and
each of whom is first turned to agree with the others. The evidence for r is then the mean over n windows of

    log p(f turned by r) − log p(f), times n / (n + m)

so that few windows say little. A person is turned by the r with the most evidence if that is more than a margin and
comes of enough windows, else not at all. Only the order of channels ever changes, and no label is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..recordings.ring import check_ring
from .transform import Adapting, Batch, Fitted, Follower, OnlineOnly, Rows, Stage, Summing, entries_of

PRIOR_WINDOWS = 32  # m: windows of one gesture may look like those of another one turned
FEWEST = 16  # windows that may turn somebody
MARGIN = 2.0  # nats a window: people differ by about one without being turned
NEIGHBOURS = 3  # how far around the ring correlations reach
FLOOR = 0.1  # of a window's mean power, added to that of every channel: how silent one is says little
SHRINKAGE = 0.05  # of covariances towards their diagonal; log power less its mean has no variance in one direction
LEAST = 1e-4  # variance: what nobody has shown to vary may still do so
ROUNDS = 5  # of turning training people towards each other


@dataclass(frozen=True)
class Turn(Adapting):
    name = "turn"
    tabulated = True

    @property
    def by_fold(self) -> bool:
        return True

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        ring = torch.tensor(check_ring(stage.ring, f"turn={self.kind!r}"), device=stage.like.device)
        what = f"description around {ring.tolist()}"
        moments = stage.of_people(what, lambda x: outer(describe(x, ring)), len(training))  # (G or 1, S, D, D)
        count = torch.bincount(stage.subject, minlength=stage.n_subjects)

        def fitted(group: int, rows: Rows) -> tuple[Tensor, Tensor]:
            return agreed(moments[group if stage.by_fold else 0], count, stage.people(rows), len(ring))

        precision, turns = map(torch.stack, zip(*stage.of_groups(fitted, training), strict=True))
        return self.fitted_class(ring=ring.expand(len(training), -1).clone(), precision=precision, turns=turns)

    @property
    def fitted_class(self) -> type[Fitted]:
        return PersonTurn if self.kind == "transductive" else OnlineTurn


# ---- what a window says of how the band is worn ----------------------------------------------------------------------


def describe(x: Tensor, ring: Tensor) -> Tensor:
    """Windows (..., C, T) -> (..., D) float64: 1, then parts of R numbers each, in the order of the ring."""
    signals = x.index_select(-2, ring).to(torch.float64)
    signals = signals - signals.mean(-1, keepdim=True)
    power = signals.square().mean(-1)
    level = power.mean(-1, keepdim=True)
    silent = (level == 0).to(level.dtype)
    log_power = (power / (level + silent) + FLOOR).log()
    parts = [torch.ones_like(level), log_power - log_power.mean(-1, keepdim=True)]
    deviation = power.sqrt()
    for step in range(1, neighbours(len(ring)) + 1):
        both = deviation * deviation.roll(-step, -1)
        flat = (both == 0).to(both.dtype)
        parts.append((signals * signals.roll(-step, -2)).mean(-1) / (both + flat))
    return torch.cat(parts, -1)


def neighbours(places: int) -> int:
    """Parts of correlations: pairs that face each other are left out, each would come twice."""
    return min(NEIGHBOURS, (places - 1) // 2)


def outer(f: Tensor) -> Tensor:
    """(..., D) -> (..., D, D)."""
    return f[..., :, None] * f[..., None, :]


def rolled(places: int) -> Tensor:
    """(R, D): where each number of a description comes from if the band is turned by 0 .. R − 1 places."""
    turn, place = torch.arange(places)[:, None, None], torch.arange(places)
    part = torch.arange(1 + neighbours(places))[:, None]
    numbers = 1 + part * places + (place + turn) % places  # (R, parts, R)
    return torch.cat([torch.zeros(places, 1, dtype=torch.int64), numbers.flatten(1)], 1)


def turned_moments(moments: Tensor, turns: Tensor, places: int) -> Tensor:
    """Second moments (S, D, D) of descriptions as they would be with the band turned by turns (S,)."""
    order = rolled(places).to(moments.device)[turns]  # (S, D)
    return moments[torch.arange(len(order), device=order.device)[:, None, None], order[:, :, None], order[:, None, :]]


def precisions(moments: Tensor) -> Tensor:
    """Second moments (..., D, D) of descriptions f = (1, g), g with mean μ and covariance Σ -> A (..., D, D) with
    fᵀ A f = (g − μ)ᵀ Σ⁻¹ (g − μ)."""
    mean = moments[..., 0, 1:]
    covariance = moments[..., 1:, 1:] - outer(mean)
    diagonal = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
    identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
    inverse = torch.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * diagonal + LEAST * identity)
    shifted = -(inverse @ mean[..., None])
    corner = -(mean[..., None, :] @ shifted)
    return torch.cat([torch.cat([corner, shifted.mT], -1), torch.cat([shifted, inverse], -1)], -2)


def turned_precisions(precision: Tensor, places: int) -> Tensor:
    """A (..., D, D) -> (..., R, D, D): ⟨A, P M Pᵀ⟩ = ⟨Pᵀ A P, M⟩ for every turn P."""
    back = rolled(places).argsort(1).to(precision.device)
    return precision[..., back[:, :, None], back[:, None, :]]


def log_ratios(precision: Tensor, moments: Tensor, places: int) -> Tensor:
    """log p(f turned by r) − log p(f) for r = 0 .. R − 1, averaged as the second moments (..., D, D) are: (..., R)."""
    distance = (turned_precisions(precision, places) * moments[..., None, :, :]).sum((-2, -1))
    return 0.5 * (distance[..., :1] - distance)


def window_ratios(precision: Tensor, f: Tensor, places: int) -> Tensor:
    """The same of single windows, described by f (G or 1, n, D), under A (G, D, D): (G, n, R)."""
    turned = f[..., rolled(places).to(f.device)]  # (G or 1, n, R, D)
    distance = ((turned @ precision[:, None]) * turned).sum(-1)
    return 0.5 * (distance[..., :1] - distance)


def decided(total: Tensor, count: Tensor) -> Tensor:
    """Log ratios (..., R), summed over so many windows (...) -> the turn (...): 0 if too little speaks for another."""
    most, turn = total.max(-1)
    return torch.where((most > MARGIN * (count + PRIOR_WINDOWS)) & (count >= FEWEST), turn, 0)


def agreed(moments: Tensor, count: Tensor, people: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Of everybody (S, D, D), with so many windows (S,): the precision A (D, D) of the training people, turned until
    each agrees with the mean of the others, and everybody's turns (S,)."""
    of_training = moments[people]
    turns = torch.zeros_like(people)
    if len(people) > 1:
        for _ in range(ROUNDS):
            seen = turned_moments(of_training, turns, places)
            others = (seen.sum(0) - seen) / (len(people) - 1)
            after = decided(count[people, None] * log_ratios(precisions(others), of_training, places), count[people])
            if torch.equal(after, turns):
                break
            turns = after
    precision = precisions(turned_moments(of_training, turns, places).mean(0))
    return precision, decided(count[:, None] * log_ratios(precision, moments, places), count)


def sources(ring: Tensor, channels: int) -> Tensor:
    """(R, C): which channel each channel shows if the band is turned by 0 .. R − 1 places. Place i of the ring shows
    what place i + turn recorded; other channels stay."""
    place = torch.arange(len(ring), device=ring.device)
    stay = torch.arange(channels, device=ring.device).expand(len(ring), -1)
    shown = ring[(place + place[:, None]) % len(ring)]
    return stay.scatter(1, ring.expand(len(ring), -1), shown)


def in_order(x: Tensor, turns: Tensor, sources: Tensor) -> Tensor:
    """Windows (G or 1, B, C, T) with the band turned by turns (G, B); sources: (R, C). Channel-major in memory."""
    shown = sources[turns].transpose(1, 2)  # (G, C, B)
    size = (*shown.shape, x.shape[-1])
    return x.transpose(1, 2).expand(size).gather(1, shown[..., None].expand(size)).transpose(1, 2)


# ---- the transform ---------------------------------------------------------------------------------------------------


class PersonTurn(Fitted):
    """A table over the people of the recordings, (G, S); a new person by the windows of one call."""

    statistics = ("ring", "precision")
    ring: Tensor  # (G, R), the same for all: a model has to know it
    precision: Tensor  # (G, D, D) float64: A of the training people
    turns: Tensor

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        if people is not None:
            return in_order(x, entries_of(self.turns, people), sources(self.ring[0], x.shape[2]))
        f = describe(x, self.ring[0])
        count = f[0, :, 0].sum()  # of ones: in a graph the number of windows is not a constant
        total = window_ratios(self.precision.double(), f, self.ring.shape[1]).sum(1, keepdim=True)
        turns = decided(total, count).expand(-1, x.shape[1])
        return in_order(x, turns, sources(self.ring[0], x.shape[2]))


class OnlineTurn(OnlineOnly, PersonTurn):
    name = "turn"

    def follow(self) -> Follower:
        return FollowedTurn(self.ring[0], self.precision.double())


class FollowedTurn(Summing):
    """Each window turned by the evidence of it and those before it."""

    def __init__(self, ring: Tensor, precision: Tensor) -> None:
        self.ring, self.precision = ring, precision
        super().__init__(precision.new_zeros(len(precision), len(ring)))

    def feed(self, batch: Batch) -> Batch:
        x = batch.x
        total = self.total[:, None] + window_ratios(self.precision, describe(x, self.ring), len(self.ring)).cumsum(1)
        turns = decided(total, self.remember(total))
        return Batch(in_order(x, turns, sources(self.ring, x.shape[2])))
