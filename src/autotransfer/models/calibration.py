"""Rules of calibration: whether so many labels of one person count, how much, and which are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from ..recordings.labels import encode
from .candidate import Candidate
from .card import ModelCard

LABELS = (1, 2, 5, 10)  # of each class, with which held-out people are calibrated


def lost_with(card: ModelCard, labels: int) -> str | None:
    """Say why so many labels of each class are not used: held-out people did not gain by them; None: they did."""
    tried = _tried(labels)
    if card.calibrates is None or tried in card.calibrates:
        return None
    return f"held-out people did not gain by {tried} labeled window{'s' * (tried > 1)} of each class"


def trust_in(card: ModelCard, labels: int) -> tuple[float, float]:
    """Return the share of a correction by so many labels of each class that counts, and the sharpness."""
    share, sharpness = card.trust.get(str(_tried(labels)), (1.0, 1.0))
    return share, sharpness


def _tried(labels: int) -> int:
    """Return the largest number of labels, up to this one, with which held-out people were calibrated."""
    return max([number for number in LABELS if number <= labels], default=LABELS[0])


def labels_of(classes: Sequence[Any], y: object, n_windows: int, names: object = None) -> Tensor:
    """Return labels y (n,) as indices of a model's classes; unknown ones are refused. names: as in Recordings."""
    latents, labels = encode(y, n_windows, "y", names)
    known = {label: place for place, label in enumerate(classes)}
    for label in labels:
        if label not in known:
            raise UserError(unknown_class_words(label, known))
    return torch.tensor([known[label] for label in labels])[latents]


def known_and_unknown(
    classes: Sequence[Any], y: object, probability: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return indices of the classes y (N,), and their probabilities (N, C): 0 for classes that the model does not know.
    y must hold at least one that it knows. probability (N, classes): of the known ones."""
    latents, labels = encode(y, len(probability), "y")
    known = {value: place for place, value in enumerate(classes)}
    if labels and known.keys().isdisjoint(labels):
        raise UserError(unknown_class_words(labels[0], known))
    places = np.array([known.setdefault(value, len(known)) for value in labels], dtype=np.int64)[latents.numpy()]
    return places, np.hstack([probability, np.zeros((len(probability), len(known) - len(classes)))])


def unknown_class_words(label: object, known: Iterable[object]) -> str:
    return f"y has the class {shown(label)}; the model knows {shown(list(known))}"


def check_one_person(subject: object, n_windows: int) -> None:
    """Raise where windows are of several people, by `subject` (n,); None: nobody says whose they are."""
    if subject is not None and len(people := encode(subject, n_windows, "subject")[1]) > 1:
        raise UserError(
            f"the windows are of {len(people)} people ({shown(list(people))}); a model is made for one of them: give "
            "the windows of one person"
        )


def check_effects(candidates: Sequence[Candidate]) -> None:
    """Raise if a candidate does not know how people differ."""
    if any(candidate.effects is None for candidate in candidates):
        raise UserError("the model does not know how people differ (it was trained on one person); make it again")
