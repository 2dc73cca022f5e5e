"""How a session learns from a person without labels: chosen on held-out people who are played back.

Every method is tried in every order of the windows: the average for sessions (training/centering.py), and adaptation
methods on latents (person/adaptation.py). They are compared one after the other, beginning with no adaptation: a method
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
from ..training.centering import CENTERING_RULES, CenteringRule
from .labels import window_score

FEWEST = 2  # people who can show anything
SURE = 0.84  # level of lower bounds: about one standard error
ROUNDING = 1e-9  # of a mean of scores
RULES = {rule.name: rule for rule in CENTERING_RULES}


class AdaptationScores(NamedTuple):
    """Scores of one subject by adaptation method, with a score for each order of their windows."""

    scores: dict[str, NDArray[np.float64]]  # by method, also "none" and rules of the online ensemble: (orders,)
    all_windows: dict[str, float]  # by rule, with all windows at once; empty without an online ensemble

    @property
    def zero_shot(self) -> NDArray[np.float64]:
        return self.scores[NO_ADAPTATION]

    def gains(self, method: str) -> NDArray[np.float64]:
        """Return the gains over zero-shot (orders,)."""
        return self.scores[method] - self.zero_shot


def score_methods(
    ensemble: Ensemble, latents: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor, metric: Metric
) -> AdaptationScores:
    """Score every adaptation method. latents: of each order, (P, n, D) of each stack; log_p: (orders, n, C) up to a
    constant for each window; y: (orders, n)."""
    x = torch.stack([ensemble.project(z) for z in latents], 1)  # (n, orders, P, R), the same in all methods
    in_order = log_p.transpose(0, 1)
    adapted = [Adaptation(*ensemble.effects, name).follow(x, in_order).transpose(0, 1) for name in ADAPTATION_METHODS]
    scores = _scores(torch.stack([log_p, *adapted]).numpy(), y.numpy(), metric)
    return AdaptationScores(dict(zip([NO_ADAPTATION, *ADAPTATION_METHODS], scores, strict=True)), {})


def score_rules(
    followed: AdaptationScores, model: Model, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]], metric: Metric,
) -> AdaptationScores:  # fmt: skip
    """Score the online ensemble with every rule, too: raw windows (n, channels, times) of classes (n,), with log_p
    (n, C) of the model as delivered."""
    online = model.online_ensemble(CENTERING_RULES)
    windows, truth = online.zero_shot(X), y[np.stack(orders)]  # (orders, n)
    answered = _scores(online.side_by_side(windows, orders), truth, metric)
    whole = _scores(online.all_at_once(windows, softmax(log_p.numpy()))[:, None], y[None], metric)[:, 0]
    rules = dict(zip(RULES, answered, strict=True))
    return AdaptationScores(followed.scores | rules, dict(zip(RULES, whole.tolist(), strict=True)))


def without_rules(followed: AdaptationScores) -> AdaptationScores:
    """Return scores of a subject for whom the online ensemble centers nothing: every rule is zero-shot."""
    zero_shot = followed.zero_shot
    return AdaptationScores(
        followed.scores | dict.fromkeys(RULES, zero_shot), dict.fromkeys(RULES, float(zero_shot[0]))
    )


def _scores(log_p: NDArray[np.floating], y: NDArray[np.int64], metric: Metric) -> NDArray[np.float64]:
    """Score log-probabilities (methods, orders, n, C) of classes (orders, n): (methods, orders)."""
    return np.array(
        [[window_score(metric, of_order, p) for p, of_order in zip(every, y, strict=True)] for every in log_p]
    )


class GroupScores(NamedTuple):
    """Scores of several subjects, each as one array, because methods are selected without every one of them."""

    scores: dict[str, NDArray[np.float64]]  # by method: (people, orders)
    rules: NDArray[np.float64] | None  # (people, rules, orders + 1) gains, also with all windows at once

    @classmethod
    def of(cls, people: Sequence[AdaptationScores]) -> GroupScores:
        if not people:
            return cls({}, None)
        scores = {method: np.stack([person.scores[method] for person in people]) for method in people[0].scores}
        averaged = all(person.all_windows for person in people)
        gains = [[[*p.gains(rule), all_gain(p, rule)] for rule in RULES] for p in people] if averaged else None
        return cls(scores, None if gains is None else np.array(gains))

    @property
    def size(self) -> int:
        return len(next(iter(self.scores.values()), ()))

    def without(self, person: int) -> GroupScores:
        scores = {method: np.delete(values, person, 0) for method, values in self.scores.items()}
        return GroupScores(scores, None if self.rules is None else np.delete(self.rules, person, 0))


def chosen(people: GroupScores, among: Sequence[str] | None = None) -> str:
    """Return the best method for these people; among: compared in this order, all methods unless given."""
    best = NO_ADAPTATION
    if people.size < FEWEST:
        return best
    for method in _sequence(people) if among is None else among:
        better = people.scores[method] - people.scores[best]  # (people, orders)
        if least_mean(better.mean(1)) > ROUNDING and better.mean(0).min() > -ROUNDING:
            best = method
    return best


def delivered_method(people: GroupScores, among: Sequence[str] | None = None) -> str:
    """Return the method for a new person: none if these people did not gain by the methods that the others chose."""
    scores = people.scores
    methods = [chosen(people.without(n), among) for n in range(people.size)]
    gains = [scores[method][n] - scores[NO_ADAPTATION][n] for n, method in enumerate(methods)]
    return chosen(people, among) if gains and np.mean(gains) > ROUNDING else NO_ADAPTATION


def _sequence(people: GroupScores) -> list[str]:
    """Return the online ensemble by its best rule, if there is one, then every adaptation method."""
    return [*([] if people.rules is None else [rule_of(people)]), *ADAPTATION_METHODS]


def least_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lower bound at the level SURE of the mean over people (people, ...) -> (...)."""
    n = len(values)
    error = values.std(0, ddof=1) / np.sqrt(n)
    return np.asarray(values.mean(0) - stdtrit(n - 1, SURE) * error)


def rule_of(people: GroupScores) -> str:
    """The rule of the average for sessions whose worst order is best, where all windows at once count as one more
    order. Without people, the default rule."""
    if people.rules is None or not people.size:
        return CenteringRule().name
    return list(RULES)[int(people.rules.mean(0).min(1).argmax())]


def all_gain(person: AdaptationScores, rule: str) -> float:
    """Return the gain of a person with all windows at once over the delivered model."""
    return person.all_windows[rule] - float(person.zero_shot[0])
