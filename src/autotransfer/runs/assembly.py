"""Trained states as a model that can be used: members stacked, with preprocessing fitted on what each trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..folds import Fold
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..settings import Setting
from .mixture import Mixture
from .saved_model import ModelCard, SavedModel


class Part(NamedTuple):
    """A candidate that a mixture is made of, as `assemble` takes it, and its exponent."""

    setting: Setting
    states: Sequence[dict[str, Tensor]]
    folds: Sequence[Fold]
    exponent: float


def assemble(
    recordings: Recordings,
    setting: Setting,
    states: Sequence[dict[str, Tensor]],
    folds: Sequence[Fold],
    *,
    kind: str,
    scores: dict[str, Any],
) -> tuple[ModelCard, dict[str, Tensor]]:
    """Card and tensors of the ensemble of `states` (encoder and classifier, without a member axis).

    folds: what each state was trained on; statistics of their training rows are part of the model.
    """
    card = ModelCard(
        name=recordings.name,
        kind=kind,
        members=len(states),
        setting=setting.to_dict(),
        n_times=recordings.n_times,
        channels=list(recordings.channels),
        sfreq=recordings.sfreq,
        classes=list(recordings.classes),
        subjects=recordings.n_subjects,
        scores=scores,
        filter=None if recordings.filter is None else recordings.filter.as_dict(),
    )
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    training = [fold.train for fold in folds]
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, training, recordings.derived, ring=recordings.ring
    )
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    return card, tensors


def assemble_mixture(
    recordings: Recordings,
    parts: Sequence[Part],
    *,
    scores: dict[str, Any],
    kind: str = "ensemble",
    encoders: Encoders | None = None,
) -> Mixture:
    """The mixture of these parts, ready to be used or saved.

    kind: of each part. Parts with the exponent 0 are left out, unless all are: they would be computed for nothing.
    """
    given = [Part(*part) for part in parts]
    used = [part for part in given if part.exponent != 0] or given
    models = [
        SavedModel(*assemble(recordings, setting, states, folds, kind=kind, scores={}), encoders)
        for setting, states, folds, _ in used
    ]
    return Mixture(models, [part.exponent for part in used], scores)
