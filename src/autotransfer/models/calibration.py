"""Rules of calibration: the numbers of labels that are used, their weight, and checks of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from ..recordings.labels import encode
from ..words import count
from .candidate import Candidate
from .card import ModelCard

LABELS = (1, 2, 5, 10)  # labels per class with which calibration is evaluated on held-out subjects


def explain_unused_labels(card: ModelCard, labels: int) -> str | None:
    """Return why this number of labels per class is not used; None if it raised the scores of held-out subjects."""
    evaluated = _find_evaluated_count(labels)
    if card.calibrates_with is None or evaluated in card.calibrates_with:
        return None
    return f"{count(evaluated, 'labeled window')} per class did not raise the scores of held-out subjects"


def find_trust(card: ModelCard, labels: int) -> tuple[float, float]:
    """Return share and sharpness, as in search/labels.py, for a number of labels per class."""
    share, sharpness = card.trust.get(str(_find_evaluated_count(labels)), (1.0, 1.0))
    return share, sharpness


def _find_evaluated_count(labels: int) -> int:
    """Return the largest evaluated number of labels that is at most `labels`."""
    return max([number for number in LABELS if number <= labels], default=LABELS[0])


def encode_labels(classes: Sequence[Any], y: object, n_windows: int, names: object = None) -> Tensor:
    """Return labels y (n,) as indices of a model's classes; refuse other classes. names: as in `Recordings`."""
    indices, labels = encode(y, n_windows, "y", names)
    for label in labels:
        if label not in classes:
            raise _make_class_error(label, classes)
    return torch.tensor([classes.index(label) for label in labels])[indices]


def encode_with_unknown_classes(
    classes: Sequence[Any], y: object, probability: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return class indices of y (N,), and probabilities with a column of zeros for each class that is new in y."""
    indices, labels = encode(y, len(probability), "y")
    known = {value: index for index, value in enumerate(classes)}
    if labels and known.keys().isdisjoint(labels):
        raise _make_class_error(labels[0], classes)
    class_indices = np.array([known.setdefault(value, len(known)) for value in labels], dtype=np.int64)
    return class_indices[indices.numpy()], np.hstack(
        [probability, np.zeros((len(probability), len(known) - len(classes)))]
    )


def _make_class_error(label: object, classes: Sequence[object]) -> UserError:
    return UserError(f"y has the class {shown(label)}; choose from {shown(list(classes))}")


def check_single_subject(subject: object, n_windows: int) -> None:
    """Raise if subject ids (n,) are given and name several subjects."""
    if subject is not None and len(subjects := encode(subject, n_windows, "subject")[1]) > 1:
        names = shown(list(subjects))
        raise UserError(f"the windows belong to {len(subjects)} subjects ({names}); give the windows of one subject")


def check_effects(candidates: Sequence[Candidate]) -> None:
    """Raise if a candidate has no subject effects."""
    if any(candidate.effects is None for candidate in candidates):
        raise UserError(
            "the model has no subject effects, so it cannot be calibrated or adapted; train it on at least two subjects"
        )
