"""Replay: held-out subjects use the model, in online sessions and calibrated with a few labels.

All windows of every subject in the headline are replayed in several orders, by fits that left the subject out, with
weights that were found without them. Without adaptation and labels, predictions are those of the headline. What
subjects gain decides what the delivered model does for a new one.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.assembly import Part, assemble, with_online
from ..models.calibration import LABELS
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION, Adaptation
from ..recordings import Recordings
from ..recordings.units import Units
from ..runs.choice import Playback, Scores, Selection
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.centring import CentringRule
from . import following
from .average import OnlineWeights
from .evaluation import Predictions
from .labels import (
    SHARES,
    SHARPNESS,
    Rows,
    TrustTrial,
    best_trust,
    groups_of,
    labeled_and_scored,
    personal_log_probs,
    try_all,
    window_score,
)
from .models import best_state

NETWORKS = 2  # of each candidate, where there are more seeds
ORDERS = ("recorded", "balanced", "one-sided", "one class first")


def play_back(
    run: Run, selection: Selection, log_probs: Predictions, online: OnlineWeights | None = None
) -> Playback | None:
    """Return what held-out subjects gain; None if their windows cannot be replayed.

    That is so if a model needs all windows of a subject at once, or has no effects of subjects. log_probs: those of the
    headline. online: weights of the ensemble for online sessions.
    """
    recordings = run.recordings
    nested = {} if selection.ensemble is None else selection.ensemble.nested
    tables: dict[str, dict[str, Scores]] = {}
    trials: dict[str, dict[str, TrustTrial]] = {}  # by the number of labels and the person
    followed: dict[str, following.Followed] = {}
    for person, log_p in log_probs.items():
        name = str(recordings.subjects[person])
        model = model_without(run, selection.by_setting(nested.get(name, {})), person)
        if model is not None and online is not None:
            model = online_without(run, model, online, person)
        if model is None or any(part.effects is None for part in model.parts):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == person)
        scores, tried, followed[name] = play_person(model, recordings, rows, log_p, run.options.scoring)
        for (table, case), score in scores.items():
            tables.setdefault(table, {}).setdefault(case, {})[name] = score
        for labels, trial in tried.items():
            trials.setdefault(labels, {})[name] = trial
    if not followed:
        return None
    if any(person.rules.size for person in followed.values()):  # others' weights have no part that centres people
        followed = {name: f if f.rules.size else following.without_rules(f) for name, f in followed.items()}
    for labels, of_people in trials.items():
        for name, trial in of_people.items():  # the others decide how much labels count
            share, _ = best_trust([other for whose, other in of_people.items() if whose != name])
            tables.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(trial.score[share])
    places_of = {labels: best_trust(list(of_people.values())) for labels, of_people in trials.items()}
    trust = {labels: [SHARES[k], SHARPNESS[n]] for labels, (k, n) in places_of.items()}
    below = {labels: most_tried(labels, trust) for labels in LABELS}
    trust = {str(labels): trust[str(number)] for labels, number in below.items() if number is not None}
    choices, method = choices_of(followed)
    follows = method
    if method in following.RULES:  # models without the average for sessions adapt too
        follows = following.delivered_method(list(followed.values()), list(ADAPTATION_METHODS))
    playback = Playback(
        **orders_of(followed, choices),
        **online_of(followed, method),
        before=tables.get("before", {}),
        calibrated=tables.get("calibrated", {}),
        own=tables.get("own", {}),
        follows=follows,
        calibrates=calibrates(tables.get("before", {}), tables.get("calibrated", {})),
        trust=trust,
    )
    return playback if recordings.units is None else merge_units(playback, recordings.units)


def merge_units(played: Playback, units: Units) -> Playback:
    """Return the playback with the mean score over each person's units."""

    def merged(tables: dict[str, Scores]) -> dict[str, Scores]:
        return {case: units.by_person(scores) for case, scores in tables.items()}

    return replace(
        played,
        zero_shot=merged(played.zero_shot),
        adapted=merged(played.adapted),
        before=merged(played.before),
        calibrated=merged(played.calibrated),
        own=merged(played.own),
        online=merged(played.online),
        ways={method: merged(tables) for method, tables in played.ways.items()},
        all_windows=units.by_person(played.all_windows),
    )


