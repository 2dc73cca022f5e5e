"""Models built from trained states: members are stacked, and preprocessing is fitted on their training windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..folds import Fold
from ..model.encoders import Encoders
from ..preprocessing.center import Center
from ..recordings import Recordings
from ..recordings.statistics import typical_scale
from ..settings import Setting
from ..tasks import task_of
from ..tasks.classification import CLASSIFICATION
from ..training.centering import Centering, fit_centering, stack_centering
from ..training.effects import Effects, fit_effects, stack_effects
from ..training.representation import find_representation
from .candidate import Candidate, size_of_candidate
from .card import CandidateCard, ModelCard, OnlineCard
from .ensemble import Ensemble
from .model import Model

SAMPLED_WINDOWS = 2000  # windows from which effects and centers are estimated
LEAST_PER_CELL = 4  # smallest number of sampled windows of a subject and class, unless there are fewer
CandidateCache = dict[Setting, Candidate]


class CandidateFits(NamedTuple):
    """Fits of a candidate, and its weight in the ensemble."""

    setting: Setting
    states: Sequence[dict[str, Tensor]]  # encoder and classifier of each member, without a member axis
    folds: Sequence[Fold]  # fold of each state; statistics of its training windows are part of the model
    weight: float = 1.0


def build_model(
    recordings: Recordings, fits: Sequence[CandidateFits], *, scores: dict[str, Any],
    encoders: Encoders | None = None, target: str = CLASSIFICATION, cache: CandidateCache | None = None,
) -> Model:  # fmt: skip
    """Build a model from the fits of its candidates.

    Candidates with the weight 0 are left out, unless all weights are 0. target: the value of --target. cache:
    candidates that were built from these fits before; new candidates are added.
    """
    used = [fit for fit in fits if fit.weight != 0] or list(fits)
    candidates = [_build_candidate(recordings, fit, encoders, cache) for fit in used]
    is_numeric = task_of(target).is_numeric
    card = ModelCard(
        name=recordings.name,
        target=target,
        n_times=recordings.n_times,
        signal=recordings.signal,
        classes=[] if is_numeric else list(recordings.classes),
        constant=float(recordings.truth.mean()) if is_numeric else 0.0,
        subjects=len(recordings.people),
        scores=scores,
        scale=recordings.compute_once("scale", lambda: typical_scale(recordings.X)),
        weights=[float(fit.weight) for fit in used],
        candidates=[candidate.card for candidate in candidates],
    )
    return Model(card, candidates)


def add_online_ensemble(
    recordings: Recordings,
    model: Model,
    shared_weights: Sequence[float],  # weights of the model's candidates in the online ensemble
    fits: Sequence[CandidateFits],  # fits of its additional candidates
    encoders: Encoders | None = None,
    cache: CandidateCache | None = None,
) -> Model:
    """Return the model with an online ensemble, which starts at the center of the training subjects."""
    candidates = []
    for fit in fits:
        if fit.setting.adaptation == "online":
            fit = fit._replace(setting=fit.setting.replace(center="train"))
        candidates.append(_build_candidate(recordings, fit, encoders, cache))
    card = OnlineCard(
        weights=[*map(float, shared_weights), *(fit.weight for fit in fits)],
        candidates=[candidate.card for candidate in candidates],
    )
    return Model(replace(model.card, online=card), model.candidates, candidates)


def _build_candidate(
    recordings: Recordings, fit: CandidateFits, encoders: Encoders | None, cache: CandidateCache | None
) -> Candidate:
    """Build a candidate, unless it is cached, with the subject effects and centers that classification needs."""
    setting, states, folds, _ = fit
    if cache is not None and setting in cache:
        return cache[setting]
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    training, ready = [fold.train for fold in folds], find_representation(recordings, setting.preprocessing)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, training, recordings.derived, None if ready is None else ready[1], ready
    )
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    size = size_of_candidate(setting, recordings, tensors["classifier.bias"].shape[1])
    candidate = Candidate.restore(CandidateCard(setting.to_dict(), len(states)), size, tensors, encoders)
    if recordings.targets is None:  # subject effects and centers are for classification only
        candidate = replace(candidate, effects=fit_candidate_effects(candidate, recordings, folds))
        if any(isinstance(step, Center) and step.scope == "train" for step in setting.preprocessing.transforms):
            candidate = replace(candidate, centering=fit_candidate_centering(candidate, recordings, folds))
    if cache is not None:
        cache[setting] = candidate
    return candidate


@torch.no_grad()
def fit_candidate_centering(candidate: Candidate, recordings: Recordings, folds: Sequence[Fold]) -> Centering:
    """Fit the centers of the training subjects' logits for each member."""
    rows, members = _sample_rows(recordings), candidate.members
    logits = members.classifier(_compute_latents(candidate, recordings, rows))  # (members, n, C)
    zero = torch.zeros(1, candidate.size.channels, candidate.size.times)  # mean of a subject after centering
    reference = members.classifier(members.net(zero))[:, 0]
    y, subjects = recordings.y[rows], recordings.subject[rows]
    centerings = []
    for member_logits, member_reference, fold in zip(logits, reference, folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        centerings.append(fit_centering(member_logits[used], member_reference, y[used], subjects[used]))
    return stack_centering(centerings)


def fit_candidate_effects(candidate: Candidate, recordings: Recordings, folds: Sequence[Fold]) -> Effects | None:
    """Fit subject effects in the latents of each member; return None if a member has fewer than two subjects."""
    rows = _sample_rows(recordings)
    y, subjects = recordings.y[rows], recordings.subject[rows]
    effects: list[Effects] = []
    for latents, fold in zip(_compute_latents(candidate, recordings, rows, subjects), folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        if len(subjects[used].unique()) < 2 or not torch.isfinite(latents[used]).all():  # type: ignore[no-untyped-call]  # torch's
            return None
        try:
            effects.append(fit_effects(latents[used], y[used], subjects[used], recordings.n_classes))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # scales of latents differ too much
            return None
    return stack_effects(effects)


def _compute_latents(
    candidate: Candidate, recordings: Recordings, rows: Tensor, subject: Tensor | None = None
) -> Tensor:
    """Return latents (members, n, D) of rows of the recordings, from a precomputed representation if there is one."""
    ready = find_representation(recordings, candidate.setting.preprocessing)
    start, X = (0, recordings.X) if ready is None else ready
    (latents,) = Ensemble([candidate], [1.0]).latents(X[rows], subject, start)
    return latents


def _sample_rows(recordings: Recordings) -> Tensor:
    """Return about SAMPLED_WINDOWS rows (n,) in order, evenly spaced within each subject and class."""

    def select() -> Tensor:
        cells = (recordings.subject * recordings.n_classes + recordings.y).numpy()
        most = max(LEAST_PER_CELL, SAMPLED_WINDOWS // len(np.unique(cells)))
        selected = []
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            selected.append(rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))])
        return torch.from_numpy(np.sort(np.concatenate(selected)))

    return recordings.compute_once("sampled rows", select)
