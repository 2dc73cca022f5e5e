"""Replay: held-out subjects use the model, in online sessions and calibrated with a few labels.

All windows of every subject in the headline are replayed in several orders, by fits that left the subject out, with
weights that were found without them. Without adaptation and labels, predictions are those of the headline. What
subjects gain decides what the delivered model does for a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.assembly import MadeCandidates, Part, assemble, with_online
from ..models.calibration import LABELS
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION, Adaptation
from ..recordings import Recordings
from ..recordings.units import Units
from ..runs.choice import ReplayResult, Scores, Selection
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.centering import CenteringRule
from . import online_adaptation
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
from .models import states_and_folds

NETWORKS = 2  # of each candidate, where there are more seeds
ORDERS = ("recorded", "balanced", "one-sided", "one class first")


def replay_subjects(
    run: Run, selection: Selection, log_probs: Predictions, online: OnlineWeights | None = None
) -> ReplayResult | None:
    """Return what held-out subjects gain; None if their windows cannot be replayed.

    That is so if a model needs all windows of a subject at once, or has no effects of subjects. log_probs: those of the
    headline. online: weights of the ensemble for online sessions.
    """
    recordings = run.recordings
    nested = {} if selection.ensemble is None else selection.ensemble.nested
    tables: dict[str, dict[str, Scores]] = {}
    trials: dict[str, dict[str, TrustTrial]] = {}  # by the number of labels and the person
    followed: dict[str, online_adaptation.AdaptationScores] = {}
    made: dict[tuple[int, ...], MadeCandidates] = defaultdict(dict)  # by who is held out together
    held_out_with = {person: tuple(group) for group in run.groups for person in group}
    for person, log_p in log_probs.items():
        name, candidates = str(recordings.subjects[person]), made[held_out_with[person]]
        model = model_without(run, selection.by_setting(nested.get(name, {})), person, candidates)
        if model is not None and online is not None:
            model = online_without(run, model, online, person, candidates)
        if model is None or any(part.effects is None for part in model.parts):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == person)
        scores, tried, followed[name] = replay_subject(model, recordings, rows, log_p, run.options.scoring)
        for (table, case), score in scores.items():
            tables.setdefault(table, {}).setdefault(case, {})[name] = score
        for labels, trial in tried.items():
            trials.setdefault(labels, {})[name] = trial
    if not followed:
        return None
    if any(person.all_windows for person in followed.values()):  # others' weights have no part that centers subjects
        followed = {name: f if f.all_windows else online_adaptation.without_rules(f) for name, f in followed.items()}
    for labels, of_people in trials.items():
        for name, trial in of_people.items():  # the others decide how much labels count
            share, _ = best_trust([other for whose, other in of_people.items() if whose != name])
            tables.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(trial.score[share])
    places_of = {labels: best_trust(list(of_people.values())) for labels, of_people in trials.items()}
    trust = {labels: [SHARES[k], SHARPNESS[n]] for labels, (k, n) in places_of.items()}
    below = {labels: most_tried(labels, trust) for labels in LABELS}
    trust = {str(labels): trust[str(number)] for labels, number in below.items() if number is not None}
    with_labels = {name: tables.get(name, {}) for name in ("before_calibration", "calibrated", "personal")}
    every: dict[str, Any] = with_labels | score_tables(followed)
    merged: dict[str, Any] = {name: _merged(table, recordings.units) for name, table in every.items()}
    return ReplayResult(
        **merged,
        **select_adaptation(followed),
        calibrates_with=helpful_labels(with_labels["before_calibration"], with_labels["calibrated"]),
        trust=trust,
    )


def _merged(table: dict[str, Any], units: Units | None) -> dict[str, Any]:
    """Return nested tables of scores with the mean over each person's units, if these were held out."""
    if units is None or not table:
        return table
    if any(isinstance(value, dict) for value in table.values()):
        return {case: _merged(inner, units) for case, inner in table.items()}
    return units.by_person(table)


def score_tables(followed: dict[str, online_adaptation.AdaptationScores]) -> dict[str, dict[str, Any]]:
    """Return tables of `ReplayResult` without labels. What is selected for a subject is selected on the other ones."""

    def by_order(methods: dict[str, str]) -> dict[str, Scores]:
        """Return scores by order of windows. methods: by subject."""
        return {
            order: {name: float(person.scores[methods[name]][k]) for name, person in followed.items()}
            for k, order in enumerate(ORDERS)
        }

    people, adapted = _without_each(followed, online_adaptation.delivered_method)
    tables: dict[str, dict[str, Any]] = {
        "zero_shot": by_order(dict.fromkeys(followed, NO_ADAPTATION)),
        "adapted": by_order(adapted),
        "methods": {method: by_order(dict.fromkeys(followed, method)) for method in ADAPTATION_METHODS},
    }
    if people.rules is not None:
        _, rules = _without_each(followed, online_adaptation.rule_of)
        whole = {name: person.all_windows[rules[name]] for name, person in followed.items()}
        tables |= {"online": by_order(rules), "all_windows": whole}
    return tables


def _without_each(
    followed: dict[str, online_adaptation.AdaptationScores], select: Callable[[online_adaptation.GroupScores], str]
) -> tuple[online_adaptation.GroupScores, dict[str, str]]:
    """Return all subjects, and what is selected for each of them by the other ones."""
    people = online_adaptation.GroupScores.of(list(followed.values()))
    return people, {name: select(people.without(place)) for place, name in enumerate(followed)}


