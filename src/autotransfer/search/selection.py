"""Selection: what a run delivers, and what it would have delivered without each subject.

A rule is given evidence that the subject, for whom it selects, took no part in. No test score can reach it, because
there is none in `ClassificationEvidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..preprocessing import strongest_adaptation
from ..runs.choice import Ensemble, NamedSetting, Selection, WeightedCandidate
from .average import find_weights
from .evidence import ClassificationEvidence, Evidence
from .regression_evidence import RegressionEvidence
from .stages import Score, best_mean, choose, lower_quartile_of, mean_of
from .weights import Floats


@dataclass(frozen=True)
class Rule:
    """Rule by which a run selects from evidence among some candidates."""

    best: Callable[[Any, Sequence[int]], int]  # the best candidate
    weigh: Callable[[Any, Sequence[int]], Floats] | None = None  # weights; None: the best is delivered alone


def _by_scores(
    rank: Callable[[Sequence[Score], Sequence[str]], str],
) -> Callable[[ClassificationEvidence, Sequence[int]], int]:
    """Return the best candidate by validation scores. rank: from scores and keys to the best key."""

    def best(evidence: ClassificationEvidence, among: Sequence[int]) -> int:
        keys = [evidence.candidates[k].setting.key for k in among]
        return among[keys.index(rank(evidence.scores, keys))]

    return best


RULES = {
    "average": Rule(_by_scores(best_mean), find_weights),
    "published": Rule(_by_scores(choose)),
    "least squares": Rule(RegressionEvidence.best, RegressionEvidence.weights),
}


def select(evidence: Evidence, rule: str, paper_network: NamedSetting | None = None) -> Selection:
    """Select for a new subject, and for each subject from the evidence without them. paper_network: the candidate that
    scores are compared with, if it was trained."""
    best, weigh, candidates = RULES[rule].best, RULES[rule].weigh, evidence.candidates
    without = {person: evidence.without([person]) for person in evidence.people}
    everything = list(range(len(candidates)))
    uncensored = evidence.uncensored(everything)

    def by_name(among: Sequence[int]) -> dict[str, str]:
        return {evidence.subjects[person]: candidates[best(own, among)].name for person, own in without.items()}

    chosen = candidates[best(evidence, everything)]
    ensemble = None if weigh is None else _ensemble(evidence, chosen, weigh)
    validation = {named.name: evidence.validation(k) for k, named in enumerate(candidates)}
    used = [chosen] if ensemble is None else [named for named in candidates if named.name in ensemble.weights]
    return Selection(
        shortlist=list(candidates),
        chosen=chosen,
        best_uncensored=candidates[best(evidence, uncensored)],
        paper_network=paper_network,
        validation_q25={name: lower_quartile_of(values) for name, values in validation.items()},
        validation_mean={name: mean_of(values) for name, values in validation.items()},
        nested_choices=by_name(everything),
        nested_uncensored_choices=by_name(uncensored),
        adaptation=strongest_adaptation([named.setting.adaptation for named in used]),
        ensemble=ensemble,
    )


def _ensemble(evidence: Evidence, best: NamedSetting, weigh: Callable[[Any, Sequence[int]], Floats]) -> Ensemble:
    """Weigh the candidates that were trained, and again those without a penalty. best: listed if none has a weight."""
    candidates, among = evidence.candidates, list(evidence.trained)
    uncensored = evidence.uncensored(among) or among

    def named(weights: Floats) -> dict[str, float]:
        return {candidate.name: beta for candidate, beta in zip(candidates, weights.tolist(), strict=True) if beta}

    nested, nested_uncensored = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for block in evidence.blocks:
        rest, names = evidence.without(block), [evidence.subjects[person] for person in block]
        nested |= dict.fromkeys(names, named(weigh(rest, among)))
        if uncensored != among:
            nested_uncensored |= dict.fromkeys(names, named(weigh(rest, uncensored)))
    weights = named(weigh(evidence, among)) or {best.name: 0.0}
    total = sum(weights.values()) or 1.0
    weighted = [
        WeightedCandidate(
            one.name, one.setting.family, weights[one.name] / total, weights[one.name], evidence.strength(k)
        )
        for k, one in enumerate(candidates)
        if one.name in weights
    ]
    return Ensemble(
        candidates=sorted(weighted, key=lambda one: -one.weight),
        nested=nested,
        nested_uncensored=nested_uncensored,
    )
