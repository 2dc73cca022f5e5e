"""Select how the model adapts to unlabeled windows, from replayed windows of held-out subjects.

The rules of the online ensemble (training/centering.py) are compared, each with and without re-estimated class means
(models/adaptation.py). Without an online ensemble, class means are the only method. The selection for a subject does
not use the subject's scores. Adaptation is enabled only if `is_helpful` accepts the gains (training/intervals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.adaptation import CLASS_MEANS, NO_ADAPTATION, Adaptation
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..models.online import softmax
from ..tasks import Metric
from ..training.centering import CENTERING_RULES
from ..training.intervals import MIN_SUBJECTS, is_helpful, lower_bound
from .labels import window_score

RULES = {
    rule.name: rule
    for class_means in (False, True)
    for rule in (replace(r, class_means=class_means) for r in CENTERING_RULES)
}

Floats = NDArray[np.float64]


class AdaptationScores(NamedTuple):
    """Scores of S subjects by adaptation method, in each order of their windows."""

    by_method: dict[str, Floats]  # (S, orders) by "none", "class means" or rule of the online ensemble
    all_windows: dict[str, Floats]  # (S,) by rule, with all windows at once; empty without an online ensemble

    @classmethod
    def stack(cls, subjects: Sequence[AdaptationScores]) -> AdaptationScores:
        """Concatenate the scores of several subjects."""
        fields = zip(*subjects, strict=True)
        return cls(*({name: np.concatenate([by_name[name] for by_name in t]) for name in t[0]} for t in fields))

    @property
    def n_subjects(self) -> int:
        return len(self.by_method[NO_ADAPTATION])

    def without(self, subject: int) -> AdaptationScores:
        return AdaptationScores(*({name: np.delete(s, subject, 0) for name, s in scores.items()} for scores in self))

    def gains(self, method: str) -> Floats:
        """Return the gains (S, orders) of a method over no adaptation."""
        return self.by_method[method] - self.by_method[NO_ADAPTATION]


def score_methods(
    ensemble: Ensemble, latents: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor, metric: Metric
) -> AdaptationScores:
    """Score one subject without adaptation and with class means that are re-estimated window by window.

    latents: (P, n, D) of P members, by order of windows and by stack; log_p: (orders, n, C), not normalized; y: classes
    (orders, n).
    """
    x = torch.stack([ensemble.project(z) for z in latents], 1)  # (n, orders, P, R)
    adapted = Adaptation(*ensemble.effects_and_weights).adapt(x, log_p.transpose(0, 1)).transpose(0, 1)
    scores = _scores(torch.stack([log_p, adapted]).numpy(), y.numpy(), metric)
    return AdaptationScores(dict(zip((NO_ADAPTATION, CLASS_MEANS), scores[:, None], strict=True)), {})


def score_rules(
    scores: AdaptationScores, model: Model, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]], metric: Metric,
) -> AdaptationScores:  # fmt: skip
    """Add the scores of every rule of the online ensemble to the scores of a subject.

    X (n, channels, times): raw windows of classes y (n,); log_p (n, C): log-probabilities of the delivered model.
    """
    online = model.online_ensemble(CENTERING_RULES)
    assert online is not None, "checked by the caller"
    windows, truth = online.predict_zero_shot(X), y[np.stack(orders)]  # (orders, n)
    in_orders = online.predict_in_orders(windows, orders)  # (2, L, orders, n, C)
    centered = online.predict_transductive(windows, softmax(log_p.numpy()))
    at_once = np.stack([centered, online.re_estimate_class_means(windows, centered)])  # (2, L, n, C)
    by_order = _scores(in_orders.reshape(-1, *in_orders.shape[2:]), truth, metric)
    with_all_windows = _scores(at_once.reshape(-1, 1, *at_once.shape[2:]), y[None], metric)
    by_rule = dict(zip(RULES, by_order[:, None], strict=True))
    return AdaptationScores(scores.by_method | by_rule, dict(zip(RULES, with_all_windows, strict=True)))


def add_unused_rules(scores: AdaptationScores) -> AdaptationScores:
    """Add every rule with the scores without adaptation, for a subject whose online ensemble centers no features."""
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
    """Return the method whose mean gain has the largest lower bound in its worst order of windows.

    methods: default: the rules of the online ensemble, or class means if there is no online ensemble
    """
    if methods is None:
        methods = list(RULES) if scores.all_windows else [CLASS_MEANS]
    return _largest({method: scores.gains(method) for method in methods})


def delivered_method(scores: AdaptationScores, methods: Sequence[str] | None = None) -> str:
    """Return the method for a new subject; "none" unless the methods selected without each subject are helpful."""
    selected = select_without_each(scores, lambda others: best_method(others, methods))
    gains = [scores.gains(method)[subject].mean() for subject, method in enumerate(selected)]
    return best_method(scores, methods) if is_helpful(np.array(gains)) else NO_ADAPTATION


def best_rule(scores: AdaptationScores) -> str:
    """Return the best rule of the online ensemble for windows in order (see `best_method`)."""
    return best_method(scores, list(RULES))


def best_transductive_rule(scores: AdaptationScores) -> str:
    """Return the rule of the online ensemble whose mean score for all windows at once has the largest lower bound."""
    zero_shot = scores.by_method[NO_ADAPTATION][:, 0]
    return _largest({rule: (scores.all_windows[rule] - zero_shot)[:, None] for rule in RULES})


def _largest(gains: Mapping[str, Floats]) -> str:
    """Return the method with the largest lower bound of its gains (S, orders), or the first if there is no bound."""
    if len(next(iter(gains.values()))) < MIN_SUBJECTS:
        return next(iter(gains))
    return max(gains, key=lambda method: float(lower_bound(gains[method]).min()))
