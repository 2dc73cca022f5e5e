"""Select the model that a run delivers, and the one that it would have delivered without each subject.

A rule that selects for a subject is given evidence without the subject. No test score can reach a rule, because there
is none in evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..preprocessing import strongest_adaptation
from ..runs.choice import Ensemble, NamedSetting, Selection, WeightedCandidate
from .average import find_weights
from .evidence import ClassificationEvidence, Evidence
from .ranking import Score, best_lower_quartile, best_mean, lower_quartile, mean_score
from .regression_evidence import RegressionEvidence
from .weights import Floats

Weigh = Callable[[Any, Sequence[int]], Floats]  # from evidence and candidates to weights (K,)


@dataclass(frozen=True)
class Rule:
    """Rule by which a run selects from evidence among some candidates."""

    best: Callable[[Any, Sequence[int]], int]  # the best candidate
    weigh: Weigh | None = None  # None: the best candidate is delivered alone


def _rank_by(
    rank: Callable[[Sequence[Score], Sequence[str]], str],
) -> Callable[[ClassificationEvidence, Sequence[int]], int]:
    """Return the function that selects the best candidate by validation scores."""

    def best(evidence: ClassificationEvidence, among: Sequence[int]) -> int:
        keys = [evidence.candidates[k].setting.key for k in among]
        return among[keys.index(rank(evidence.scores, keys))]

    return best


RULES = {
    "average": Rule(_rank_by(best_mean), find_weights),
    "published": Rule(_rank_by(best_lower_quartile)),
    "least squares": Rule(RegressionEvidence.best, RegressionEvidence.weights),
}


def select(evidence: Evidence, rule: str, paper_network: NamedSetting | None = None) -> Selection:
    """Select for a new subject, and for each subject from the evidence without the subject.

    paper_network: the candidate that scores are compared with, if it was trained.
    """
    best, weigh, candidates = RULES[rule].best, RULES[rule].weigh, evidence.candidates
    without = {subject: evidence.without([subject]) for subject in evidence.held_out_subjects}
    everything = list(range(len(candidates)))
    uncensored = _uncensored(evidence, everything)

    def select_without_each(among: Sequence[int]) -> dict[str, str]:
        return {evidence.subjects[subject]: candidates[best(others, among)].name for subject, others in without.items()}

    chosen = candidates[best(evidence, everything)]
    ensemble = None if weigh is None else _weigh(evidence, chosen, weigh)
    validation = {named.name: evidence.candidate_validation(k) for k, named in enumerate(candidates)}
    used = [chosen] if ensemble is None else [named for named in candidates if named.name in ensemble.weights]
    return Selection(
        shortlist=list(candidates),
        chosen=chosen,
        best_uncensored=candidates[best(evidence, uncensored)],
        paper_network=paper_network,
        validation_q25={name: lower_quartile(values) for name, values in validation.items()},
        validation_mean={name: mean_score(values) for name, values in validation.items()},
        nested_choices=select_without_each(everything),
        nested_uncensored_choices=select_without_each(uncensored),
        adaptation=strongest_adaptation([named.setting.adaptation for named in used]),
        ensemble=ensemble,
    )


def _uncensored(evidence: Evidence, among: Sequence[int]) -> list[int]:
    """Return the candidates without a penalty."""
    return [k for k in among if evidence.candidates[k].setting.penalty is None]


def _weigh(evidence: Evidence, best: NamedSetting, weigh: Weigh) -> Ensemble:
    """Weigh the candidates that were trained, and again those without a penalty. best: listed if none has a weight."""
    candidates, among = evidence.candidates, list(evidence.trained)
    uncensored = _uncensored(evidence, among) or among

    def by_name(weights: Floats) -> dict[str, float]:
        return {candidate.name: beta for candidate, beta in zip(candidates, weights.tolist(), strict=True) if beta}

    nested, nested_uncensored = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for block in evidence.blocks:
        others, names = evidence.without(block), [evidence.subjects[subject] for subject in block]
        nested |= dict.fromkeys(names, by_name(weigh(others, among)))
        if uncensored != among:
            nested_uncensored |= dict.fromkeys(names, by_name(weigh(others, uncensored)))
    weights = by_name(weigh(evidence, among)) or {best.name: 0.0}
    total = sum(weights.values()) or 1.0
    strengths = evidence.strengths if isinstance(evidence, RegressionEvidence) else [None] * len(candidates)
    weighted = [
        WeightedCandidate(one.name, one.setting.family, weights[one.name] / total, weights[one.name], strength)
        for one, strength in zip(candidates, strengths, strict=True)
        if one.name in weights
    ]
    return Ensemble(
        candidates=sorted(weighted, key=lambda one: -one.weight),
        nested=nested,
        nested_uncensored=nested_uncensored,
    )
