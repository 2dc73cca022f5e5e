"""Select how the model adapts to unlabeled windows, from replayed windows of held-out subjects.

Three methods are compared: re-estimated class means (models/adaptation.py), centering of features by the online
ensemble (models/online.py), and both. Models without an online ensemble only re-estimate class means. The selection for
a subject does not use the subject's scores. A method is enabled only if its gains are helpful (training/intervals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.adaptation import CENTERED_CLASS_MEANS, CENTERING, CLASS_MEANS, NO_ADAPTATION, Adaptation
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..models.online import softmax
from ..tasks import Metric
from ..training.intervals import MIN_SUBJECTS, is_helpful, lower_bound
from .labels import window_score

Floats = NDArray[np.float64]
Gains = dict[str, Floats]  # (S,) by method


class AdaptationScores(NamedTuple):
    """Scores of S subjects by adaptation method, in each order of their windows and with all windows at once."""

    in_order: dict[str, Floats]  # (S, orders); the method "none" is no adaptation
    all_windows: dict[str, Floats]  # (S,); empty if transforms of the model adapt to the subject

    @classmethod
    def stack(cls, subjects: Sequence[AdaptationScores]) -> AdaptationScores:
        """Concatenate the scores of several subjects.

        A subject without an online ensemble gets the scores without centering as scores with centering.
        """
        methods = {method for subject in subjects for method in subject.in_order}
        subjects = [subject if set(subject.in_order) == methods else subject._add_centering() for subject in subjects]
        tables = zip(*subjects, strict=True)
        return cls(*({m: np.concatenate([by_method[m] for by_method in t]) for m in t[0]} for t in tables))

    def _add_centering(self) -> AdaptationScores:
        """Add the methods of the online ensemble with the scores of the methods without centering."""
        without = {CENTERING: NO_ADAPTATION, CENTERED_CLASS_MEANS: CLASS_MEANS}
        in_order = self.in_order | {method: self.in_order[other] for method, other in without.items()}
        zero_shot = {NO_ADAPTATION: in_order[NO_ADAPTATION][:, 0]}
        at_once = {method: (zero_shot | self.all_windows)[other] for method, other in without.items()}
        return AdaptationScores(in_order, self.all_windows | at_once if self.all_windows else {})

    @property
    def online_gains(self) -> Gains:
        """Return the gains of online adaptation, averaged over orders of windows."""
        zero_shot = self.in_order[NO_ADAPTATION]
        return {m: (scores - zero_shot).mean(1) for m, scores in self.in_order.items() if m != NO_ADAPTATION}

    @property
    def transductive_gains(self) -> Gains:
        """Return the gains with all windows of a subject at once."""
        return {m: scores - self.in_order[NO_ADAPTATION][:, 0] for m, scores in self.all_windows.items()}


def score_class_means(
    ensemble: Ensemble, latents: Sequence[Sequence[Tensor]], log_p: Tensor, y: Tensor, metric: Metric
) -> AdaptationScores:
    """Score one subject without adaptation and with re-estimated class means.

    latents: (P, n, D) of P members, by order of windows and by stack; log_p: (orders, n, C), not normalized; y: classes
    (orders, n). The first order is the recorded one.
    """
    x = torch.stack([ensemble.project(z) for z in latents], 1)  # (n, orders, P, R)
    effects = ensemble.effects_and_weights
    adapted = Adaptation(*effects).adapt(x, log_p.transpose(0, 1)).transpose(0, 1)
    scores = _score_methods(torch.stack([log_p, adapted]).numpy(), y.numpy(), metric)
    all_windows = {}
    if ensemble.adaptation == "none":
        at_once = Adaptation(*effects).adapt_to_all(x[:, 0], log_p[0])
        all_windows = {CLASS_MEANS: _score_methods(at_once[None, None].numpy(), y[:1].numpy(), metric)[0]}
    return AdaptationScores(dict(zip((NO_ADAPTATION, CLASS_MEANS), scores[:, None], strict=True)), all_windows)


def score_centering(
    scores: AdaptationScores, model: Model, X: Tensor, log_p: Tensor, y: NDArray[np.int64],
    orders: Sequence[NDArray[np.int64]], metric: Metric,
) -> AdaptationScores:  # fmt: skip
    """Add the scores of the methods of the online ensemble to the scores of a subject.

    X (n, channels, times): raw windows of classes y (n,); log_p (n, C): log-probabilities of the delivered model.
    """
    online, methods = model.online_ensemble(CENTERED_CLASS_MEANS), (CENTERING, CENTERED_CLASS_MEANS)
    assert online is not None, "checked by the caller"
    windows, truth = online.predict_zero_shot(X), y[np.stack(orders)]  # (orders, n)
    in_orders = _score_methods(online.predict_in_orders(windows, orders), truth, metric)  # (2, orders)
    centered = online.predict_transductive(windows, softmax(log_p.numpy()))
    at_once = np.stack([centered, online.re_estimate_class_means(windows, centered)])  # (2, n, C)
    all_windows = _score_methods(at_once[:, None], y[None], metric)  # (2, 1)
    return AdaptationScores(
        scores.in_order | dict(zip(methods, in_orders[:, None], strict=True)),
        scores.all_windows | dict(zip(methods, all_windows, strict=True)),
    )


def _score_methods(log_p: NDArray[np.floating], y: NDArray[np.int64], metric: Metric) -> Floats:
    """Return scores (methods, orders) of log-probabilities (methods, orders, n, C) of classes (orders, n)."""
    return np.array(
        [[window_score(metric, truth, p) for p, truth in zip(by_order, y, strict=True)] for by_order in log_p]
    )


def select_without_each(gains: Gains, select: Callable[[Gains], str]) -> list[str]:
    """Return the method that is selected for each subject from the gains of the other subjects."""
    n_subjects = len(next(iter(gains.values())))
    return [select({method: np.delete(g, s) for method, g in gains.items()}) for s in range(n_subjects)]


def select_method(gains: Gains) -> str:
    """Return the method with the largest lower bound of its mean gain, or the first if there are too few subjects."""
    if len(next(iter(gains.values()))) < MIN_SUBJECTS:
        return next(iter(gains))
    return max(gains, key=lambda method: float(lower_bound(gains[method])))


def select_helpful_method(gains: Gains) -> str:
    """Return the method for a new subject; "none" unless selecting a method without each subject is helpful."""
    selected = select_without_each(gains, select_method)
    nested = np.array([gains[method][subject] for subject, method in enumerate(selected)])
    return select_method(gains) if is_helpful(nested) else NO_ADAPTATION
