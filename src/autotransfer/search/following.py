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

from ..models.ensemble import Ensemble
from ..models.model import Model
from ..models.online import softmax
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION, Adaptation
from ..tasks import Metric
from ..training.centring import CENTRING_RULES, CentringRule
from .labels import window_score

FEWEST = 2  # people who can show anything
SURE = 0.84  # level of lower bounds: about one standard error
ROUNDING = 1e-9  # of a mean of scores
RULES = {rule.name: rule for rule in CENTRING_RULES}
NONE: NDArray[np.float64] = np.zeros((0, 0))


def method_names() -> list[str]:
    """In the order of rows of scores: adaptation methods, then rules."""
    return [*ADAPTATION_METHODS, *RULES]


class Followed(NamedTuple):
    """Scores of one person by the order of their windows; no rules without an average for sessions."""

    zero_shot: NDArray[np.float64]  # (orders,)
    adapted: NDArray[np.float64]  # (adaptation methods, orders)
    rules: NDArray[np.float64] = NONE  # (rules, orders)
    all_windows: NDArray[np.float64] = NONE  # (rules,): with all windows at once

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


def follow_all(
    ensemble: Ensemble, codes: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor, metric: Metric
) -> Followed:
    """Score every adaptation method. codes: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a
    constant for each window; y: (orders, n)."""
    x = torch.stack([ensemble.project(z) for z in codes], 1)  # (n, orders, P, R), the same in all methods
    in_order = log_p.transpose(0, 1)
    adapted = [Adaptation(*ensemble.effects, name).follow(x, in_order).transpose(0, 1) for name in ADAPTATION_METHODS]
    scores = _scores(torch.stack([log_p, *adapted]).numpy(), y.numpy(), metric)
    return Followed(scores[0], scores[1:])


def follow_online(
    followed: Followed, model: Model, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]], metric: Metric,
) -> Followed:  # fmt: skip
    """The same with the average for sessions by every rule: raw windows (n, channels, times) of classes (n,), with
    log_p (n, C) of the model as delivered."""
    online = model.online_ensemble(CENTRING_RULES)
    windows, truth = online.zero_shot(X), y[np.stack(orders)]  # (orders, n)
    answered = online.side_by_side(windows, orders)
    whole = online.all_at_once(windows, softmax(log_p.numpy()))  # (rules, n, C)
    return followed._replace(
        rules=_scores(answered, truth, metric), all_windows=_scores(whole[:, None], y[None], metric)[:, 0]
    )


def without_rules(followed: Followed) -> Followed:
    """For people whose average for sessions centres nothing: every rule leaves the delivered model unchanged."""
    n = len(RULES)
    return followed._replace(
        rules=np.repeat(followed.zero_shot[None], n, 0), all_windows=np.repeat(followed.zero_shot[:1], n)
    )


def _scores(log_p: NDArray[np.floating], y: NDArray[np.int64], metric: Metric) -> NDArray[np.float64]:
    """Score log-probabilities (methods, orders, n, C) of classes (orders, n): (methods, orders)."""
    return np.array(
        [[window_score(metric, of_order, p) for p, of_order in zip(every, y, strict=True)] for every in log_p]
    )


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


def delivered_method(people: Sequence[Followed], among: Sequence[str] | None = None) -> str:
    """Return the method for a new person: none if these people did not gain by the methods that the others chose."""
    gains = [person.gains(chosen([*people[:n], *people[n + 1 :]], among)) for n, person in enumerate(people)]
    return chosen(people, among) if gains and np.mean(gains) > ROUNDING else NO_ADAPTATION


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
