"""Select the model that a run delivers, and the one that it would have delivered without each subject.

Selection for a subject uses evidence without that subject, and evidence contains no test scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..preprocessing import strongest_adaptation
from ..runs.choice import Ensemble, NamedSetting, Selection, WeightedCandidate
from ..runs.run import Run
from ..settings import Setting
from .evidence import ClassificationEvidence, Evidence
from .held_out import finished_entries, lower_quartile, mean_score
from .weights import Floats


def select(evidence: Evidence, paper_network: NamedSetting | None = None) -> Selection:
    """Select for a new subject, and for each subject from the evidence without the subject.

    paper_network: the candidate that scores are compared with, if it was trained.
    """
    candidates = evidence.candidates
    without = {subject: evidence.without([subject]) for subject in evidence.held_out_subjects}
    everything = list(range(len(candidates)))
    uncensored = _uncensored(evidence, everything)

    def select_without_each(among: Sequence[int]) -> dict[str, str]:
        return {evidence.subjects[subject]: candidates[others.best(among)].name for subject, others in without.items()}

    chosen = candidates[evidence.best(everything)]
    ensemble = None if evidence.rule == "published" else _weigh(evidence, chosen)
    validation = {named.name: evidence.candidate_validation(k) for k, named in enumerate(candidates)}
    used = [chosen] if ensemble is None else [named for named in candidates if named.name in ensemble.weights]
    return Selection(
        shortlist=list(candidates),
        chosen=chosen,
        best_uncensored=candidates[evidence.best(uncensored)],
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


def _weigh(evidence: Evidence, best: NamedSetting) -> Ensemble:
    """Weigh the candidates that were trained, and again those without a penalty. best: listed if none has a weight."""
    candidates, among = evidence.candidates, list(evidence.trained)
    uncensored = _uncensored(evidence, among) or among

    def by_name(weights: Floats) -> dict[str, float]:
        return {candidate.name: beta for candidate, beta in zip(candidates, weights.tolist(), strict=True) if beta}

    nested, nested_uncensored = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for block in evidence.blocks:
        others, names = evidence.without(block), [evidence.subjects[subject] for subject in block]
        nested |= dict.fromkeys(names, by_name(others.weights(among)))
        if uncensored != among:
            nested_uncensored |= dict.fromkeys(names, by_name(others.weights(uncensored)))
    weights = by_name(evidence.weights(among)) or {best.name: 0.0}
    total = sum(weights.values()) or 1.0
    weighted = [
        WeightedCandidate(one.name, one.setting.family, weights[one.name] / total, weights[one.name], strength)
        for one, strength in zip(candidates, evidence.strengths, strict=True)
        if one.name in weights
    ]
    return Ensemble(
        candidates=sorted(weighted, key=lambda one: -one.weight),
        nested=nested,
        nested_uncensored=nested_uncensored,
    )


class OnlineWeights(NamedTuple):
    """Weights of the online ensemble: of candidates, and of linear models that center subjects online."""

    weights: dict[Setting, float]
    nested: dict[int, dict[Setting, float]]  # by subject, fitted without the subject


def find_online_weights(run: Run, candidates: Sequence[Setting], centered: Sequence[Setting]) -> OnlineWeights | None:
    """Return the weights of the online ensemble; None unless a model that centers subjects has a weight."""
    if not centered:
        return None
    settings = [*candidates, *centered]
    named = [NamedSetting(run.options.name_of(setting), setting) for setting in settings]
    evidence = ClassificationEvidence.from_run(run, named, finished_entries(run, settings, run.folds()))

    def find(known: ClassificationEvidence) -> dict[Setting, float]:
        weights = known.weights(known.trained).tolist()
        return {setting: beta for setting, beta in zip(settings, weights, strict=True) if beta}

    weights = find(evidence)
    if weights.keys().isdisjoint(centered):
        return None
    nested: dict[int, dict[Setting, float]] = {}
    for block in evidence.blocks:
        nested |= dict.fromkeys(block, find(evidence.without(block)))
    return OnlineWeights(weights, nested)