def choices_of(followed: dict[str, following.Followed]) -> tuple[dict[str, str], str]:
    """How a session learns: for each person as the others choose, and as all of them do, which is not at all where
    people did not gain by what the others chose."""
    choices = {name: following.delivered_method(_without(followed, name)) for name in followed}
    gain = float(np.mean([person.gains(choices[name]).mean() for name, person in followed.items()]))
    return choices, following.delivered_method(list(followed.values())) if gain > following.ROUNDING else NO_ADAPTATION


def _without(followed: dict[str, following.Followed], name: str) -> list[following.Followed]:
    return [person for other, person in followed.items() if other != name]


def orders_of(followed: dict[str, following.Followed], choices: dict[str, str]) -> dict[str, Any]:
    """Scores by the order of windows: `zero_shot`, `adapted` as the others choose, and `ways`, by every adaptation
    method."""

    def scores(methods: dict[str, str]) -> dict[str, Scores]:
        """methods: by person."""
        return {
            order: {name: float(person.score(methods[name])[k]) for name, person in followed.items()}
            for k, order in enumerate(ORDERS)
        }

    return {
        "zero_shot": scores(dict.fromkeys(followed, NO_ADAPTATION)),
        "adapted": scores(choices),
        "ways": {method: scores(dict.fromkeys(followed, method)) for method in ADAPTATION_METHODS},
    }


def online_of(followed: dict[str, following.Followed], method: str) -> dict[str, Any]:
    """Return the fields of the average for sessions: scores by the rule that the other people choose, and the rule that
    all of them choose. method: how a session learns."""
    people = list(followed.values())
    if any(not person.rules.size for person in people):
        return {}
    rules = {name: following.rule_of(_without(followed, name)) for name in followed}
    gains = {name: following.all_gain(person, rules[name]) for name, person in followed.items()}
    return {
        "online": {
            order: {name: float(person.score(rules[name])[k]) for name, person in followed.items()}
            for k, order in enumerate(ORDERS)
        },
        "all_windows": {name: float(person.zero_shot[0]) + gains[name] for name, person in followed.items()},
        "rule": following.RULES[following.rule_of(people)],
        "online_session": method in following.RULES,
        "online_all_windows": float(np.mean(list(gains.values()))) >= 0,
    }


def model_without(run: Run, exponents: Mapping[Setting, float], person: int) -> Model | None:
    """Return the ensemble of fits that had the person as their test subject."""
    if any(setting.adaptation == "transductive" for setting in exponents):
        return None
    parts = _parts_without(run, exponents, person)
    return assemble(run.recordings, parts, scores={}, encoders=run.encoders) if parts else None


def online_without(run: Run, model: Model, online: OnlineWeights, person: int) -> Model:
    """The same model with the online ensemble, from the same trainings; unchanged where no part of that centres
    people."""
    exponents = online.nested[person]
    shared = [part.setting for part in model.parts]
    parts = _parts_without(run, {s: exponent for s, exponent in exponents.items() if s not in shared}, person)
    if not any(part.setting.adaptation == "online" for part in parts):
        return model
    return with_online(
        run.recordings, model, [exponents.get(setting, 0.0) for setting in shared], parts, CentringRule(), session=True,
        all_windows=True, encoders=run.encoders,
    )  # fmt: skip


def _parts_without(run: Run, exponents: Mapping[Setting, float], person: int) -> list[Part]:
    """From trainings that had the person as their test subject."""
    entries = [e for e in run.ledger.entries(records=False) if e.status == "done" and person in run.groups[e.test]]
    parts = []
    for setting, exponent in exponents.items():
        by_seed = {e.seed: e for e in entries if e.setting == setting}
        used = list(by_seed.values())[: 1 if setting.network.closed_form else NETWORKS]
        if used:
            states, folds = [best_state(run, entry) for entry in used], [run.job(entry).fold for entry in used]
            parts.append(Part(setting, states, folds, exponent))
    return parts


class DecodedWindows(NamedTuple):
    """Codes and log-probabilities of a person's windows in one order."""

    codes: list[Tensor]  # (P, n, D) of each stack
    log_p: Tensor  # (n, C) up to a number for each window
    y: NDArray[np.int64]  # (n,)

    def in_order(self, order: Rows) -> DecodedWindows:
        return DecodedWindows([z[:, order] for z in self.codes], self.log_p[order], self.y[order])


