"""Replay windows of held-out subjects: pseudo-online evaluation of adaptation and of calibration with a few labels.

All windows of every subject in the headline are replayed in several orders, by fits and weights that left the subject
out. The mean gains decide whether the delivered model adapts to a new subject, and how much labels count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.building import CandidateCache, CandidateFits, add_online_ensemble, build_model
from ..models.calibration import LABELS
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION, Adaptation
from ..recordings import Recordings
from ..runs.choice import ReplayResult, Scores, Selection
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.centering import CenteringRule
from .evaluation import Predictions
from .labels import (
    SHARES,
    SHARPNESS,
    Rows,
    TrustScores,
    best_trust,
    personal_log_probs,
    score_trust,
    split_windows,
    window_groups,
    window_score,
)
from .models import states_and_folds
from .online_adaptation import (
    ROUNDING,
    RULES,
    AdaptationScores,
    add_unused_rules,
    best_rule,
    delivered_method,
    score_methods,
    score_rules,
    select_without_each,
)
from .selection import OnlineWeights

MAX_SEEDS = 2  # of a network
ORDERS = ("recorded", "balanced", "one-sided", "one class first")
T = TypeVar("T")


def replay_subjects(
    run: Run, selection: Selection, log_probs: Predictions, online: OnlineWeights | None = None
) -> ReplayResult | None:
    """Replay the windows of held-out subjects.

    Return None if a model needs all windows of a subject at once, or has no subject effects. log_probs: of the
    headline. online: weights of the online ensemble.
    """
    recordings = run.recordings
    nested = {} if selection.ensemble is None else selection.ensemble.nested
    tables: dict[str, dict[str, Scores]] = {}
    trust: dict[str, dict[str, TrustScores]] = {}  # by number of labels and subject
    adaptation: dict[str, AdaptationScores] = {}
    built: dict[tuple[int, ...], CandidateCache] = defaultdict(dict)  # by subjects that are held out together
    held_out_with = {subject: tuple(group) for group in run.groups for subject in group}
    for subject, log_p in log_probs.items():
        name, candidates = str(recordings.subjects[subject]), built[held_out_with[subject]]
        weights = selection.by_setting(nested.get(name, {}))
        model = held_out_model(run, weights, subject, online and online.nested[subject], candidates)
        if model is None or any(part.effects is None for part in model.candidates):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == subject)
        scores, trust_scores, adaptation[name] = replay_subject(model, recordings, rows, log_p, run.options.scoring)
        for (table, case), score in scores.items():
            tables.setdefault(table, {}).setdefault(case, {})[name] = score
        for labels, of_subject in trust_scores.items():
            trust.setdefault(labels, {})[name] = of_subject
    if not adaptation:
        return None
    if any(of_subject.all_windows for of_subject in adaptation.values()):
        adaptation = {name: one if one.all_windows else add_unused_rules(one) for name, one in adaptation.items()}
    for labels, by_subject in trust.items():
        for name, of_subject in by_subject.items():  # the other subjects decide how much labels count
            share, _ = best_trust([other for subject, other in by_subject.items() if subject != name])
            tables.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(of_subject.score[share])
    best = {labels: best_trust(list(by_subject.values())) for labels, by_subject in trust.items()}
    with_labels: dict[str, Any] = {
        table: {labels: run.by_person(scores) for labels, scores in tables.get(table, {}).items()}
        for table in ("before_calibration", "calibrated", "personal")
    }
    return ReplayResult(
        **with_labels,
        **adaptation_results(adaptation, run.by_person),
        calibrates_with=helpful_labels(tables.get("before_calibration", {}), tables.get("calibrated", {})),
        trust={str(labels): [SHARES[k], SHARPNESS[n]] for labels, (k, n) in for_every_number(best).items()},
    )


def for_every_number(tried: Mapping[str, T]) -> dict[int, T]:
    """Return values by number of labels; a number that was not tried has the value of the largest smaller one."""
    found: dict[int, T] = {}
    for labels in LABELS:
        known = [tried[str(number)] for number in LABELS if number <= labels and str(number) in tried]
        found |= {labels: known[-1]} if known else {}
    return found


def adaptation_results(
    subjects: Mapping[str, AdaptationScores], by_person: Callable[[Scores], Scores]
) -> dict[str, Any]:
    """Return the fields of `ReplayResult` on adaptation without labels. by_person: means over each person's units."""
    stacked = AdaptationScores.stack(list(subjects.values()))

    def by_order(methods: Sequence[str]) -> dict[str, Scores]:
        """Return scores by order of windows. methods: of each subject."""
        scores = {name: subjects[name].by_method[method][0] for name, method in zip(subjects, methods, strict=True)}
        return {
            order: by_person({name: float(one[k]) for name, one in scores.items()}) for k, order in enumerate(ORDERS)
        }

    methods = select_without_each(stacked, delivered_method)
    gain = np.mean([stacked.gains(method)[k].mean() for k, method in enumerate(methods)])
    method = delivered_method(stacked) if gain > ROUNDING else NO_ADAPTATION
    # Models without the online ensemble adapt too.
    on_latents = delivered_method(stacked, list(ADAPTATION_METHODS)) if method in RULES else method
    results: dict[str, Any] = {
        "zero_shot": by_order([NO_ADAPTATION] * len(subjects)),
        "adapted": by_order(methods),
        "methods": {name: by_order([name] * len(subjects)) for name in ADAPTATION_METHODS},
        "adaptation_method": on_latents,
    }
    if not stacked.all_windows:
        return results
    rules = select_without_each(stacked, best_rule)
    at_once = {
        name: float(stacked.all_windows[rule][k]) for k, (name, rule) in enumerate(zip(subjects, rules, strict=True))
    }
    gains = [at_once[name] - stacked.by_method[NO_ADAPTATION][k, 0] for k, name in enumerate(subjects)]
    return results | {
        "online": by_order(rules),
        "all_windows": by_person(at_once),
        "rule": RULES[best_rule(stacked)],
        "online_session": method in RULES,
        "online_all_windows": float(np.mean(gains)) >= 0,
    }


