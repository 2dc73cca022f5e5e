"""A model for one person, corrected by windows of theirs, with labels or without.

What is known of a person (training/effects.py) corrects the log-probabilities linearly in the code, so a calibrated
model is as quick as before, and saved and exported in the same form.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, shown
from ..models.card import UNTRIED
from ..models.ensemble import Correction, Ensemble, refuse_parts
from ..models.mixture import Mixture, Model
from ..models.saved_model import SavedModel
from ..models.seen import calibration_seen, trained_on_words, window_digests
from ..recordings import Raw
from ..recordings.labels import encode, named
from ..recordings.messages import show
from ..training.effects import Effects
from .adaptation import ADAPTATION_METHODS, NO_ADAPTATION

LABELS = (1, 2, 5, 10)  # of each class, with which held-out people are calibrated


def calibrate_model(model: Model, X: Tensor, y: Tensor) -> Model:
    """Return the model for the subject of raw windows (n, channels, times) of classes (n,).

    If held-out subjects lost by so few labels, the model is returned unchanged, with a warning.
    """
    check_effects(model)
    counts = torch.bincount(y, minlength=len(model.card.classes))
    least = int(counts[counts > 0].min())
    if (reason := lost_with(model, least)) is not None:
        warnings.warn(f"{reason}: the model stays as it is", stacklevel=3)
        return model
    weight = torch.nn.functional.one_hot(y, len(model.card.classes)).double()
    share, sharpness = trust_in(model, least)

    def labelled(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
        posterior = effects.given(effects.evidence(x, weight))
        return posterior, *effects.correction(posterior)

    corrected = _for_person(model, X, labelled, share)
    return corrected if sharpness == 1 else _sharpened(corrected, sharpness)


def trust_in(model: Model, labels: int) -> tuple[float, float]:
    """The share of the correction by so many labels of each class that counts, and the sharpness of predictions."""
    if not isinstance(model, Mixture):
        return 1.0, 1.0
    share, sharpness = model.card.trust.get(str(_tried(labels)), (1.0, 1.0))
    return share, sharpness


def _tried(labels: int) -> int:
    """The largest number of labels, up to this one, with which held-out people were calibrated."""
    return max([number for number in LABELS if number <= labels], default=LABELS[0])


def _sharpened(model: Model, sharpness: float) -> Model:
    """With all exponents times this. Sharpness with further labels is relative to the model, and divided by it."""
    assert isinstance(model, Mixture), "nothing else is played back"
    sharper = copy.copy(model)
    sharper.exponents = [sharpness * exponent for exponent in model.exponents]
    trust = {number: [share, sharp / sharpness] for number, (share, sharp) in model.card.trust.items()}
    sharper.card = replace(model.card, exponents=sharper.exponents, trust=trust)
    return sharper


def labels_of(classes: Sequence[Any], y: object, n_windows: int, names: object = None) -> Tensor:
    """Labels y (n,) as indices of a model's classes; unknown ones are refused. names: as in Recordings."""
    codes, labels = encode(y, n_windows, "y", names)
    known = {label: place for place, label in enumerate(classes)}
    for label in labels:
        if label not in known:
            raise UserError(unknown_class_words(label, known))
    return torch.tensor([known[label] for label in labels])[codes]


def unknown_class_words(label: object, known: Iterable[object]) -> str:
    return f"y has the class {show(label)}; the model knows {show(list(known))}"


def check_one_person(subject: object, n_windows: int) -> None:
    """Raise where windows are of several people, by `subject` (n,); None: nobody says whose they are."""
    if subject is not None and len(people := encode(subject, n_windows, "subject")[1]) > 1:
        raise UserError(
            f"the windows are of {len(people)} people ({show(list(people))}); a model is made for one of them: give "
            "the windows of one person"
        )


def calibrated_with(model: Model, raw: Raw, X: Tensor) -> tuple[Model, dict[Any, int]]:
    """The model for the one person whose labelled windows a reader found, and how many there are of each class.
    X: the windows as `model.check` arranges them."""
    if raw.y is None:
        hint = raw.hints.get("y", "y must give one label per window")
        raise UserError(f"{raw.name!r} holds no y; to calibrate, {hint}")
    check_one_person(raw.subject, len(X))
    classes = model.card.classes
    y = labels_of(classes, raw.y, len(X), raw.classes)
    for_person = calibrate_model(model, X, y)
    if for_person is not model:
        for_person.card = replace(for_person.card, seen=calibration_seen(for_person.card.seen, X))
    return for_person, {classes[place]: n for place, n in sorted(Counter(y.tolist()).items())}