@torch.inference_mode()
def play_person(
    model: Model, recordings: Recordings, rows: Rows, log_p: NDArray[np.floating] | None = None,
    metric: Metric = METRICS[BALANCED_ACCURACY],
) -> tuple[dict[tuple[str, str], float], dict[str, TrustTrial], following.Followed]:  # fmt: skip
    """Replay the windows of one person. log_p: log-probabilities (n, C) in the order of recording; None: the model's.

    Return scores by model and number of labels, how calibration does by number of labels and by how much they count,
    and scores of online adaptation.
    """
    y, ensemble = recordings.y.numpy()[rows], model.ensemble
    orders = window_orders(y)

    def read(order: Rows) -> DecodedWindows:
        return DecodedWindows(*ensemble.read(recordings.X[rows[order]], ensemble.follow()), y[order])

    recorded = read(orders["recorded"])
    if log_p is not None:
        recorded = recorded._replace(log_p=torch.from_numpy(np.asarray(log_p, dtype=np.float64)))
    scores, trials = _with_labels(ensemble, recorded, groups_of(recordings, rows), metric)
    again = {name: recorded.in_order(order) for name, order in orders.items()}
    if model.adaptation != "none":  # what was read before a window changes what is read of it
        again |= {name: read(order) for name, order in orders.items() if name != "recorded"}
    readings = list(again.values())
    in_orders, truth = torch.stack([r.log_p for r in readings]), torch.from_numpy(np.stack([r.y for r in readings]))
    followed = following.follow_all(ensemble, [reading.codes for reading in readings], in_orders, truth, metric)
    if model.online is not None and model.adaptation == "none":
        windows = (recordings.X[rows], recorded.log_p, y)
        followed = following.follow_online(followed, model, *windows, list(orders.values()), metric)
    return scores, trials, followed


def window_orders(y: NDArray[np.int64]) -> dict[str, Rows]:
    """ORDERS of windows of classes (n,): as recorded, at random, class after class, and the largest class before all
    others."""
    drawn = np.random.default_rng(len(y)).permutation(len(y))
    first = np.bincount(y).argmax()
    one_first = drawn[np.argsort(y[drawn] != first, kind="stable")]
    return dict(zip(ORDERS, (np.arange(len(y)), drawn, np.argsort(y, kind="stable"), one_first), strict=True))


def _with_labels(
    ensemble: Ensemble, read: DecodedWindows, groups: Rows, metric: Metric
) -> tuple[dict[tuple[str, str], float], dict[str, TrustTrial]]:
    """Return, by the number of labeled windows of each class, scores on all windows of other groups by the model before
    calibration and by a classifier of the labels alone, and how calibration does. groups: (n,)."""
    scores: dict[tuple[str, str], float] = {}
    trials: dict[str, TrustTrial] = {}
    y, n_classes = torch.from_numpy(read.y), read.log_p.shape[1]
    person = Adaptation(*ensemble.effects)
    solved = [
        z[0].double() for z, stack in zip(read.codes, ensemble.stacks, strict=True) if stack.setting.encoder == "linear"
    ]
    for labels in LABELS:
        known, left = labeled_and_scored(read.y, groups, labels)
        if len(np.unique(read.y[left])) < len(np.unique(read.y)):
            continue
        correction = person.calibration(read.codes, y, torch.from_numpy(known))
        trials[str(labels)] = try_all(read.log_p[left], correction[left], y[left], metric)
        scores["before", str(labels)] = window_score(metric, read.y[left], read.log_p[left].numpy())
        if solved:
            personal = personal_log_probs(solved, read.y, groups, known, n_classes)
            scores["own", str(labels)] = window_score(metric, read.y[left], personal[left].numpy())
    return scores, trials


def calibrates(before: dict[str, Scores], after: dict[str, Scores]) -> list[int]:
    """Numbers of labels with which people gained on average, from their scores before and after calibration; none where
    they lost over all numbers together, because a single number that helps is then chance. No clear gain is asked for:
    how much labels count is chosen on others already (labels.py). A number that nobody had windows for counts as the
    largest smaller one that was tried."""
    gains = {
        labels: [score - before[str(labels)][name] for name, score in after[str(labels)].items()]
        for labels in LABELS
        if str(labels) in after
    }
    if not gains or np.mean(np.concatenate(list(gains.values()))) < 0:
        return []
    tried = {labels: most_tried(labels, after) for labels in LABELS}
    return [labels for labels, number in tried.items() if number is not None and np.mean(gains[number]) >= 0]


def most_tried(labels: int, tried: Container[str]) -> int | None:
    """The largest number of labels that was tried and is not above this one."""
    return max((number for number in LABELS if number <= labels and str(number) in tried), default=None)
