"""Models for one subject, made from labeled or unlabeled windows of that subject (training/effects.py)."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, shown
from ..models.calibration import check_effects, check_single_subject, encode_labels
from ..models.card import UNTRIED, ModelCard
from ..models.model import Model
from ..models.overlap import describe_training_overlap, window_digests
from ..recordings import Raw
from ..recordings.labels import label_names
from ..training.effects import Effects
from .adaptation import ADAPTATION_METHODS, NO_ADAPTATION


def calibrate_model(model: Model, raw: Raw, X: Tensor) -> tuple[Model, dict[Any, int]]:
    """Return the model calibrated with a reader's labeled windows X of one subject, and the number of each class."""
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
    lines = describe_training_overlap(model.card.seen, window_digests(X), names)
    if model.card.adaptation_method == UNTRIED and model.card.calibrates_with is None:
        lines.append("labels were not tried on held-out subjects, so their benefit is unknown; a longer run tries them")
    return lines


def adapt_model(model: Model, X: Tensor) -> Model:
    """Return the model adapted to unlabeled windows (n, channels, times) of one subject.

    It is returned unchanged, with a warning, if adaptation did not raise held-out scores. The unadapted model predicts
    the classes once, because iterating amplifies errors until one class is left.
    """
    check_effects(model.candidates)
    name = selected_adaptation(model.card)
    if name is None:
        warnings.warn("adaptation did not raise held-out scores; the model is returned unchanged", stacklevel=3)
        return model
    probability = torch.from_numpy(model.predict_checked(X)).float()

    def learn(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
        """Learn from all windows, in any order."""
        method = ADAPTATION_METHODS[name](effects)
        state = method.initial_state()
        for latents, p in zip(x.transpose(0, 1), probability, strict=True):
            state = method.update(state, latents, p)
        return method.posterior(state), *method.correction(state)

    return model.correct(X, learn)


def selected_adaptation(card: ModelCard) -> str | None:
    """Return the adaptation method of a model, "shift" if none was tried, or None if none raised held-out scores."""
    method = card.adaptation_method
    if method is None or method == UNTRIED:
        return "shift"
    if method not in (*ADAPTATION_METHODS, NO_ADAPTATION):
        methods = ", ".join(ADAPTATION_METHODS)
        raise UserError(
            f"the adaptation method of the model is {shown(method)}, not one of {methods}; create the model again"
        )
    return None if method == NO_ADAPTATION else method