def held_out_model(
    run: Run, weights: Mapping[Setting, float], subject: int, online: Mapping[Setting, float] | None = None,
    built: CandidateCache | None = None,
) -> Model | None:  # fmt: skip
    """Return the ensemble of fits that tested on the subject, with the online ensemble if a part of it centers.

    Return None if a model needs all windows of a subject at once. online: weights of the online ensemble.
    """
    if any(setting.adaptation == "transductive" for setting in weights):
        return None
    parts = _held_out_parts(run, weights, subject)
    if not parts:
        return None
    model, more = build_model(run.recordings, parts, scores={}, encoders=run.encoders, cache=built), online or {}
    shared = [part.setting for part in model.candidates]
    extra = _held_out_parts(run, {s: weight for s, weight in more.items() if s not in shared}, subject)
    if not any(part.setting.adaptation == "online" for part in extra):
        return model
    return add_online_ensemble(
        run.recordings, model, [more.get(setting, 0.0) for setting in shared], extra, CenteringRule(),
        is_used_in_sessions=True, is_used_transductively=True, encoders=run.encoders, cache=built,
    )  # fmt: skip


def _held_out_parts(run: Run, weights: Mapping[Setting, float], subject: int) -> list[CandidateFits]:
    """Return the parts of a model from fits that tested on the subject."""
    entries = [e for e in run.database.entries(records=False) if e.status == "done" and subject in run.groups[e.test]]
    parts = []
    for setting, weight in weights.items():
        by_seed = {e.seed: e for e in entries if e.setting == setting}
        used = list(by_seed.values())[: 1 if setting.network.closed_form else MAX_SEEDS]
        if used:
            parts.append(CandidateFits(setting, *states_and_folds(run, used), weight))
    return parts


class DecodedWindows(NamedTuple):
    """Latents and log-probabilities of one subject's windows in one order."""

    latents: list[Tensor]  # (P, n, D) of each stack
    log_p: Tensor  # (n, C) up to a constant for each window


