"""Models of a run with their scores by subject: the delivered model, baselines and candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..censoring import CENSORS
from ..csv_tables import csv_text
from ..files import write_atomically
from ..runs.choice import Choice
from ..tasks.classification import BALANCED_ACCURACY
from .summary import Summary

BASELINE = "baseline"  # prefix of the keys of baselines
DELIVERED = "nested"  # key of the delivered model
Scores = dict[str, dict[str, float]]  # mean score by name of a setting and by subject


@dataclass(frozen=True)
class ScoredModel:
    """Model with its test scores by subject, averaged over seeds."""

    key: str  # "nested", "published", "choosing", "equal", "ensemble", "uncensored", "none", a baseline or a method
    label: str
    setting: str | None  # name of the setting; None if it differs between subjects
    scores: dict[str, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    @property
    def is_baseline(self) -> bool:
        """Return whether the model is a baseline."""
        return self.key.startswith(BASELINE)


def list_models(choice: Choice) -> list[ScoredModel]:
    """Return the delivered model, the baselines, alternatives from the same candidates, and the paper's network."""
    test_scores, alternatives, is_single = choice.test_scores, choice.alternatives, choice.ensemble is None
    paper_ensemble = f"ensemble of {choice.paper_network_label}"
    rows = [ScoredModel(DELIVERED, "delivered model", None, choice.estimate)]
    if is_single:
        rows.append(ScoredModel("published", "best setting, published rule", choice.chosen.name, test_scores["chosen"]))
    rows += [
        ScoredModel(f"{BASELINE} {n}", label, None, scores)
        for n, (label, scores) in enumerate(choice.baselines.items())
    ]
    rows += [
        ScoredModel("choosing", "best single candidate", None, alternatives.get("best_single", {})),
        ScoredModel("equal", "ensemble with equal weights", None, alternatives.get("equal_weights", {})),
        ScoredModel("ensemble", paper_ensemble, None, alternatives.get("paper_network", {})),
    ]
    if is_single and choice.best_uncensored != choice.paper_network:
        scores = test_scores.get("best_uncensored", {})
        rows.append(ScoredModel("uncensored", "best uncensored", choice.best_uncensored.name, scores))
    if choice.paper_network is not None:
        name, scores = choice.paper_network.name, test_scores["paper_network"]
        rows.append(ScoredModel("none", choice.paper_network_label, name, scores))
    return _select_scored(rows)


def score_table(choice: Choice) -> pd.DataFrame:
    """Return the table of scores.csv, with a row for each model and held-out subject."""
    metric = choice.metric
    rows = [
        [row.label, "baseline" if row.is_baseline else "delivered" if row.key == DELIVERED else "other", *item, metric]
        for row in list_models(choice)
        for item in row.scores.items()
    ]
    return pd.DataFrame(rows, columns=["model", "role", "subject", "score", "metric"])


def write_scores(folder: Path, choice: Choice) -> None:
    write_atomically(folder / "scores.csv", csv_text(score_table(choice)))


def list_methods(summary: Summary) -> list[ScoredModel]:
    """Return the models of `list_models`, then the best setting of each penalty method by validation scores."""
    choice = summary.choice
    if choice is None:
        return []
    rows = list_models(choice)
    # Fits are recorded with balanced accuracies, which cannot be compared with another metric.
    if choice.metric != BALANCED_ACCURACY:
        return rows
    best: dict[str, str] = {}  # method -> candidate with the best validation scores
    for name in rank_candidates(choice):
        if (setting := choice.settings.get(name)) is not None and setting.method is not None:
            best.setdefault(setting.method, name)
    scores = scores_on_test(summary, list(best.values()))
    methods = [method for method in CENSORS if method in best]
    return rows + _select_scored(ScoredModel(m, CENSORS[m].label, best[m], scores.get(best[m], {})) for m in methods)


def _select_scored(rows: Iterable[ScoredModel]) -> list[ScoredModel]:
    """Return the models with their finite scores, without models that have no finite score."""
    finite = (ScoredModel(row.key, row.label, row.setting, finite_scores(row.scores)) for row in rows)
    return [row for row in finite if row.scores]


def find_model(rows: Iterable[ScoredModel], key: str) -> ScoredModel | None:
    """Return the model with this key, or None."""
    return next((row for row in rows if row.key == key), None)


def best_baseline(rows: Iterable[ScoredModel]) -> ScoredModel | None:
    """Return the baseline with the highest mean, or the paper's network if no baseline was scored."""
    rows = list(rows)
    return max((row for row in rows if row.is_baseline), key=lambda row: row.mean, default=find_model(rows, "none"))


def rank_candidates(choice: Choice) -> list[str]:
    """Return the names of candidates, best first: by mean score for an ensemble, otherwise by lower quartile."""
    q25, mean = finite_scores(choice.validation_q25), finite_scores(choice.validation_mean)
    primary, secondary = (q25, mean) if choice.ensemble is None else (mean, q25)
    return sorted((name for name in mean if name in q25), key=lambda name: (-primary[name], -secondary[name]))


def scores_on_test(summary: Summary, names: Sequence[str]) -> Scores:
    """Return the scores of candidates by test subject: means over seeds and over held-out parts of a subject."""
    values: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for fit in summary.fits:
        if fit.name in values and not fit.failed:
            for subject, score in finite_scores(fit.scores).items():
                values[fit.name].setdefault(subject, []).append(score)
    means = {name: {s: float(np.mean(v)) for s, v in by_subject.items()} for name, by_subject in values.items()}
    units = summary.data.units
    return means if units is None else {name: units.average_by_subject(scores) for name, scores in means.items()}


def finite_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the finite scores."""
    return {key: value for key, value in scores.items() if math.isfinite(value)}
