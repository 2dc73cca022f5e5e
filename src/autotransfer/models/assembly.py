"""Trained states as a model that can be used: members stacked, with preprocessing fitted on what each trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..folds import Fold
from ..model.encoders import Encoders
from ..preprocessing.centre import Centre
from ..recordings import Recordings
from ..recordings.signals import typical_scale
from ..settings import Setting
from ..training.centring import Centring, CentringRule, fit_centring, stacked_centring
from ..training.effects import Effects, fit_effects, stacked
from ..training.represented import represented
from .card import ModelCard, OnlineCard
from .mixture import Mixture
from .saved_model import SavedModel

ENOUGH = 2000  # windows that effects are estimated from
LEAST_OF_EACH = 4  # of a person and class


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
        subjects=len(recordings.people),
        scores=scores,
        filter=None if recordings.filter is None else recordings.filter.as_dict(),
        scale=scale_of(recordings),
    )
    tensors = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    training, ready = [fold.train for fold in folds], represented(recordings, setting.preprocessing)
    fitted = setting.preprocessing.fit(
        recordings.X, recordings.subject, training, recordings.derived, None if ready is None else ready[1],
        recordings.ring, ready,
    )  # fmt: skip
    return card, tensors | {f"preprocessing.{name}": tensor for name, tensor in fitted.state_dict().items()}


def scale_of(recordings: Recordings) -> float | None:
    """Return the typical scale of all windows, computed once for all parts of a model."""
    return recordings.once("scale", lambda: typical_scale(recordings.X))


def ensemble(
    recordings: Recordings,
    setting: Setting,
    states: Sequence[dict[str, Tensor]],
    folds: Sequence[Fold],
    *,
    kind: str,
    scores: dict[str, Any],
    encoders: Encoders | None = None,
) -> SavedModel:
    """Make the model of these states, with the effects of the people it was trained on."""
    model = SavedModel(*assemble(recordings, setting, states, folds, kind=kind, scores=scores), encoders)
    model.effects = effects_of(model, recordings, folds)
    # Whether windows are centred by the mean of the training people, whoever's they are.
    if any(isinstance(step, Centre) and step.kind == "train" for step in setting.preprocessing.transforms):
        model.centring = centring_of(model, recordings, folds)
    return model


@torch.no_grad()
def centring_of(model: SavedModel, recordings: Recordings, folds: Sequence[Fold]) -> Centring:
    """Fit the centers of training people's logits, for each member."""
    rows = _spread_rows(recordings)
    logits = model.classifier(_codes(model, recordings, rows))  # (members, n, C)
    size = model.setting.preprocessing.shape(recordings.n_channels, recordings.n_times)
    reference = model.classifier(model.net(torch.zeros(1, *size)))[:, 0]  # a person's mean, once they are centred
    y, people = recordings.y[rows], recordings.subject[rows]
    centrings = []
    for member_logits, member_reference, fold in zip(logits, reference, folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        centrings.append(fit_centring(member_logits[used], member_reference, y[used], people[used]))
    return stacked_centring(centrings)


def effects_of(model: SavedModel, recordings: Recordings, folds: Sequence[Fold]) -> Effects | None:
    """Fit how training people differ in the codes of each member; None if there are fewer than two people."""
    rows = _spread_rows(recordings)
    z = _codes(model, recordings, rows, recordings.subject[rows])
    y, people = recordings.y[rows], recordings.subject[rows]
    effects: list[Effects] = []
    for codes, fold in zip(z, folds, strict=True):
        used = torch.isin(rows, torch.from_numpy(fold.train))
        if len(people[used].unique()) < 2 or not torch.isfinite(codes[used]).all():  # type: ignore[no-untyped-call]  # torch's
            return None
        try:
            effects.append(fit_effects(codes[used], y[used], people[used], recordings.n_classes))
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # codes too far apart in size to be compared
            return None
    return stacked(effects)


def _codes(model: SavedModel, recordings: Recordings, rows: Tensor, subject: Tensor | None = None) -> Tensor:
    """Compute codes (members, n, D) of these rows of the training recordings, from a known representation if any."""
    ready = represented(recordings, model.setting.preprocessing)
    start, X = (0, recordings.X) if ready is None else ready
    return model.latents(X[rows], subject, start)


def _spread_rows(recordings: Recordings) -> Tensor:
    """About ENOUGH rows (n,) in order, of every person and class alike, spread over their windows. Moments need no
    more, and networks are slow."""

    def select() -> Tensor:
        cells = (recordings.subject * recordings.n_classes + recordings.y).numpy()
        most = max(LEAST_OF_EACH, ENOUGH // len(np.unique(cells)))
        selected = []
        for cell in np.unique(cells):
            rows = np.flatnonzero(cells == cell)
            selected.append(rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))])
        return torch.from_numpy(np.sort(np.concatenate(selected)))

    return recordings.once("spread rows", select)


def with_online(
    recordings: Recordings,
    mixture: Mixture,
    shared: Sequence[float],
    parts: Sequence[Part],
    rule: CentringRule,
    *,
    session: bool,
    all_windows: bool,
    kind: str = "ensemble",
    encoders: Encoders | None = None,
) -> Mixture:
    """Add the average that uses a person's windows. shared: exponents of the mixture's parts in it; parts:
    further ones, of which those that centre people begin at the centre of the training people."""
    in_session = [
        part._replace(setting=part.setting.replace(centre="train")) if part.setting.adaptation == "online" else part
        for part in parts
    ]
    models = _ensembles(recordings, in_session, kind, encoders)
    card = OnlineCard(
        exponents=[*map(float, shared), *(part.exponent for part in parts)], parts=[model.card for model in models],
        rule=rule, session=session, all_windows=all_windows,
    )  # fmt: skip
    return mixture.with_online(card, models)


def assemble_mixture(
    recordings: Recordings,
    parts: Sequence[Part],
    *,
    scores: dict[str, Any],
    kind: str = "ensemble",
    encoders: Encoders | None = None,
) -> Mixture:
    """Make the mixture of these parts, ready to be used or saved.

    kind: of each part. Parts with the exponent 0 are left out, unless all are: they would be computed for nothing.
    """
    every = [Part(*part) for part in parts]
    used = [part for part in every if part.exponent != 0] or every
    models = _ensembles(recordings, used, kind, encoders)
    return Mixture(models, [part.exponent for part in used], scores)


def _ensembles(recordings: Recordings, parts: Sequence[Part], kind: str, encoders: Encoders | None) -> list[SavedModel]:
    return [
        ensemble(recordings, setting, states, folds, kind=kind, scores={}, encoders=encoders)
        for setting, states, folds, _ in parts
    ]