def select_adaptation(followed: dict[str, online_adaptation.AdaptationScores]) -> dict[str, Any]:
    """Return how an online session of the delivered model adapts: not at all unless subjects gained by what the others
    selected."""
    people, methods = _without_each(followed, online_adaptation.delivered_method)
    gain = np.mean([followed[name].gains(method).mean() for name, method in methods.items()])
    method = online_adaptation.delivered_method(people) if gain > online_adaptation.ROUNDING else NO_ADAPTATION
    adaptation_method = method
    if method in online_adaptation.RULES:  # models without the online ensemble adapt too
        adaptation_method = online_adaptation.delivered_method(people, list(ADAPTATION_METHODS))
    if people.rules is None:
        return {"adaptation_method": adaptation_method}
    _, rules = _without_each(followed, online_adaptation.rule_of)
    whole = [online_adaptation.all_gain(followed[name], rule) for name, rule in rules.items()]
    return {
        "adaptation_method": adaptation_method,
        "rule": online_adaptation.RULES[online_adaptation.rule_of(people)],
        "online_session": method in online_adaptation.RULES,
        "online_all_windows": float(np.mean(whole)) >= 0,
    }


def model_without(
    run: Run, weights: Mapping[Setting, float], person: int, made: MadeCandidates | None = None
) -> Model | None:
    """Return the ensemble of fits that had the person as their test subject. made: candidates of these fits by setting,
    which are the same for everybody who is held out with the person."""
    if any(setting.adaptation == "transductive" for setting in weights):
        return None
    parts = _parts_without(run, weights, person)
    return assemble(run.recordings, parts, scores={}, encoders=run.encoders, made=made) if parts else None


def online_without(
    run: Run, model: Model, online: OnlineWeights, person: int, made: MadeCandidates | None = None
) -> Model:
    """Return the model with the online ensemble, from the same fits; unchanged if no part of the ensemble centers
    people."""
    weights = online.nested[person]
    shared = [part.setting for part in model.parts]
    parts = _parts_without(run, {s: weight for s, weight in weights.items() if s not in shared}, person)
    if not any(part.setting.adaptation == "online" for part in parts):
        return model
    return with_online(
        run.recordings, model, [weights.get(setting, 0.0) for setting in shared], parts, CenteringRule(), session=True,
        all_windows=True, encoders=run.encoders, made=made,
    )  # fmt: skip


def _parts_without(run: Run, weights: Mapping[Setting, float], person: int) -> list[Part]:
    """Return the parts of the model from fits that had the person as their test subject."""
    entries = [e for e in run.database.entries(records=False) if e.status == "done" and person in run.groups[e.test]]
    parts = []
    for setting, weight in weights.items():
        by_seed = {e.seed: e for e in entries if e.setting == setting}
        used = list(by_seed.values())[: 1 if setting.network.closed_form else NETWORKS]
        if used:
            parts.append(Part(setting, *states_and_folds(run, used), weight))
    return parts


class DecodedWindows(NamedTuple):
    """Latents and log-probabilities of a person's windows in one order."""

    latents: list[Tensor]  # (P, n, D) of each stack
    log_p: Tensor  # (n, C) up to a number for each window
    y: NDArray[np.int64]  # (n,)

    def in_order(self, order: Rows) -> DecodedWindows:
        return DecodedWindows([z[:, order] for z in self.latents], self.log_p[order], self.y[order])


@torch.inference_mode()
def replay_subject(
    model: Model, recordings: Recordings, rows: Rows, log_p: NDArray[np.floating] | None = None,
    metric: Metric = METRICS[BALANCED_ACCURACY],
) -> tuple[dict[tuple[str, str], float], dict[str, TrustTrial], online_adaptation.AdaptationScores]:  # fmt: skip
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
    followed = online_adaptation.score_methods(
        ensemble, [reading.latents for reading in readings], in_orders, truth, metric
    )
    if model.online is not None and model.adaptation == "none":
        windows = (recordings.X[rows], recorded.log_p, y)
        followed = online_adaptation.score_rules(followed, model, *windows, list(orders.values()), metric)
    return scores, trials, followed


def window_orders(y: NDArray[np.int64]) -> dict[str, Rows]:
    """Return ORDERS of windows of classes (n,): as recorded, at random, class after class, and the largest class before
    all others."""
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
        z[0].double()
        for z, stack in zip(read.latents, ensemble.stacks, strict=True)
        if stack.setting.encoder == "linear"
    ]
    for labels in LABELS:
        known, left = labeled_and_scored(read.y, groups, labels)
        if len(np.unique(read.y[left])) < len(np.unique(read.y)):
            continue
        correction = person.calibration(read.latents, y, torch.from_numpy(known))
        trials[str(labels)] = try_all(read.log_p[left], correction[left], y[left], metric)
        scores["before_calibration", str(labels)] = window_score(metric, read.y[left], read.log_p[left].numpy())
        if solved:
            personal = personal_log_probs(solved, read.y, groups, known, n_classes)
            scores["personal", str(labels)] = window_score(metric, read.y[left], personal[left].numpy())
    return scores, trials


def helpful_labels(before: dict[str, Scores], after: dict[str, Scores]) -> list[int]:
    """Return the numbers of labels with which people gained on average, from their scores before and after calibration;
    none if they lost over all numbers together, because a single number that helps is then chance.

    No clear gain is required, because how much labels count is already chosen on other people (labels.py). A number
    that nobody had windows for counts as the largest smaller one that was tried.
    """
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
    """Return the largest number of labels that was tried and is not above this one."""
    return max((number for number in LABELS if number <= labels and str(number) in tried), default=None)
