"""Scores by subject of what a run delivers, of its baselines and of the settings that it trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..censoring import CENSORS
from ..runs.choice import Choice
from ..runs.results import Trained
from ..tasks.classification import BALANCED_ACCURACY
from .summary import Summary
from .wording import method_label

BASELINE = "baseline"  # keys of baselines begin with it, followed by a number
DELIVERED = "nested"
Scores = dict[str, dict[str, float]]  # name of a setting -> subject -> mean score


@dataclass(frozen=True)
class Candidate:
    """A setting and its validation scores. Test scores are not in it."""

    name: str
    method: str  # "none": uncensored
    q25: float  # lower quartile over subjects
    mean: float


@dataclass(frozen=True)
class Contender:
    """A model and its test scores by subject, mean over seeds."""

    key: str  # "nested", "published", "choosing", "equal", "ensemble", "uncensored", "none", a baseline or a method
    label: str
    setting: str | None  # its name; None: it differs between subjects
    scores: dict[str, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    @property
    def is_method(self) -> bool:
        """Whether it is a penalty method, one of the candidates."""
        return self.key in CENSORS

    @property
    def is_baseline(self) -> bool:
        """Whether it is a baseline without a network."""
        return self.key.startswith(BASELINE)


def choice_rows(choice: Choice) -> list[Contender]:
    """Return what is delivered, the baselines, alternatives from the same candidates, and the paper's network."""
    tests, others, alone = choice.test_scores, choice.alternatives, choice.ensemble is None
    name = "nested choice" if alone else "average, nested"
    rows = [Contender(DELIVERED, name, None, choice.estimate)]
    if alone:
        rows.append(Contender("published", "as published", choice.chosen.name, tests["chosen"]))
    rows += [
        Contender(f"{BASELINE} {n}", label, None, scores) for n, (label, scores) in enumerate(choice.baselines.items())
    ]
    rows += [
        Contender("choosing", "best single, nested", None, others.get("best_single", {})),
        Contender("equal", "equal weights, nested", None, others.get("equal_weights", {})),
        Contender("ensemble", f"ensemble, {choice.plain_label}", None, others.get("paper_network", {})),
    ]
    if alone and choice.best_uncensored != choice.paper_network:
        scores = tests.get("best_uncensored", {})
        rows.append(Contender("uncensored", "best uncensored", choice.best_uncensored.name, scores))
    if choice.paper_network is not None:
        rows.append(Contender("none", choice.plain_label, choice.paper_network.name, tests["paper_network"]))
    return _with_scores(rows)


def contenders(summary: Summary) -> list[Contender]:
    """Return the rows of the choice, then each penalty method with the setting that validation ranks first."""
    best: dict[str, str] = {}  # method -> the setting that stands for it, by validation alone
    for candidate in ranking(summary):
        best.setdefault(candidate.method, candidate.name)
    scores, choice = scores_on_test(summary), summary.choice
    order = dict.fromkeys(["none", *CENSORS, *best])
    methods = [Contender(m, method_label(m), best[m], scores.get(best[m], {})) for m in order if m in best]
    if choice is None:
        return _with_scores(methods)
    # Records of trainings hold balanced accuracies, which cannot be compared with another metric.
    own = methods if choice.metric == BALANCED_ACCURACY else []
    return _with_scores([*choice_rows(choice), *(row for row in own if row.key != "none")])


def _with_scores(rows: Iterable[Contender]) -> list[Contender]:
    finite = (Contender(row.key, row.label, row.setting, finite_scores(row.scores)) for row in rows)
    return [row for row in finite if row.scores]


def find(rows: Iterable[Contender], key: str) -> Contender | None:
    return next((row for row in rows if row.key == key), None)


def best_baseline(rows: Iterable[Contender]) -> Contender | None:
    """Return the baseline with the highest mean, or the paper's network if no baseline was scored."""
    rows = list(rows)
    return max((row for row in rows if row.is_baseline), key=lambda row: row.mean, default=find(rows, "none"))


# ---- trainings -------------------------------------------------------------------------------------------------------


def ranking(summary: Summary) -> list[Candidate]:
    """Return the candidates, the best first: by mean if candidates are averaged, else by lower quartile."""
    candidates = []
    for name, scores in scores_on_validation(summary).items():
        values, method = list(scores.values()), summary.settings[name].method or "none"
        candidates.append(Candidate(name, method, float(np.percentile(values, 25)), float(np.mean(values))))
    if summary.ensemble is not None:
        return sorted(candidates, key=lambda candidate: (-candidate.mean, -candidate.q25))
    return sorted(candidates, key=lambda candidate: (-candidate.q25, -candidate.mean))


def stage_two_trainings(summary: Summary) -> list[Trained]:
    """Return the trainings of settings that were trained on every fold, failed ones too.

    A finished job is not trained again, so the first fold of a candidate may belong to the stage "search".
    """
    if summary.choice is not None:
        listed = {named.name for named in summary.choice.shortlist}
    else:
        listed = {training.name for training in summary.trainings if training.stage == "folds"}
    return [training for training in summary.trainings if training.name in listed]


def scores_on_test(summary: Summary) -> Scores:
    """Return the score of each setting on every test subject, mean over seeds."""
    done = [training for training in stage_two_trainings(summary) if not training.failed]
    rows = ((training.name, who, score) for training in done for who, score in training.scores.items())
    return _by_subject(summary, rows)


def scores_on_validation(summary: Summary) -> Scores:
    """Return the scores that decide the choice, by validation subject; a failed job counts as 0.

    Both held-out subjects are absent from training, so each fold gives two scores: the second with validation and test
    exchanged. If groups are held out, each is scored by the snapshot that the other chose.
    """
    rows = []
    for training in stage_two_trainings(summary):
        twin = training.record.swapped
        if len(training.scores) > 1 or len(training.swapped_scores) > 1:
            scores = training.scores | training.swapped_scores
        else:
            scores = {str(training.validation_subject): training.record.validation_score}
            scores |= {} if twin is None else {str(training.test_subject): twin.validation_score}
        rows += [(training.name, who, 0.0 if training.failed else score) for who, score in scores.items()]
    return _by_subject(summary, rows)


def _by_subject(summary: Summary, rows: Iterable[tuple[str, str, float]]) -> Scores:
    """Return means over finite scores; if parts of subjects are held out, the mean over each subject's parts."""
    values: dict[str, dict[str, list[float]]] = {}
    for name, subject, value in rows:
        if math.isfinite(value):
            values.setdefault(name, {}).setdefault(subject, []).append(value)
    means = {name: {s: float(np.mean(v)) for s, v in by_subject.items()} for name, by_subject in values.items()}
    units = summary.data.units
    return means if units is None else {name: units.by_person(scores) for name, scores in means.items()}


def finite_scores(scores: Mapping[str, float]) -> dict[str, float]:
    return {key: value for key, value in scores.items() if math.isfinite(value)}
