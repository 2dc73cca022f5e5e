"""Build the model that a run delivers: the weighted ensemble of candidates, or the chosen setting alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..folds import Fold
from ..jobs import Job
from ..models.adaptation import UNTRIED
from ..models.building import CandidateCache, CandidateFits, add_online_ensemble, build_model
from ..models.overlap import training_digests
from ..runs.choice import Choice
from ..runs.database import Entry
from ..runs.run import Run
from ..settings import Setting
from ..training.ridge import fit_ridge
from ..training.train import train

MAX_NETWORKS = 24  # fits of networks in an ensemble; on 13 data sets, 14 fits scored as well as 42 fits
State = dict[str, Tensor]


def save_delivered_model(
    run: Run, choice: Choice, cache: CandidateCache, online: Mapping[Setting, float] | None = None
) -> None:
    """Build the delivered model and save it in RUN/model.

    cache: linear models and trees of earlier interim results, which need not be fitted again; new ones are added.
    online: weights of the online ensemble.
    """
    rec, replay, weights, max_fits = run.recordings, choice.replay, choice.delivered, None
    if choice.task.is_numeric and choice.ensemble is not None:
        fits = [(choice.settings[c.name], c.strength or 1.0, c.weight) for c in choice.ensemble.candidates]
        candidates = [CandidateFits(s, *_fit_ridge_on_all(run, s, strength), w) for s, strength, w in fits]
    else:
        n_networks = sum(not setting.network.is_closed_form for setting in weights)
        max_fits = None if choice.ensemble is None else fits_per_network(n_networks)
        candidates = [
            CandidateFits(s, *(([], []) if s in cache else _find_fits(run, s, max_fits)), weight)
            for s, weight in weights.items()
        ]
    built = dict(cache)
    model = build_model(
        rec, candidates, scores=card_scores(choice), encoders=run.encoders, target=choice.target, cache=built
    )
    if not choice.task.is_numeric:  # a ridge regression changes with its strength, and networks with more seeds
        cache |= {setting: candidate for setting, candidate in built.items() if setting.network.is_closed_form}
    model.card = replace(
        model.card, seen=training_digests(rec), made_with=run.database.fit_versions(),
        thresholds=None if choice.prediction_sets is None else choice.prediction_sets.thresholds,
        intervals=None if choice.intervals is None else choice.intervals.intervals,
    )  # fmt: skip
    if replay is not None:
        n_labels = replay.calibrates_with if replay.calibrated else None  # None: no subject had enough windows
        model.card = replace(model.card, calibrates_with=n_labels, trust=replay.trust)
    if online is not None and replay is not None and replay.uses_online_ensemble:
        shared_weights = [online.get(setting, 0.0) for setting in weights]
        new_weights = {setting: weight for setting, weight in online.items() if setting not in weights}
        if new_weights:
            added = [CandidateFits(s, *_find_fits(run, s, max_fits), weight) for s, weight in new_weights.items()]
            model = add_online_ensemble(rec, model, shared_weights, added, run.encoders)
    if not choice.task.is_numeric:
        methods = (UNTRIED, UNTRIED) if replay is None else (replay.session_method, replay.transductive_method)
        model.card = replace(model.card, session_method=methods[0], transductive_method=methods[1])
    model.save(run.folder / "model")


def card_scores(choice: Choice) -> dict[str, Any]:
    """Return the scores on held-out subjects, or other held-out units, for the model card."""
    return {
        "metric": choice.metric,
        "chance": choice.chance,
        "nested_test_mean": float(np.mean(list(choice.estimate.values()))) if choice.estimate else None,
        "interval": None if choice.interval is None else list(choice.interval),
        "subjects": len(choice.estimate),
        "headline": choice.headline,
        "next_subject": None if choice.next_subject is None else asdict(choice.next_subject),
        "hold_out": choice.hold_out,
    } | ({"stages": [stage.name for stage in choice.stages], "end_reason": choice.end_reason} if choice.stages else {})


def fits_per_network(n_networks: int) -> int:
    """Return the largest number of fits of each network in an ensemble of n_networks networks."""
    return max(2, MAX_NETWORKS // max(n_networks, 1))


def _find_fits(run: Run, setting: Setting, max_fits: int | None) -> tuple[list[State], list[Fold]]:
    """Return weights and folds of at most max_fits fits of a network, or of a linear model fitted on all subjects."""
    if setting.network.is_closed_form:
        return _fit_linear_on_all(run, setting)
    entries = [e for e in run.database.entries(records=False) if e.status == "done" and e.setting == setting]
    if not entries:
        name = run.options.name_of(setting)
        raise UserError(
            f"every fit of {name!r}, which is to be delivered, failed (see autotransfer status {run.folder}); start a "
            "new run with a smaller lr (--set lr=…)"
        )
    if max_fits is not None and len(entries) > max_fits:
        entries = [entries[k] for k in np.linspace(0, len(entries) - 1, max_fits).round().astype(int).tolist()]
    return states_and_folds(run, entries)


def states_and_folds(run: Run, entries: Sequence[Entry]) -> tuple[list[State], list[Fold]]:
    """Return the weights of the best checkpoint, and the fold, of each fit."""
    weights = (run.weights(entry.key) for entry in entries)
    states = [{k.removeprefix("best."): t for k, t in w.items() if k.startswith("best.")} for w in weights]
    return states, [run.job(entry).fold for entry in entries]


def _fit_linear_on_all(run: Run, setting: Setting) -> tuple[list[State], list[Fold]]:
    """Fit a linear classifier on all subjects."""
    fold = Fold(np.arange(run.recordings.n_windows, dtype=np.int64))
    job = Job(setting, fold, run.options.seed)
    (outcome,) = train(run.recordings, [job], run.options.device, progress=False, encoders=run.encoders)
    state = {k: t for k, t in outcome.final_state.items() if not k.startswith("censor.")}
    return [state], [fold]


def _fit_ridge_on_all(run: Run, setting: Setting, strength: float) -> tuple[list[State], list[Fold]]:
    """Fit a ridge regression on all subjects."""
    fold = Fold(np.arange(run.recordings.n_windows, dtype=np.int64))
    _, head = fit_ridge(run.recordings, setting, fold.train, (strength,))
    weights, bias = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
    zero = torch.zeros(weights.shape[1], dtype=torch.float64)  # a ridge regression does not standardize latents
    state = {
        "encoder.shift": zero, "encoder.inv_std": torch.ones_like(zero),
        "classifier.weight": weights, "classifier.bias": bias,
    }  # fmt: skip
    return [state], [fold]
