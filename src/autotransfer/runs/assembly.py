"""Trained states as a model that can be used: members stacked, with preprocessing fitted on what each trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..folds import Fold
from ..recordings import Recordings
from ..settings import Setting
from .saved_model import ModelCard


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
    )
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    training = [fold.train for fold in folds]
    fitted = setting.preprocessing.fit(recordings.X, recordings.subject, training, recordings.derived)
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    return card, tensors
