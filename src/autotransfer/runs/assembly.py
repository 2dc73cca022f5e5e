"""Trained states as a model that can be used: members stacked, with all that prediction needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ..folds import Fold
from ..model.encoders import kernel_of
from ..recordings import Recordings
from ..recordings.standardise import affine
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

    folds: what each state was trained on, whose training rows set the scale with standardise="channel".
    """
    card = ModelCard(
        name=recordings.name,
        kind=kind,
        members=len(states),
        setting=asdict(setting),
        n_times=recordings.n_times,
        channels=list(recordings.channels),
        sfreq=recordings.sfreq,
        classes=list(recordings.classes),
        kernel=kernel_of(setting, recordings.sfreq),
        subjects=recordings.n_subjects,
        scores=scores,
    )
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    if setting.standardise == "channel":
        X, subject = recordings.X, recordings.subject
        fitted = [affine(X, subject, "channel", rows=torch.as_tensor(fold.train)) for fold in folds]
        tensors["standardise.shift"] = torch.cat([shift for shift, _, _ in fitted])
        tensors["standardise.gain"] = torch.cat([gain for _, gain, _ in fitted])
    return card, tensors
