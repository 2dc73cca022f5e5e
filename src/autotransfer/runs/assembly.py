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
from ..recordings.people import measure
from ..settings import Setting
from .saved_model import PRIOR, ModelCard


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

    folds: what each state was trained on, whose training rows give the prior for new people: the scale with
    standardise="channel" or "running", the covariance with align="running".
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
    tensors |= _prior_tensors(recordings, setting, folds)
    return card, tensors


def _prior_tensors(recordings: Recordings, setting: Setting, folds: Sequence[Fold]) -> dict[str, Tensor]:
    """What the training subjects of each member say of a new person, (members, ...); nothing where nobody asks."""
    if not {setting.standardise, setting.align} & {"channel", "running"}:
        return {}
    X, subject = recordings.X, recordings.subject
    align = "running" if setting.align == "running" else "none"
    of_all = None if setting.standardise == "channel" else measure(X, subject, setting.standardise, align)
    priors = []
    for fold in folds:
        rows = torch.as_tensor(fold.train)
        people = of_all or measure(X, subject, setting.standardise, align, rows=rows)
        priors.append(people.prior(rows))
    tensors = {}
    for name, part in zip(PRIOR, zip(*priors, strict=True), strict=True):
        own = [tensor for tensor in part if tensor is not None]
        if own:
            tensors[name] = torch.cat(own)
    return tensors
