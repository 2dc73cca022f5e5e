"""A model for one person, from windows of theirs, with labels or without.

What is known of a person (training/effects.py) corrects the log-probabilities linearly in the code, so a calibrated
model is as quick as before, and saved and exported in the same form.
"""

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


def calibrated_with(model: Model, raw: Raw, X: Tensor) -> tuple[Model, dict[Any, int]]:
    """Return the model for the one person whose labeled windows a reader found, and how many there are of each class.
    X: the windows as `model.check` arranges them."""
    if raw.y is None:
        hint = raw.hints.get("y", "y must give one label per window")
        raise UserError(f"{raw.name!r} holds no y; to calibrate, {hint}")
    check_single_subject(raw.subject, len(X))
    classes = model.card.classes
    y = encode_labels(classes, raw.y, len(X), raw.classes)
    return model.calibrate_checked(X, y), {classes[place]: n for place, n in sorted(Counter(y.tolist()).items())}


def calibration_words(model: Model, raw: Raw, X: Tensor) -> list[str]:
    """Return warnings if the model was trained on windows of a reader, or if its run could not try labels on held-out
    people. X: the windows, as `model.check` gave them."""
    whose = None if raw.subject is None else label_names(raw.subject, len(X), "subject", raw.subjects)
    words = describe_training_overlap(model.card.seen, window_digests(X), whose)
    if model.card.adaptation_method == UNTRIED and model.card.calibrates_with is None:
        words.append("labels were not tried on held-out people: nobody knows whether they help")
    return words


def adapt_model(model: Model, X: Tensor) -> Model:
    """Return the model for the person of raw windows (n, channels, times) without labels. Where held-out people lost by
    adaptation the model is returned as it is, with a warning.

    The model as it is guesses the classes, once: a corrected model that guesses again repeats its mistakes, and round
    after round all windows may end in one class.
    """
    check_effects(model.candidates)
    name = delivered_adaptation(model.card)
    if name is None:
        warnings.warn("held-out people did not gain by adaptation: the model stays as it is", stacklevel=3)
        return model
    guess = torch.from_numpy(model.predict_checked(X)).float()
    total = sum(model.card.weights)

    def follow(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
        """Learn from all windows, in any order."""
        method = ADAPTATION_METHODS[name](effects, total)
        known = method.begin()
        for code, p in zip(x.transpose(0, 1), guess, strict=True):
            known = method.count(known, code, p)
        return method.posterior(known), *method.correction(known)

    return model.correct(X, follow)


def delivered_adaptation(card: ModelCard) -> str | None:
    """Return the adaptation method, one of ADAPTATION_METHODS; where none was tried, the one that helps most often.
    None: held-out people did not gain by any."""
    method = card.adaptation_method
    if method is None or method == UNTRIED:
        return "shift"
    if method not in (*ADAPTATION_METHODS, NO_ADAPTATION):
        methods = ", ".join(ADAPTATION_METHODS)
        raise UserError(f"the model follows people by {shown(method)}, which is none of {methods}; make it again")
    return None if method == NO_ADAPTATION else method
