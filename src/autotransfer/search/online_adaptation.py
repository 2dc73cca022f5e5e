"""Select how online sessions adapt without labels, from replayed windows of held-out subjects.

Centering rules (training/centering.py) and adaptation methods (person/adaptation.py) are compared in a fixed sequence
that begins with no adaptation. A method replaces the best earlier method if the lower bound of its mean gain over
subjects is positive, and if its mean gain is not negative in any order of windows. The lower bound limits the influence
of a single subject with a large gain. The maximum over all methods would select methods that are best by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

MIN_SUBJECTS = 2  # number of subjects that the selection of a method requires
LEVEL = 0.84  # confidence level of lower bounds, about one standard error
ROUNDING = 1e-9  # rounding error of a mean of scores
RULES = {rule.name: rule for rule in CENTERING_RULES}

Floats = NDArray[np.float64]


class AdaptationScores(NamedTuple):
    """Scores of S subjects by adaptation method, in each order of their windows."""

    by_method: dict[str, Floats]  # (S, orders) by method, "none", or rule of the online ensemble
    all_windows: dict[str, Floats]  # (S,) by rule, for all windows at once; empty without an online ensemble

    @classmethod
    def stack(cls, subjects: Sequence[AdaptationScores]) -> AdaptationScores:
        """Concatenate the scores of several subjects."""
        fields = zip(*subjects, strict=True)
        return cls(*({name: np.concatenate([t[name] for t in tables]) for name in tables[0]} for tables in fields))

    @property
    def n_subjects(self) -> int:
        return len(self.by_method[NO_ADAPTATION])

    def without(self, subject: int) -> AdaptationScores:
        return AdaptationScores(*({name: np.delete(t, subject, 0) for name, t in table.items()} for table in self))

    def gains(self, method: str) -> Floats:
        """Return the gains over zero-shot (S, orders)."""
        return self.by_method[method] - self.by_method[NO_ADAPTATION]


def score_methods(
    ensemble: Ensemble, latents: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor, metric: Metric
) -> AdaptationScores:
    """Score every adaptation method on one subject.

    latents: (P, n, D) by order of windows and by stack of members; log_p: (orders, n, C), not necessarily normalized;
    y: (orders, n).
    """
    x = torch.stack([ensemble.project(z) for z in latents], 1)  # (n, orders, P, R)
    by_window = log_p.transpose(0, 1)  # (n, orders, C)
    adaptations = [Adaptation(*ensemble.effects_and_weights, name) for name in ADAPTATION_METHODS]
    adapted = [adaptation.adapt(x, by_window).transpose(0, 1) for adaptation in adaptations]
    scores = _scores(torch.stack([log_p, *adapted]).numpy(), y.numpy(), metric)
    return AdaptationScores(dict(zip([NO_ADAPTATION, *ADAPTATION_METHODS], scores[:, None], strict=True)), {})


def score_rules(
    scores: AdaptationScores, model: Model, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]], metric: Metric,
) -> AdaptationScores:  # fmt: skip
    """Add the scores of every rule of the online ensemble to the scores of a subject.

    X (n, channels, times): raw windows of classes y (n,); log_p (n, C): log-probabilities of the delivered model.
    """
    online = model.online_ensemble(CENTERING_RULES)
    windows, truth = online.predict_zero_shot(X), y[np.stack(orders)]  # (orders, n)
    in_orders = _scores(online.predict_in_orders(windows, orders), truth, metric)
    at_once = _scores(online.predict_transductive(windows, softmax(log_p.numpy()))[:, None], y[None], metric)
    by_rule = dict(zip(RULES, in_orders[:, None], strict=True))
    return AdaptationScores(scores.by_method | by_rule, dict(zip(RULES, at_once, strict=True)))


def add_unused_rules(scores: AdaptationScores) -> AdaptationScores:
    """Add zero-shot scores for every rule to the scores of a subject for whom the online ensemble centers nothing."""
    zero_shot = scores.by_method[NO_ADAPTATION]
    by_rule = dict.fromkeys(RULES, zero_shot)
    return AdaptationScores(scores.by_method | by_rule, dict.fromkeys(RULES, zero_shot[:, 0]))


def _scores(log_p: NDArray[np.floating], y: NDArray[np.int64], metric: Metric) -> Floats:
    """Return scores (methods, orders) of log-probabilities (methods, orders, n, C) of classes (orders, n)."""
    return np.array(
        [[window_score(metric, truth, p) for p, truth in zip(by_order, y, strict=True)] for by_order in log_p]
    )


def select_without_each(scores: AdaptationScores, select: Callable[[AdaptationScores], str]) -> list[str]:
    """Return the method that is selected for each subject from the scores of the other subjects."""
    return [select(scores.without(subject)) for subject in range(scores.n_subjects)]


def best_method(scores: AdaptationScores, methods: Sequence[str] | None = None) -> str:
    """Return the best method for these subjects. methods: compared in this order; default: all methods."""
    best = NO_ADAPTATION
    if scores.n_subjects < MIN_SUBJECTS:
        return best
    if methods is None:
        methods = [*([best_rule(scores)] if scores.all_windows else []), *ADAPTATION_METHODS]
    for method in methods:
        gains = scores.by_method[method] - scores.by_method[best]  # (S, orders)
        if lower_bound(gains.mean(1)) > ROUNDING and gains.mean(0).min() > -ROUNDING:
            best = method
    return best


def delivered_method(scores: AdaptationScores, methods: Sequence[str] | None = None) -> str:
    """Return the method for a new subject; "none" unless the mean leave-one-subject-out gain is positive."""
    selected = select_without_each(scores, lambda others: best_method(others, methods))
    gains = [scores.gains(method)[subject] for subject, method in enumerate(selected)]
    return best_method(scores, methods) if gains and np.mean(gains) > ROUNDING else NO_ADAPTATION


def best_rule(scores: AdaptationScores) -> str:
    """Return the rule of the online ensemble with the best worst order; all windows at once are one more order."""
    if not scores.all_windows or not scores.n_subjects:
        return CenteringRule().name
    zero_shot = scores.by_method[NO_ADAPTATION]
    by_order = np.stack([scores.by_method[rule] for rule in RULES], 1) - zero_shot[:, None]  # (S, rules, orders)
    at_once = np.stack([scores.all_windows[rule] for rule in RULES], 1) - zero_shot[:, :1]  # (S, rules)
    gains = np.concatenate([by_order, at_once[..., None]], 2)
    return list(RULES)[int(gains.mean(0).min(1).argmax())]


def lower_bound(values: Floats) -> Floats:
    """Return the lower bound at LEVEL of the mean over subjects (S, ...) -> (...)."""
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    return np.asarray(values.mean(0) - stdtrit(len(values) - 1, LEVEL) * error)
