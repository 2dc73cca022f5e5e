"""Models for one subject, made from labeled or unlabeled windows of that subject (training/effects.py)."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from torch import Tensor

from ..errors import UserError
from ..models.adaptation import DESIGN_EFFECT, UNTRIED, Adaptation, may_adapt_class_means
from ..models.calibration import check_effects, check_single_subject, encode_labels
from ..models.model import Model
from ..models.overlap import describe_overlap, window_digests
from ..recordings import Raw
from ..recordings.labels import label_names
from ..training.effects import Effects


def calibrate_model(model: Model, raw: Raw, X: Tensor) -> tuple[Model, dict[Any, int]]:
    """Return the model calibrated with labeled windows X of one subject, and the number of windows of each class."""
    if raw.y is None:
        hint = raw.hints.get("y", "y must give one label per window")
        raise UserError(f"{raw.name!r} holds no y; to calibrate, {hint}")
    check_single_subject(raw.subject, len(X))
    classes = model.card.classes
    y = encode_labels(classes, raw.y, len(X), raw.classes)
    return model.calibrate_checked(X, y), {classes[index]: n for index, n in sorted(Counter(y.tolist()).items())}


def find_calibration_warnings(model: Model, raw: Raw, X: Tensor) -> list[str]:
    """Return warnings if windows X were used in training, or if labels were not tried on held-out subjects."""
    names = None if raw.subject is None else label_names(raw.subject, len(X), "subject", raw.subjects)
    lines = describe_overlap(model.card.seen, window_digests(X), names)
    if model.card.session_method == UNTRIED and model.card.calibrates_with is None:
        lines.append("labels were not tried on held-out subjects, so their benefit is unknown; a longer run tries them")
    return lines


def adapt_model(model: Model, X: Tensor) -> Model:
    """Return the model adapted to unlabeled windows (n, channels, times) of one subject.

    It is returned unchanged, with a warning, if adaptation did not raise held-out scores.
    """
    check_effects(model.candidates)
    if not may_adapt_class_means(model.card.transductive_method):
        warnings.warn("re-estimated class means did not raise held-out scores; the model is not changed", stacklevel=3)
        return model
    ensemble = model.ensemble
    latents, log_p = ensemble.predict_with_latents(X, ensemble.start_subject())
    adaptation = Adaptation(*ensemble.effects_and_weights)
    probability = adaptation.estimate_classes(ensemble.project(latents), log_p).float()

    def fit(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
        posterior = effects.posterior(effects.sum_windows(x, probability), design_effect=DESIGN_EFFECT)
        return posterior, *effects.correction(posterior)

    return model.correct(X, fit)
