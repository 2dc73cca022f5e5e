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
from ..recordings.people import People, Prior, measure
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
    priors: Priors | None = None,
) -> tuple[ModelCard, dict[str, Tensor]]:
    """Card and tensors of the ensemble of `states` (encoder and classifier, without a member axis).

    folds: what each state was trained on, whose training rows give the prior for new people: the scale with
    standardise="channel" or "running", the covariance with align="running".
    priors: those of these recordings, where many models are assembled.
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
    tensors |= (priors or Priors(recordings)).tensors(setting, folds)
    return card, tensors


class Priors:
    """What the training subjects of folds say of a new person, each computed once."""

    def __init__(self, recordings: Recordings) -> None:
        self.recordings = recordings
        self._people: dict[tuple[str, str], People] = {}
        self._known: dict[tuple[str, str, str], Prior] = {}

    def tensors(self, setting: Setting, folds: Sequence[Fold]) -> dict[str, Tensor]:
        """By the names that a saved model has for them, (folds, ...); nothing where nobody asks."""
        if not {setting.standardise, setting.align} & {"channel", "running"}:
            return {}
        found = [self._of(setting, fold) for fold in folds]
        parts = dict(zip(PRIOR, zip(*found, strict=True), strict=True))
        own = {name: [tensor for tensor in part if tensor is not None] for name, part in parts.items()}
        return {name: torch.cat(part) for name, part in own.items() if part}

    def _of(self, setting: Setting, fold: Fold) -> Prior:
        kind, align = setting.standardise, "running" if setting.align == "running" else "none"
        key = (kind, align, fold.trajectory)
        if key not in self._known:
            rows = torch.as_tensor(fold.train)
            self._known[key] = self._measured(kind, align, rows).prior(rows)
        return self._known[key]

    def _measured(self, kind: str, align: str, rows: Tensor) -> People:
        X, subject = self.recordings.X, self.recordings.subject
        if kind == "channel":  # statistics of the training rows
            return measure(X, subject, kind, align, rows=rows)
        if (kind, align) not in self._people:
            self._people[kind, align] = measure(X, subject, kind, align)
        return self._people[kind, align]