@torch.inference_mode()
def replay_subject(
    model: Model, recordings: Recordings, rows: Rows, log_p: NDArray[np.floating] | None = None,
    metric: Metric = METRICS[BALANCED_ACCURACY],
) -> tuple[dict[tuple[str, str], float], dict[str, TrustScores], AdaptationScores]:  # fmt: skip
    """Replay the windows of one subject. log_p: log-probabilities (n, C) as recorded; None: the model's own.

    Return scores by table of `ReplayResult` and number of labels, scores of trust in labels by number of labels, and
    scores of adaptation without labels.
    """
    y, ensemble = recordings.y.numpy()[rows], model.ensemble
    orders = window_orders(y)

    def decode(order: Rows) -> DecodedWindows:
        return DecodedWindows(*ensemble.predict_with_latents(recordings.X[rows[order]], ensemble.start_subject()))

    recorded = decode(orders["recorded"])
    if log_p is not None:
        recorded = recorded._replace(log_p=torch.from_numpy(np.asarray(log_p, dtype=np.float64)))
    scores, trust = _score_with_labels(ensemble, recorded, y, window_groups(recordings, rows), metric)
    if model.adaptation == "none":
        decoded = [DecodedWindows([z[:, o] for z in recorded.latents], recorded.log_p[o]) for o in orders.values()]
    else:  # an online model decodes a window by the windows before it
        decoded = [recorded, *(decode(order) for name, order in orders.items() if name != "recorded")]
    in_orders, truth = torch.stack([d.log_p for d in decoded]), torch.from_numpy(y[np.stack(list(orders.values()))])
    adaptation = score_methods(ensemble, [d.latents for d in decoded], in_orders, truth, metric)
    if model.online is not None and model.adaptation == "none":
        windows = (recordings.X[rows], recorded.log_p, y)
        adaptation = score_rules(adaptation, model, *windows, list(orders.values()), metric)
    return scores, trust, adaptation


def window_orders(y: NDArray[np.int64]) -> dict[str, Rows]:
    """Return ORDERS of windows of classes (n,): as recorded, at random, class by class, and the largest class first."""
    drawn = np.random.default_rng(len(y)).permutation(len(y))
    first = np.bincount(y).argmax()
    one_first = drawn[np.argsort(y[drawn] != first, kind="stable")]
    return dict(zip(ORDERS, (np.arange(len(y)), drawn, np.argsort(y, kind="stable"), one_first), strict=True))


def _score_with_labels(
    ensemble: Ensemble, decoded: DecodedWindows, truth: Rows, groups: Rows, metric: Metric
) -> tuple[dict[tuple[str, str], float], dict[str, TrustScores]]:
    """Score the model before calibration, a personal classifier, and trust in labels, by number of labels."""
    scores: dict[tuple[str, str], float] = {}
    trust: dict[str, TrustScores] = {}
    y, n_classes = torch.from_numpy(truth), decoded.log_p.shape[1]
    adaptation = Adaptation(*ensemble.effects)
    features = [
        z[0].double()
        for z, stack in zip(decoded.latents, ensemble.stacks, strict=True)
        if stack.setting.encoder == "linear"
    ]
    for labels in LABELS:
        labeled, scored = split_windows(truth, groups, labels)
        if len(np.unique(truth[scored])) < len(np.unique(truth)):
            continue
        correction = adaptation.label_correction(decoded.latents, y, torch.from_numpy(labeled))
        log_p = decoded.log_p[scored]
        trust[str(labels)] = score_trust(log_p, correction[scored], y[scored], metric)
        scores["before_calibration", str(labels)] = window_score(metric, truth[scored], log_p.numpy())
        if features:
            personal = personal_log_probs(features, truth, groups, labeled, n_classes)
            scores["personal", str(labels)] = window_score(metric, truth[scored], personal[scored].numpy())
    return scores, trust


def helpful_labels(before: dict[str, Scores], after: dict[str, Scores]) -> list[int]:
    """Return the numbers of labels whose mean gain by calibration is not negative; none if the mean over all is.

    No clear gain is required, because trust in labels is selected on other subjects (labels.py).
    """
    gains = {
        labels: [score - before[labels][name] for name, score in scores.items()] for labels, scores in after.items()
    }
    if not gains or np.mean(np.concatenate(list(gains.values()))) < 0:
        return []
    return [labels for labels, by_subject in for_every_number(gains).items() if np.mean(by_subject) >= 0]
