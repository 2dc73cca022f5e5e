"""Selection: what a run delivers, and what it would have delivered without each subject.

A rule is given evidence that the subject, for whom it selects, took no part in. No test score can reach it, because
there is none in `Evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..preprocessing import strongest
from ..runs.choice import Ensemble, NamedSetting, Selection, Weighted
from .average import blocks, find_weights
from .evidence import Evidence
from .stages import Score, best_mean, choose, lower_quartile, mean_score
from .weights import Floats


@dataclass(frozen=True)
class Rule:
    """How a run selects from evidence."""

    rank: Callable[[Sequence[Score], Sequence[str]], str]  # the key of the best candidate, by validation scores
    weigh: Callable[[Evidence, Sequence[int]], Floats] | None = None  # exponents; None: the best is delivered alone


RULES = {"average": Rule(best_mean, find_weights), "published": Rule(choose)}


def select(evidence: Evidence, rule: str, paper_network: NamedSetting | None = None) -> Selection:
    """Select for a new subject, and for each subject from the evidence without them. paper_network: the candidate that
    scores are compared with, if it was trained."""
    selected, candidates = RULES[rule], evidence.candidates
    without = {person: evidence.without([person]) for person in evidence.people}
    everything = list(range(len(candidates)))
    uncensored = evidence.uncensored(everything)

    def best(known: Evidence, among: Sequence[int]) -> int:
        keys = [candidates[k].setting.key for k in among]
        return among[keys.index(selected.rank(known.scores, keys))]

    def by_name(among: Sequence[int]) -> dict[str, str]:
        return {evidence.subjects[person]: candidates[best(own, among)].name for person, own in without.items()}

    chosen = candidates[best(evidence, everything)]
    ensemble = None if selected.weigh is None else _ensemble(evidence, selected.weigh)
    used = [chosen] if ensemble is None else [named for named in candidates if named.name in ensemble.exponents]
    return Selection(
        shortlist=list(candidates),
        chosen=chosen,
        best_uncensored=candidates[best(evidence, uncensored)],
        paper_network=paper_network,
        validation_q25={named.name: lower_quartile(evidence.scores, named.setting.key) for named in candidates},
        validation_mean={named.name: mean_score(evidence.scores, named.setting.key) for named in candidates},
        nested_choices=by_name(everything),
        nested_uncensored_choices=by_name(uncensored),
        adaptation=strongest([named.setting.adaptation for named in used]),
        ensemble=ensemble,
    )


def _ensemble(evidence: Evidence, weigh: Callable[[Evidence, Sequence[int]], Floats]) -> Ensemble:
    """Weigh the candidates that were trained, and again those without a penalty."""
    candidates, among = evidence.candidates, list(evidence.trained)
    uncensored = evidence.uncensored(among) or among

    def named(exponents: Floats) -> dict[str, float]:
        return {candidate.name: beta for candidate, beta in zip(candidates, exponents.tolist(), strict=True) if beta}

    nested, nested_uncensored = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for block in blocks(evidence.together):
        rest, names = evidence.without(block), [evidence.subjects[person] for person in block]
        nested |= dict.fromkeys(names, named(weigh(rest, among)))
        if uncensored != among:
            nested_uncensored |= dict.fromkeys(names, named(weigh(rest, uncensored)))
    exponents = named(weigh(evidence, among))
    heaviest, total = sorted(exponents, key=lambda name: -exponents[name]), sum(exponents.values())
    kinds = {candidate.name: candidate.setting.kind for candidate in candidates}
    return Ensemble(
        weights=[Weighted(name, kinds[name], exponents[name] / total, exponents[name]) for name in heaviest],
        nested=nested,
        nested_uncensored=nested_uncensored,
    )
