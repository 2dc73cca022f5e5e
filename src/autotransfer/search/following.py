"""How a session learns from a person without labels: chosen on held-out people who are played back.

Every method is tried in every order of the windows: the average for sessions (training/centring.py), and adaptation
methods on codes (person/adaptation.py). They are compared one after the other, beginning with no adaptation: a method
takes the place of the one before it where it is clearly better for these people,

    on average   by a lower bound of the mean difference over all orders together, one standard error below the mean
                 (Student's t over people at the level SURE, so that few people must agree more)
    in no order  worse by the mean difference

Means alone would let one person who gains much decide for all. Bounds for each order would refuse what a dozen people
share: orders are those of the same windows, and show together what none may show alone. A choice among many methods at
once, by whichever measure, takes the one that was luckiest with these people; the fixed sequence, most promising first,
changes only for evidence.

The delivered model does not adapt where people did not gain, all orders together, by the method that the others chose
for them: a new person can expect the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit
from torch import Tensor

from ..models.ensemble import softmax
from ..models.mixture import Mixture
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION
from ..person.decoder import Decoder
from ..training.centring import CENTRING_RULES, CentringRule
from ..training.metrics import balanced_accuracy_of

FEWEST = 2  # people who can show anything
SURE = 0.84  # level of lower bounds: about one standard error
DRAWS = 500  # of a bootstrap of one person's windows
ROUNDING = 1e-9  # of a mean of scores
SEEN = (0, 10, 30, 100)  # windows before each stretch of a curve
RULES = {rule.name: rule for rule in CENTRING_RULES}
NONE: NDArray[np.float64] = np.zeros((0, 0))


def method_names() -> list[str]:
    """In the order of rows of scores: adaptation methods, then rules."""
    return [*ADAPTATION_METHODS, *RULES]


class Followed(NamedTuple):
    """Balanced accuracy of one person by the order of their windows; no rules without an average for sessions."""

    zero_shot: NDArray[np.float64]  # (orders,)
    adapted: NDArray[np.float64]  # (adaptation methods, orders)
    rules: NDArray[np.float64] = NONE  # (rules, orders)
    all_windows: NDArray[np.float64] = NONE  # (rules,): with all windows at once
    truth: NDArray[np.int64] = NONE.astype(np.int64)  # (orders, n): the classes of the windows
    right: NDArray[np.bool_] = NONE.astype(bool)  # (1 + methods, orders, n): as delivered, then by every method
    all_right: NDArray[np.bool_] = NONE.astype(bool)  # (rules, orders, n)

    @property
    def methods(self) -> NDArray[np.float64]:
        """(methods, orders): adaptation methods, then rules if there are any."""
        return np.concatenate([self.adapted, self.rules]) if self.rules.size else self.adapted

    def score(self, method: str) -> NDArray[np.float64]:
        """(orders,)"""
        return self.zero_shot if method == NO_ADAPTATION else self.methods[method_names().index(method)]

    def gains(self, method: str) -> NDArray[np.float64]:
        """Over zero-shot: (orders,)."""
        return self.score(method) - self.zero_shot

    def right_by(self, method: str) -> NDArray[np.bool_]:
        """Which windows are predicted right (orders, n)."""
        right: NDArray[np.bool_] = self.right[0 if method == NO_ADAPTATION else 1 + method_names().index(method)]
        return right


def follow_all(decoder: Decoder, codes: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor) -> Followed:
    """Score every adaptation method. codes: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a
    constant for each window; y: (orders, n)."""
    x = torch.stack([decoder.adaptation().project(z) for z in codes], 1)  # (n, orders, P, R), the same in all methods
    in_order = log_p.transpose(0, 1)
    adapted = [decoder.adaptation(name).follow(x, in_order).transpose(0, 1) for name in ADAPTATION_METHODS]
    log_probs = torch.stack([log_p, *adapted]).numpy()
    scores = _scores(log_probs, y.numpy())
    return Followed(scores[0], scores[1:], truth=y.numpy(), right=log_probs.argmax(-1) == y.numpy())


def follow_online(
    followed: Followed, model: Mixture, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]],
) -> Followed:  # fmt: skip
    """The same with the average for sessions by every rule: raw windows (n, channels, times) of classes (n,), with
    log_p (n, C) of the model as delivered."""
    assert model.online is not None, "asked for where there is one"
    decoder = Decoder(model, online=True)
    follow, evidence = decoder.online(CENTRING_RULES), decoder.say(X)
    truth = y[np.stack(orders)]  # (orders, n)
    answered = follow.side_by_side(evidence, orders)
    belief, u = softmax(log_p.numpy()), follow.centred.beside(evidence.logits)
    offset = follow.centred.all_at_once(u, belief)[:, None]  # (rules, 1, P, C)
    whole = evidence.settled + follow.pool(evidence.logits - offset)  # (rules, n, C)
    in_order = np.stack([whole[:, order] for order in orders], 1)
    return followed._replace(
        rules=_scores(answered, truth),
        all_windows=_scores(in_order, truth)[:, 0],
        right=np.concatenate([followed.right, answered.argmax(-1) == truth]),
        all_right=in_order.argmax(-1) == truth,
    )


def without_rules(followed: Followed) -> Followed:
    """For people whose average for sessions centres nothing: every rule leaves the delivered model unchanged."""
    n, right = len(RULES), followed.right[:1]
    return followed._replace(
        rules=np.repeat(followed.zero_shot[None], n, 0),
        all_windows=np.repeat(followed.zero_shot[:1], n),
        right=np.concatenate([followed.right, np.repeat(right, n, 0)]),
        all_right=np.repeat(right, n, 0),
    )


def _scores(log_p: NDArray[np.floating], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """(methods, orders, n, C) -> (methods, orders)"""
    predicted, n_classes = log_p.argmax(-1), log_p.shape[-1]
    return np.array([[balanced_accuracy_of(*pair, n_classes) for pair in zip(p, y, strict=True)] for p in predicted])


def scores_on_stretches(right: NDArray[np.bool_], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """(orders, stretches): the share of windows that are predicted right on each stretch, each class counting the same
    over all of them; NaN on a stretch that was not reached. right: (orders, n); y: (orders, n) classes."""
    weight = 1 / np.bincount(y[0])[y]
    ends = (*SEEN[1:], y.shape[1])
    shares = np.full((len(y), len(SEEN)), np.nan)
    for place, (start, end) in enumerate(zip(SEEN, ends, strict=True)):
        stretch = weight[:, start:end]
        if stretch.shape[1]:
            shares[:, place] = (right[:, start:end] * stretch).sum(-1) / stretch.sum(-1)
    return shares


def clearly_loses(before: NDArray[np.bool_], after: NDArray[np.bool_], y: NDArray[np.int64]) -> bool:
    """Whether a person loses beyond chance: the 95 % interval of a paired bootstrap of their windows, class by class,
    lies below 0. before, after: (n,) whether windows of classes y (n,) are predicted right."""
    generator, total = np.random.default_rng(0), np.zeros(DRAWS)
    classes = np.unique(y)
    for label in classes:
        gains = after[y == label].astype(float) - before[y == label]
        total += gains[generator.integers(0, len(gains), (DRAWS, len(gains)))].mean(1) / len(classes)
    return bool(np.quantile(total, 0.975) < 0)


def chosen(people: Sequence[Followed], among: Sequence[str] | None = None) -> str:
    """The best method for these people; among: compared in this order, all methods unless given."""
    best = NO_ADAPTATION
    if len(people) < FEWEST:
        return best
    for method in _sequence(people) if among is None else among:
        better = np.stack([person.score(method) - person.score(best) for person in people])  # (people, orders)
        if least_mean(better.mean(1)) > ROUNDING and better.mean(0).min() > -ROUNDING:
            best = method
    return best


class Choices:
    """The methods that some of these people choose; the same people are asked once. among: see `chosen`."""

    def __init__(self, people: Sequence[Followed], among: Sequence[str] | None = None) -> None:
        self.people, self.among = list(people), among
        self._chosen: dict[frozenset[int], str] = {}

    def chosen(self, without: frozenset[int]) -> str:
        """The best method for everybody but the people at these places."""
        if without not in self._chosen:
            self._chosen[without] = chosen([p for n, p in enumerate(self.people) if n not in without], self.among)
        return self._chosen[without]

    def delivered(self, without: frozenset[int] = frozenset()) -> str:
        """The method for a new person: none where these people did not gain by the method that the others chose."""
        left = [(n, person) for n, person in enumerate(self.people) if n not in without]
        gains = [person.gains(self.chosen(without | {n})) for n, person in left]
        return self.chosen(without) if left and np.mean(gains) > ROUNDING else NO_ADAPTATION


def delivered_method(people: Sequence[Followed], among: Sequence[str] | None = None) -> str:
    """The method that these people give a new one."""
    return Choices(people, among).delivered()


def _sequence(people: Sequence[Followed]) -> list[str]:
    """The average for sessions by its best rule, where there is one, then every adaptation method."""
    averaged = all(person.rules.size for person in people)
    return [*([rule_of(people)] if averaged else []), *ADAPTATION_METHODS]


def least_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower bound at the level SURE of the mean over people (people, ...) -> (...)."""
    n = len(values)
    error = values.std(0, ddof=1) / np.sqrt(n)
    return np.asarray(values.mean(0) - stdtrit(n - 1, SURE) * error)


def rule_of(people: Sequence[Followed]) -> str:
    """The rule of the average for sessions whose worst order is best, where all windows at once count as one more
    order. Without people, the default rule."""
    if not people:
        return CentringRule().name
    gains = [np.column_stack([p.rules - p.zero_shot, p.all_windows - p.zero_shot[0]]) for p in people]
    return list(RULES)[int(np.mean(gains, 0).min(1).argmax())]


def all_gain(person: Followed, rule: str) -> float:
    """The gain of a person with all windows at once over the delivered model."""
    return float(person.all_windows[list(RULES).index(rule)] - person.zero_shot[0])
