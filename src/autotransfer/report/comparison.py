"""Scores by subject of the delivered model, of the baselines and of the candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..censoring import CENSORS
from ..runs.choice import Choice
from ..tasks.classification import BALANCED_ACCURACY
from .summary import Summary

BASELINE = "baseline"  # keys of baselines begin with it, followed by a number
DELIVERED = "nested"
Scores = dict[str, dict[str, float]]  # name of a setting -> subject -> mean score


@dataclass(frozen=True)
class ScoredModel:
    """A model and its test scores by subject, mean over seeds."""

    key: str  # "nested", "published", "choosing", "equal", "ensemble", "uncensored", "none", a baseline or a method
    label: str
    setting: str | None  # its name; None: it differs between subjects
    scores: dict[str, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    @property
    def is_baseline(self) -> bool:
        """Return whether the model is a baseline."""
        return self.key.startswith(BASELINE)


def list_models(choice: Choice) -> list[ScoredModel]:
    """Return what is delivered, the baselines, alternatives from the same candidates, and the paper's network."""
    tests, others, alone = choice.test_scores, choice.alternatives, choice.ensemble is None
    name = "nested choice" if alone else "average, nested"
    rows = [ScoredModel(DELIVERED, name, None, choice.estimate)]
    if alone:
        rows.append(ScoredModel("published", "as published", choice.chosen.name, tests["chosen"]))
    rows += [
        ScoredModel(f"{BASELINE} {n}", label, None, scores)
        for n, (label, scores) in enumerate(choice.baselines.items())
    ]
    rows += [
        ScoredModel("choosing", "best single, nested", None, others.get("best_single", {})),
        ScoredModel("equal", "equal weights, nested", None, others.get("equal_weights", {})),
        ScoredModel("ensemble", f"ensemble, {choice.paper_network_label}", None, others.get("paper_network", {})),
    ]
    if alone and choice.best_uncensored != choice.paper_network:
        scores = tests.get("best_uncensored", {})
        rows.append(ScoredModel("uncensored", "best uncensored", choice.best_uncensored.name, scores))
    if choice.paper_network is not None:
        rows.append(ScoredModel("none", choice.paper_network_label, choice.paper_network.name, tests["paper_network"]))
    return _with_scores(rows)


def list_methods(summary: Summary) -> list[ScoredModel]:
    """Return the rows of the choice, then each penalty method with the setting that validation ranks first."""
    choice = summary.choice
    if choice is None:
        return []
    rows = list_models(choice)
    # Records of fits hold balanced accuracies, which cannot be compared with another metric.
    if choice.metric != BALANCED_ACCURACY:
        return rows
    best: dict[str, str] = {}  # method -> its first candidate, by validation alone
    for name in ranking(choice):
        if (setting := choice.settings.get(name)) is not None and setting.method is not None:
            best.setdefault(setting.method, name)
    scores = scores_on_test(summary, list(best.values()))
    methods = [method for method in CENSORS if method in best]
    return rows + _with_scores(ScoredModel(m, CENSORS[m].label, best[m], scores.get(best[m], {})) for m in methods)


def _with_scores(rows: Iterable[ScoredModel]) -> list[ScoredModel]:
    """Return the rows that have finite scores, with these alone."""
    finite = (ScoredModel(row.key, row.label, row.setting, finite_scores(row.scores)) for row in rows)
    return [row for row in finite if row.scores]


def find(rows: Iterable[ScoredModel], key: str) -> ScoredModel | None:
    """Return the row with this key; None if there is none."""
    return next((row for row in rows if row.key == key), None)


def best_baseline(rows: Iterable[ScoredModel]) -> ScoredModel | None:
    """Return the baseline with the highest mean, or the paper's network if no baseline was scored."""
    rows = list(rows)
    return max((row for row in rows if row.is_baseline), key=lambda row: row.mean, default=find(rows, "none"))


def ranking(choice: Choice) -> list[str]:
    """Return the candidates, the best first: by mean if candidates are averaged, else by lower quartile."""
    q25, mean = finite_scores(choice.validation_q25), finite_scores(choice.validation_mean)
    first, second = (q25, mean) if choice.ensemble is None else (mean, q25)
    return sorted((name for name in mean if name in q25), key=lambda name: (-first[name], -second[name]))


def scores_on_test(summary: Summary, names: Sequence[str]) -> Scores:
    """Return the scores of candidates on every test subject: means over seeds and over the units of a subject."""
    values: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for training in summary.fits:
        if training.name in values and not training.failed:
            for subject, score in finite_scores(training.scores).items():
                values[training.name].setdefault(subject, []).append(score)
    means = {name: {s: float(np.mean(v)) for s, v in by_subject.items()} for name, by_subject in values.items()}
    units = summary.data.units
    return means if units is None else {name: units.by_person(scores) for name, scores in means.items()}


def finite_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores that are known."""
    return {key: value for key, value in scores.items() if math.isfinite(value)}