def training_words(model: Model, raw: Raw, X: Tensor) -> list[str]:
    """Return a warning if the model was trained on windows of a reader; X: the same, as `model.check` gave them."""
    whose = None if raw.subject is None else named(raw.subject, len(X), "subject", raw.subjects)
    return trained_on_words(model.card.seen, window_digests(X), whose)


def adapt_model(model: Model, X: Tensor) -> Model:
    """The model for the person of raw windows (n, channels, times) without labels. Where held-out people lost by
    adaptation the model is returned as it is, with a warning.

    The model as it is guesses the classes, once: a corrected model that guesses again repeats its mistakes, and round
    after round all windows may end in one class.
    """
    check_effects(model)
    name = delivered_adaptation(model)
    if name is None:
        warnings.warn("held-out people did not gain by adaptation: the model stays as it is", stacklevel=3)
        return model
    guess = torch.from_numpy(model.predict_checked(X)).float()
    total = sum(model.exponents) if isinstance(model, Mixture) else 1.0

    def followed(effects: Effects, x: Tensor) -> tuple[Effects, Tensor, Tensor]:
        """All windows, in any order."""
        method = ADAPTATION_METHODS[name](effects, total)
        known = method.begin()
        for code, p in zip(x.transpose(0, 1), guess, strict=True):
            known = method.count(known, code, p)
        return method.posterior(known), *method.correction(known)

    return _for_person(model, X, followed)


def delivered_adaptation(model: Model) -> str | None:
    """The adaptation method, one of ADAPTATION_METHODS; where none was tried, the one that helps most often. None:
    held-out people did not gain by any."""
    method = model.card.follows
    if method is None or method == UNTRIED:
        return "shift"
    if method not in (*ADAPTATION_METHODS, NO_ADAPTATION):
        methods = ", ".join(ADAPTATION_METHODS)
        raise UserError(f"the model follows people by {shown(method)}, which is none of {methods}; make it again")
    return None if method == NO_ADAPTATION else method


def lost_with(model: Model, labels: int) -> str | None:
    """Why so many labels of each class are not used: held-out people did not gain by them; None: they did."""
    helped = model.card.calibrates
    if helped is None:
        return None
    tried = _tried(labels)
    if tried in helped:
        return None
    return f"held-out people did not gain by {tried} labelled window{'s' * (tried > 1)} of each class"


def untried_words(model: Model) -> str | None:
    """Where the model comes from a run that could not try labels on held-out people."""
    if model.card.follows != UNTRIED or model.card.calibrates is not None:
        return None
    return "labels were not tried on held-out people: nobody knows whether they help"


def check_effects(model: Model) -> None:
    """Raise where the model does not know how people differ."""
    refuse_parts(model.parts, _check_effects)


def _check_effects(part: Ensemble) -> None:
    if part.effects is None:
        raise UserError(
            "the model does not know how people differ (it was saved by an earlier version, or trained on one person)"
            "; make it again"
        )


# Effects of a part and projected codes -> the posterior, weight and bias of a correction
Learn = Callable[[Effects, Tensor], tuple[Effects, Tensor, Tensor]]


def _for_person(model: Model, X: Tensor, learn: Learn, share: float = 1.0) -> Model:
    """share: of the correction that counts."""
    if not isinstance(model, Mixture):
        return _part_for(model, X, learn, share)
    mixture = copy.copy(model)
    mixture.parts = [_part_for(part, X, learn, share) for part in model.parts]
    return mixture


def _part_for(part: SavedModel, X: Tensor, learn: Learn, share: float) -> SavedModel:
    assert part.effects is not None, "checked"
    effects, before = part.effects, part.correction
    posterior, weight, bias = learn(effects, effects.project(part.latents(X)))
    correction = Correction(share * (effects.projection @ weight), share * bias)
    if before is not None:
        correction = Correction(correction.weight + before.weight, correction.bias + before.bias)
    part = copy.copy(part)
    part.correction, part.effects = correction, posterior
    return part
