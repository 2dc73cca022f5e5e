"""Trained states as a model that can be used: members stacked, with preprocessing fitted on what each trained on."""

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
from ..recordings.signals import typical_scale
from ..settings import Setting
from ..tasks import task_of
from ..tasks.classification import CLASSIFICATION
from ..training.centering import Centering, CenteringRule, fit_centering, stack_centering
from ..training.effects import Effects, fit_effects, stack_effects
from ..training.representation import find_representation
from .candidate import Candidate, size_of_candidate
from .card import CandidateCard, ModelCard, OnlineCard
from .ensemble import Ensemble
from .model import Model

ENOUGH = 2000  # windows that effects are estimated from
LEAST_OF_EACH = 4  # of a person and class
MadeCandidates = dict[Setting, Candidate]


class Part(NamedTuple):
    """Trained states of a candidate, and its weight.

    states: encoder and classifier of each member, without a member axis. folds: what each state was trained on;
    statistics of their training rows are part of the model.
    """

    setting: Setting
    states: Sequence[dict[str, Tensor]]
    folds: Sequence[Fold]
    weight: float = 1.0


def assemble(
    recordings: Recordings, parts: Sequence[Part], *, scores: dict[str, Any], encoders: Encoders | None = None,
    target: str = CLASSIFICATION, made: MadeCandidates | None = None,
) -> Model:  # fmt: skip
    """Make the model of these parts, ready to be used or saved. Parts with the weight 0 are left out, unless all are:
    they would be computed for nothing. target: what is predicted, as --target names it. made: candidates by setting
    that were made of the same fits before; those of this call are added."""
    used = [part for part in parts if part.weight != 0] or list(parts)
    candidates = [_candidate(recordings, part, encoders, made) for part in used]
    is_numeric = task_of(target).is_numeric
    card = ModelCard(
        name=recordings.name,
        target=target,
        n_times=recordings.n_times,
        channels=list(recordings.channels),
        sfreq=recordings.sfreq,
        classes=[] if is_numeric else list(recordings.classes),
        constant=float(recordings.truth.mean()) if is_numeric else 0.0,
        subjects=len(recordings.people),
        scores=scores,
        filter=None if recordings.filter is None else recordings.filter.as_dict(),
        scale=recordings.compute_once("scale", lambda: typical_scale(recordings.X)),
        weights=[float(part.weight) for part in used],
        parts=[candidate.card for candidate in candidates],
    )
    return Model(card, candidates)


def with_online(
    recordings: Recordings,
    model: Model,
    shared: Sequence[float],
    parts: Sequence[Part],
    rule: CenteringRule,
    *,
    session: bool,
    all_windows: bool,
    encoders: Encoders | None = None,
    made: MadeCandidates | None = None,
) -> Model:
    """Add the online ensemble. shared: weights of the model's candidates in it; parts: further ones, of which those
    that center people begin at the center of the training people; made: as in `assemble`."""
    candidates = []
    for part in parts:
        if part.setting.adaptation == "online":
            part = part._replace(setting=part.setting.replace(center="train"))
        candidates.append(_candidate(recordings, part, encoders, made))
    card = OnlineCard(
        weights=[*map(float, shared), *(part.weight for part in parts)],
        parts=[candidate.card for candidate in candidates],
        rule=rule,
        session=session,
        all_windows=all_windows,
    )
    return Model(replace(model.card, online=card), model.parts, candidates)


def _candidate(recordings: Recordings, part: Part, encoders: Encoders | None, made: MadeCandidates | None) -> Candidate:
    made = {} if made is None else made
    if part.setting not in made:
        made[part.setting] = candidate_of(recordings, part, encoders)
    return made[part.setting]


def candidate_of(recordings: Recordings, part: Part, encoders: Encoders | None = None) -> Candidate:
    """Make the candidate of a part, with the effects of the people it was trained on."""
    setting, states, folds, _ = part
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    training, ready = [fold.train for fold in folds], find_representation(recordings, setting.preprocessing)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, training, recordings.derived, None if ready is None else ready[1], ready
    )
    tensors |= {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}
    size = size_of_candidate(setting, recordings, tensors["classifier.bias"].shape[1])
    candidate = Candidate.restore(CandidateCard(setting.to_dict(), len(states)), size, tensors, encoders)
    if recordings.targets is not None:  # a number is predicted, and people are not compared by classes
        return candidate
    candidate = replace(candidate, effects=effects_of(candidate, recordings, folds))
    # Whether windows are centered by the mean of the training people, whoever's they are.
    if any(isinstance(step, Center) and step.kind == "train" for step in setting.preprocessing.transforms):
        candidate = replace(candidate, centering=centering_of(candidate, recordings, folds))
    return candidate


@torch.no_grad()
def centering_of(candidate: Candidate, recordings: Recordings, folds: Sequence[Fold]) -> Centering:
    """Fit the centers of training people's logits, for each member."""
    rows, members = _spread_rows(recordings), candidate.members
    logits = members.classifier(_latents(candidate, recordings, rows))  # (members, n, C)
    zero = torch.zeros(1, candidate.size.channels, candidate.size.times)  # a person's mean, once they are centered
    reference = members.classifier(members.net(zero))[:, 0]
    y, people = recordings.y[rows], recordings.subject[rows]
    centerings = []
    for member_logits, member_reference, fold in zip(logits, reference, folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        centerings.append(fit_centering(member_logits[used], member_reference, y[used], people[used]))
    return stack_centering(centerings)


def effects_of(candidate: Candidate, recordings: Recordings, folds: Sequence[Fold]) -> Effects | None:
    """Fit how training people differ in the latents of each member; None if there are fewer than two people."""
    rows = _spread_rows(recordings)
    y, people = recordings.y[rows], recordings.subject[rows]
    effects: list[Effects] = []
    for latents, fold in zip(_latents(candidate, recordings, rows, people), folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        if len(people[used].unique()) < 2 or not torch.isfinite(latents[used]).all():  # type: ignore[no-untyped-call]  # torch's
            return None
        try:
            effects.append(fit_effects(latents[used], y[used], people[used], recordings.n_classes))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # latents too far apart in size to be compared
            return None
    return stack_effects(effects)


def _latents(candidate: Candidate, recordings: Recordings, rows: Tensor, subject: Tensor | None = None) -> Tensor:
    """Compute latents (members, n, D) of these rows of the training recordings, from a known representation if any."""
    ready = find_representation(recordings, candidate.setting.preprocessing)
    start, X = (0, recordings.X) if ready is None else ready
    (latents,) = Ensemble([candidate], [1.0]).latents(X[rows], subject, start)
    return latents


def _spread_rows(recordings: Recordings) -> Tensor:
    """Select about ENOUGH rows (n,) in order, of every person and class alike, spread over their windows. Moments
    need no more, and networks are slow."""

    def select() -> Tensor:
        cells = (recordings.subject * recordings.n_classes + recordings.y).numpy()
        most = max(LEAST_OF_EACH, ENOUGH // len(np.unique(cells)))
        selected = []
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            selected.append(rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))])
        return torch.from_numpy(np.sort(np.concatenate(selected)))

    return recordings.compute_once("spread rows", select)
