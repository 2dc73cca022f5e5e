"""How a session learns from a person without labels: found on held-out people who are played back.

Every method is tried in every order of the windows: the ways to follow codes (person/adaptation.py), and the average
for sessions with every rule (training/centring.py). The delivered model has the method that gains most in the order in
which it gains least; where every method loses in some order, the model stays as it was. So it does where people lost,
in any order, by the method that the others chose for them: that is what a new person can expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.mixture import Mixture, normalised
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION
from ..person.decoder import Decoder
from ..training.centring import CENTRING_RULES, CentringRule
from ..training.metrics import balanced_accuracy_of

FEWEST = 2  # people who can show anything
DRAWS = 500  # of a bootstrap of one person's windows
SEEN = (0, 10, 30, 100)  # windows before each stretch of a curve
RULES = {rule.name: rule for rule in CENTRING_RULES}
METHODS = (*ADAPTATION_METHODS, *RULES)
NONE: NDArray[np.float64] = np.zeros((0, 0))


class Followed(NamedTuple):
    """Balanced accuracy of one person by the order of their windows; nothing of rules without an average for
    sessions."""

    zero_shot: NDArray[np.float64]  # (orders,)
    ways: NDArray[np.float64]  # (ways, orders)
    rules: NDArray[np.float64] = NONE  # (rules, orders)
    all_windows: NDArray[np.float64] = NONE  # (rules,): with all windows at once
    truth: NDArray[np.int64] = NONE.astype(np.int64)  # (orders, n): the classes of the windows
    right: NDArray[np.bool_] = NONE.astype(bool)  # (1 + methods, orders, n): as delivered, then by every method
    all_right: NDArray[np.bool_] = NONE.astype(bool)  # (rules, orders, n)

    @property
    def methods(self) -> NDArray[np.float64]:
        """(methods, orders), as many as there are."""
        return np.concatenate([self.ways, self.rules]) if self.rules.size else self.ways

    def score(self, method: str) -> NDArray[np.float64]:
        """(orders,)"""
        return self.zero_shot if method == NO_ADAPTATION else self.methods[METHODS.index(method)]

    def gains(self, method: str) -> NDArray[np.float64]:
        """By being followed (orders,)."""
        return self.score(method) - self.zero_shot

    def right_by(self, method: str) -> NDArray[np.bool_]:
        """Which windows are predicted right (orders, n)."""
        right: NDArray[np.bool_] = self.right[0 if method == NO_ADAPTATION else 1 + METHODS.index(method)]
        return right


def follow_all(decoder: Decoder, codes: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor) -> Followed:
    """By every way. codes: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a number for each
    window; y: (orders, n)."""
    x = torch.stack([decoder.adaptation().project(own) for own in codes], 1)  # (n, orders, P, R), the same in all ways
    in_order = log_p.transpose(0, 1)
    ways = [decoder.adaptation(name).follow(x, in_order).transpose(0, 1) for name in ADAPTATION_METHODS]
    said = np.stack([own.numpy() for own in (log_p, *ways)])
    scores = _scores(said, y.numpy())
    return Followed(scores[0], scores[1:], truth=y.numpy(), right=said.argmax(-1) == y.numpy())


def follow_online(
    followed: Followed, model: Mixture, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]],
) -> Followed:  # fmt: skip
    """The same with the average for sessions by every rule: raw windows (n, channels, times) of classes (n,), with
    log_p (n, C) of the model as delivered."""
    assert model.online is not None, "asked for where there is one"
    decoder = Decoder(model, online=True)
    follow, said = decoder.online(CENTRING_RULES), decoder.say(X)
    truth = y[np.stack(orders)]  # (orders, n)
    answered = follow.side_by_side(said, orders)
    belief, u = normalised(log_p.numpy()), follow.centred.beside(said.logits)
    offset = follow.centred.all_at_once(u, belief)[:, None]  # (rules, 1, P, C)
    whole = said.settled + follow.pool(said.logits - offset)  # (rules, n, C)
    in_order = np.stack([whole[:, order] for order in orders], 1)
    return followed._replace(
        rules=_scores(answered, truth),
        all_windows=_scores(in_order, truth)[:, 0],
        right=np.concatenate([followed.right, answered.argmax(-1) == truth]),
        all_right=in_order.argmax(-1) == truth,
    )


def unmoved(followed: Followed) -> Followed:
    """For somebody whose average for sessions centres nothing: every rule leaves the model as it is delivered."""
    n, right = len(RULES), followed.right[:1]
    return followed._replace(
        rules=np.repeat(followed.zero_shot[None], n, 0),
        all_windows=np.repeat(followed.zero_shot[:1], n),
        right=np.concatenate([followed.right, np.repeat(right, n, 0)]),
        all_right=np.repeat(right, n, 0),
    )


def _scores(log_p: NDArray[np.floating], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """(methods, orders, n, C) -> (methods, orders)"""
    said = log_p.argmax(-1)
    n_classes = log_p.shape[-1]
    return np.array([[balanced_accuracy_of(*own, n_classes) for own in zip(one, y, strict=True)] for one in said])


def curve(right: NDArray[np.bool_], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """Which windows (orders, n) of classes (orders, n) are predicted right -> (orders, stretches): the share on each
    stretch of the windows, each class counting the same over all of them; NaN on a stretch that was not reached."""
    weight = 1 / np.bincount(y[0])[y]
    ends = (*SEEN[1:], y.shape[1])
    found = np.full((len(y), len(SEEN)), np.nan)
    for place, (start, end) in enumerate(zip(SEEN, ends, strict=True)):
        own = weight[:, start:end]
        if own.shape[1]:
            found[:, place] = (right[:, start:end] * own).sum(-1) / own.sum(-1)
    return found


def clearly_loses(before: NDArray[np.bool_], after: NDArray[np.bool_], y: NDArray[np.int64]) -> bool:
    """Whether somebody whose windows (n,) of classes (n,) were predicted right `before`, and are `after`, loses beyond
    chance: the 95 % interval of a paired bootstrap of their windows, class by class, lies below 0."""
    generator, total = np.random.default_rng(0), np.zeros(DRAWS)
    classes = np.unique(y)
    for label in classes:
        own = after[y == label].astype(float) - before[y == label]
        total += own[generator.integers(0, len(own), (DRAWS, len(own)))].mean(1) / len(classes)
    return bool(np.quantile(total, 0.975) < 0)


def chosen(people: Sequence[Followed], among: Sequence[str] = METHODS) -> str:
    """The method that these people fare best with."""
    if len(people) < FEWEST:
        return NO_ADAPTATION
    gains = np.mean([own.methods - own.zero_shot for own in people], 0)  # (methods, orders)
    least = {name: value for name, value in zip(METHODS, gains.min(1).tolist(), strict=False) if name in among}
    name = max(least, key=least.__getitem__, default=NO_ADAPTATION)
    return name if name in least and least[name] > 0 else NO_ADAPTATION


def delivered(people: Sequence[Followed], among: Sequence[str] = METHODS) -> str:
    """The same for a new person: none where these people lost in some order by what the others among them chose, or
    gained in none."""
    if not people:
        return NO_ADAPTATION
    gains = np.mean([own.gains(chosen([*people[:n], *people[n + 1 :]], among)) for n, own in enumerate(people)], 0)
    return chosen(people, among) if gains.min() >= 0 and gains.max() > 0 else NO_ADAPTATION


def rule_of(people: Sequence[Followed], method: str) -> str:
    """The rule of the average for sessions: that of the method, or, where that is none of them, the one whose worst
    order is best, with all windows at once counting as one more. Without people, the usual one."""
    if method in RULES:
        return method
    if not people:
        return CentringRule().name
    gains = [np.column_stack([own.rules - own.zero_shot, own.all_windows - own.zero_shot[0]]) for own in people]
    return list(RULES)[int(np.mean(gains, 0).min(1).argmax())]


def all_gain(own: Followed, rule: str) -> float:
    """What all windows at once give somebody beyond the model as delivered."""
    return float(own.all_windows[list(RULES).index(rule)] - own.zero_shot[0])
