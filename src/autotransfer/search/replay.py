"""Replay windows of held-out subjects: pseudo-online evaluation of adaptation and of calibration with a few labels.

All windows of every scored subject are replayed in several orders, by fits and weights that do not depend on the
subject. Mean gains determine whether the delivered model adapts to a new subject, and the trust in labels (labels.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..models.adaptation import NO_ADAPTATION, Adaptation
from ..models.building import CandidateCache, CandidateFits, add_online_ensemble, build_model
from ..models.calibration import LABELS
from ..models.ensemble import Ensemble
from ..models.model import Model
from ..recordings import Recordings
from ..runs.choice import Choice, ReplayResult, Scores
from ..runs.run import Run
from ..settings import Setting
from ..tasks import Metric
from ..tasks.classification import BALANCED_ACCURACY, METRICS
from ..training.intervals import is_helpful
from .evaluation import Predictions
from .labels import (
    SHARES,
    SHARPNESS,
    Rows,
    TrustScores,
    personal_log_probs,
    score_trust,
    select_trust,
    split_windows,
    window_groups,
    window_score,
)
from .models import states_and_folds
from .online_adaptation import (
    AdaptationScores,
    score_centering,
    score_class_means,
    select_helpful_method,
    select_method,
    select_without_each,
)
from .selection import OnlineWeights

MAX_SEEDS = 2  # seeds of each network that are replayed
ORDERS = ("recorded", "balanced", "one-sided", "one class first")  # orders of windows, see `make_orders`
T = TypeVar("T")


def replay_subjects(
    run: Run, selection: Choice, log_probs: Predictions, online: OnlineWeights | None = None
) -> ReplayResult | None:
    """Replay the windows of held-out subjects.

    Return None if a model needs all windows of a subject at once, or has no subject effects. log_probs: predictions
    for each subject by the delivered model. online: weights of the online ensemble.
    """
    recordings = run.recordings
    nested = {} if selection.ensemble is None else selection.ensemble.nested
    tables: dict[str, dict[str, Scores]] = {}  # by field of `ReplayResult`, number of labels and subject
    trust: dict[str, dict[str, TrustScores]] = {}  # by number of labels and subject
    adaptation: dict[str, AdaptationScores] = {}
    caches: dict[tuple[int, ...], CandidateCache] = defaultdict(dict)  # by group
    group_of = {subject: tuple(group) for group in run.groups for subject in group}
    for subject, log_p in log_probs.items():
        name, cache = str(recordings.subjects[subject]), caches[group_of[subject]]
        weights = selection.by_setting(nested.get(name, {}))
        model = held_out_model(run, weights, subject, online and online.nested[subject], cache)
        if model is None or any(candidate.effects is None for candidate in model.candidates):
            return None
        rows = np.flatnonzero(recordings.subject.numpy() == subject)
        scores, trust_scores, adaptation[name] = replay_subject(model, recordings, rows, log_p, run.options.scoring)
        for (table, labels), score in scores.items():
            tables.setdefault(table, {}).setdefault(labels, {})[name] = score
        for labels, trust_score in trust_scores.items():
            trust.setdefault(labels, {})[name] = trust_score
    if not adaptation:
        return None
    for labels, by_subject in trust.items():
        for name, trust_score in by_subject.items():  # trust in labels is selected on the other subjects
            share, _ = select_trust([other for subject, other in by_subject.items() if subject != name])
            tables.setdefault("calibrated", {}).setdefault(labels, {})[name] = float(trust_score.score[share])
    best = {labels: select_trust(list(by_subject.values())) for labels, by_subject in trust.items()}
    label_tables: dict[str, Any] = {
        table: {labels: run.average_units(scores) for labels, scores in tables.get(table, {}).items()}
        for table in ("before_calibration", "calibrated", "personal")
    }
    before, after = tables.get("before_calibration", {}), tables.get("calibrated", {})
    return ReplayResult(
        **label_tables,
        **summarize_adaptation(adaptation, run.average_units, selection.is_guessing_without),
        calibrates_with=[] if selection.is_guessing else find_helpful_label_numbers(before, after),
        trust={str(labels): [SHARES[k], SHARPNESS[n]] for labels, (k, n) in fill_label_numbers(best).items()},
    )


def fill_label_numbers(values: Mapping[str, T]) -> dict[int, T]:
    """Return values for the numbers of labels in LABELS. A missing value is copied from the next smaller number."""
    filled: dict[int, T] = {}
    for labels in LABELS:
        available = [values[str(number)] for number in LABELS if number <= labels and str(number) in values]
        filled |= {labels: available[-1]} if available else {}
    return filled


def summarize_adaptation(
    subjects: Mapping[str, AdaptationScores], average_units: Callable[[Scores], Scores],
    is_guessing: Callable[[str | None], bool],
) -> dict[str, Any]:  # fmt: skip
    """Return the fields of `ReplayResult` about adaptation.

    average_units: function that averages scores over the held-out units of a subject. is_guessing: function of a
    subject or None. If scores without the subject, or all scores, are not clearly above chance, adaptation is disabled.
    """
    stacked = AdaptationScores.stack(list(subjects.values()))
    selected = select_without_each(stacked.online_gains, select_helpful_method)
    methods = [NO_ADAPTATION if is_guessing(name) else m for name, m in zip(subjects, selected, strict=True)]

    def by_order(methods: Sequence[str]) -> dict[str, Scores]:
        """Return scores by order of windows. methods: method of each subject."""
        scores = np.stack([stacked.in_order[method][k] for k, method in enumerate(methods)])  # (S, orders)
        tables = (dict(zip(subjects, column, strict=True)) for column in scores.T.tolist())
        return {order: average_units(table) for order, table in zip(ORDERS, tables, strict=True)}

    results: dict[str, Any] = {
        "zero_shot": by_order([NO_ADAPTATION] * len(subjects)),
        "adapted": by_order(methods),
        "session_method": NO_ADAPTATION if is_guessing(None) else select_helpful_method(stacked.online_gains),
    }
    if not stacked.all_windows:
        return results
    gains = stacked.transductive_gains
    pairs = enumerate(zip(subjects, select_without_each(gains, select_method), strict=True))
    return results | {
        "all_windows": average_units({name: float(stacked.all_windows[method][k]) for k, (name, method) in pairs}),
        "transductive_method": NO_ADAPTATION if is_guessing(None) else select_helpful_method(gains),
    }


def held_out_model(
    run: Run, weights: Mapping[Setting, float], subject: int, online: Mapping[Setting, float] | None = None,
    cache: CandidateCache | None = None,
) -> Model | None:  # fmt: skip
    """Return the model of fits that were tested on the subject, with an online ensemble if a fit centers features.

    Return None if a model needs all windows of a subject at once. online: weights of the online ensemble.
    """
    if any(setting.adaptation == "transductive" for setting in weights):
        return None
    candidates = _find_tested_fits(run, weights, subject)
    if not candidates:
        return None
    model, online = build_model(run.recordings, candidates, scores={}, encoders=run.encoders, cache=cache), online or {}
    shared = [candidate.setting for candidate in model.candidates]
    added = _find_tested_fits(run, {s: weight for s, weight in online.items() if s not in shared}, subject)
    if not any(candidate.setting.adaptation == "online" for candidate in added):
        return model
    return add_online_ensemble(
        run.recordings, model, [online.get(setting, 0.0) for setting in shared], added, run.encoders, cache
    )


def _find_tested_fits(run: Run, weights: Mapping[Setting, float], subject: int) -> list[CandidateFits]:
    """Return the fits of each setting that were tested on the subject."""
    entries = [e for e in run.database.entries(records=False) if e.status == "done" and subject in run.groups[e.test]]
    fits = []
    for setting, weight in weights.items():
        by_seed = {e.seed: e for e in entries if e.setting == setting}
        selected = list(by_seed.values())[: 1 if setting.network.is_closed_form else MAX_SEEDS]
        if selected:
            fits.append(CandidateFits(setting, *states_and_folds(run, selected), weight))
    return fits


class DecodedWindows(NamedTuple):
    """Latents and log-probabilities of one subject's windows in one order."""

    latents: list[Tensor]  # (P, n, D) of each stack
    log_p: Tensor  # (n, C), not necessarily normalized


