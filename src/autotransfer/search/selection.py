"""Select the model that a run delivers and, for each subject, the model that it would deliver without the subject.

Models are selected from `Evidence`, which contains no test scores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..preprocessing import strongest_adaptation
from ..runs.choice import EnsembleWeights, NamedSetting, Selection, WeightedCandidate
from ..runs.run import Run
from ..settings import Setting
from .evidence import ClassificationEvidence, Evidence
from .held_out import find_entries, lower_quartile, mean_score
from .weights import Floats


def select(evidence: Evidence, paper_network: NamedSetting | None = None) -> Selection:
    """Select a model for new subjects and, for each subject, a model from the evidence without the subject.

    paper_network: the network of the paper, with which scores are compared, if it was trained.
    """
    candidates = evidence.candidates
    evidence_without = {subject: evidence.without([subject]) for subject in evidence.held_out_subjects}
    indices = list(range(len(candidates)))
    uncensored = _find_uncensored(evidence, indices)

    def select_without_each(indices: Sequence[int]) -> dict[str, str]:
        best = {subject: remaining.best(indices) for subject, remaining in evidence_without.items()}
        return {evidence.subjects[subject]: candidates[index].name for subject, index in best.items()}

    chosen = candidates[evidence.best(indices)]
    ensemble = None if evidence.rule == "published" else _fit_ensemble(evidence, chosen)
    validation = {candidate.name: evidence.candidate_validation_scores(k) for k, candidate in enumerate(candidates)}
    delivered = [chosen] if ensemble is None else [c for c in candidates if c.name in ensemble.weights]
    return Selection(
        shortlist=list(candidates),
        chosen=chosen,
        best_uncensored=candidates[evidence.best(uncensored)],
        paper_network=paper_network,
        validation_q25={name: lower_quartile(values) for name, values in validation.items()},
        validation_mean={name: mean_score(values) for name, values in validation.items()},
        nested_choices=select_without_each(indices),
        nested_uncensored_choices=select_without_each(uncensored),
        adaptation=strongest_adaptation([candidate.setting.adaptation for candidate in delivered]),
        ensemble=ensemble,
    )


def _find_uncensored(evidence: Evidence, indices: Sequence[int]) -> list[int]:
    """Return the indices of candidates without a penalty."""
    return [k for k in indices if evidence.candidates[k].setting.penalty is None]


def _fit_ensemble(evidence: Evidence, best: NamedSetting) -> EnsembleWeights:
    """Return weights of the trained candidates. best: the only candidate, with weight 0, if all weights are 0."""
    candidates, trained = evidence.candidates, list(evidence.trained)
    uncensored = _find_uncensored(evidence, trained) or trained

    def by_name(weights: Floats) -> dict[str, float]:
        return {candidate.name: beta for candidate, beta in zip(candidates, weights.tolist(), strict=True) if beta}

    nested, nested_uncensored = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for block in evidence.blocks:
        remaining, names = evidence.without(block), [evidence.subjects[subject] for subject in block]
        nested |= dict.fromkeys(names, by_name(remaining.weights(trained)))
        if uncensored != trained:
            nested_uncensored |= dict.fromkeys(names, by_name(remaining.weights(uncensored)))
    weights = by_name(evidence.weights(trained)) or {best.name: 0.0}  # 0: the mean training target is predicted
    total = sum(weights.values()) or 1.0
    weighted = [
        WeightedCandidate(c.name, c.setting.family, weights[c.name] / total, weights[c.name], ridge_penalty)
        for c, ridge_penalty in zip(candidates, evidence.ridge_penalties, strict=True)
        if c.name in weights
    ]
    weighted.sort(key=lambda candidate: -candidate.weight)
    return EnsembleWeights(candidates=weighted, nested=nested, nested_uncensored=nested_uncensored)


class OnlineWeights(NamedTuple):
    """Weights of the online ensemble: candidates, and linear models that center the features of a subject online."""

    weights: dict[Setting, float]
    nested: dict[int, dict[Setting, float]]  # by subject: weights that are fitted without the subject


def find_online_weights(
    run: Run, candidates: Sequence[Setting], centered: Sequence[Setting], subjects: Collection[int]
) -> OnlineWeights | None:
    """Return the weights of the online ensemble; None unless one of the `centered` linear models has a weight.

    subjects: subjects whose nested weights are fitted
    """
    if not centered:
        return None
    settings = [*candidates, *centered]
    all_candidates = [NamedSetting(run.options.name_of(setting), setting) for setting in settings]
    evidence = ClassificationEvidence.from_run(run, all_candidates, find_entries(run, settings, run.folds()))

    def by_setting(weights: Floats) -> dict[Setting, float]:
        return {setting: beta for setting, beta in zip(settings, weights.tolist(), strict=True) if beta}

    weights = by_setting(evidence.weights(evidence.trained))
    if weights.keys().isdisjoint(centered):
        return None
    nested: dict[int, dict[Setting, float]] = {}
    for block in evidence.blocks:
        if not set(block).isdisjoint(subjects):
            nested |= dict.fromkeys(block, by_setting(evidence.without(block).weights(evidence.trained)))
    return OnlineWeights(weights, nested)