@torch.inference_mode()
def replay_subject(
    model: Model, recordings: Recordings, rows: Rows, log_p: NDArray[np.floating] | None = None,
    metric: Metric = METRICS[BALANCED_ACCURACY],
) -> tuple[dict[tuple[str, str], float], dict[str, TrustScores], AdaptationScores]:  # fmt: skip
    """Replay the windows of one subject. log_p: log-probabilities (n, C) in recorded order; None: use the model.

    Return scores by field of `ReplayResult` and number of labels, scores of trust in labels by number of labels, and
    scores of adaptation without labels.
    """
    y, ensemble = recordings.y.numpy()[rows], model.ensemble
    orders = make_orders(y)

    def decode(order: Rows) -> DecodedWindows:
        return DecodedWindows(*ensemble.predict_with_latents(recordings.X[rows[order]], ensemble.start_subject()))

    recorded = decode(orders["recorded"])
    if log_p is not None:
        recorded = recorded._replace(log_p=torch.from_numpy(np.asarray(log_p, dtype=np.float64)))
    scores, trust = _score_with_labels(ensemble, recorded, y, window_groups(recordings, rows), metric)
    if model.adaptation == "none":
        decoded = [DecodedWindows([z[:, o] for z in recorded.latents], recorded.log_p[o]) for o in orders.values()]
    else:  # an online model adapts to the windows before the predicted window
        decoded = [recorded, *(decode(order) for name, order in orders.items() if name != "recorded")]
    log_probs, truth = torch.stack([d.log_p for d in decoded]), torch.from_numpy(y[np.stack(list(orders.values()))])
    adaptation = score_class_means(ensemble, [d.latents for d in decoded], log_probs, truth, metric)
    if model.card.online is not None and model.adaptation == "none":
        windows = (recordings.X[rows], recorded.log_p, y)
        adaptation = score_centering(adaptation, model, *windows, list(orders.values()), metric)
    return scores, trust, adaptation


def make_orders(y: NDArray[np.int64]) -> dict[str, Rows]:
    """Return window indices by order: as recorded, at random, class by class, and with the largest class first."""
    shuffled = np.random.default_rng(len(y)).permutation(len(y))
    largest = np.bincount(y).argmax()
    largest_first = shuffled[np.argsort(y[shuffled] != largest, kind="stable")]
    return dict(zip(ORDERS, (np.arange(len(y)), shuffled, np.argsort(y, kind="stable"), largest_first), strict=True))


def _score_with_labels(
    ensemble: Ensemble, decoded: DecodedWindows, truth: Rows, groups: Rows, metric: Metric
) -> tuple[dict[tuple[str, str], float], dict[str, TrustScores]]:
    """Score the model before calibration, a personal classifier, and trust in labels, by number of labels."""
    scores: dict[tuple[str, str], float] = {}
    trust: dict[str, TrustScores] = {}
    y, n_classes = torch.from_numpy(truth), decoded.log_p.shape[1]
    adaptation, x = Adaptation(*ensemble.effects_and_weights), ensemble.project(decoded.latents)
    pairs = zip(decoded.latents, ensemble.stacks, strict=True)
    features = [z[0].double() for z, stack in pairs if stack.setting.encoder == "linear"]
    for labels in LABELS:
        labeled, scored = split_windows(truth, groups, labels)
        if len(np.unique(truth[scored])) < len(np.unique(truth)):
            continue
        correction = adaptation.correct_by_labels(x, y, torch.from_numpy(labeled))
        log_p = decoded.log_p[scored]
        trust[str(labels)] = score_trust(log_p, correction[scored], y[scored], metric)
        scores["before_calibration", str(labels)] = window_score(metric, truth[scored], log_p.numpy())
        if features:
            personal = personal_log_probs(features, truth, groups, labeled, n_classes)
            scores["personal", str(labels)] = window_score(metric, truth[scored], personal[scored].numpy())
    return scores, trust


def find_helpful_label_numbers(before: dict[str, Scores], after: dict[str, Scores]) -> list[int]:
    """Return the numbers of labels per class that are helpful; trust in labels was selected on other subjects."""
    gains = {
        labels: np.array([score - before[labels][name] for name, score in scores.items()])
        for labels, scores in after.items()
    }
    return [labels for labels, by_subject in fill_label_numbers(gains).items() if is_helpful(by_subject)]
