"""Draft of the methods section of a paper as plain text, from the template templates/methods.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..errors import UserError
from ..runs.choice import Choice, EnsembleWeights
from ..runs.headline import mean
from ..tasks import label_of
from ..training.ridge import STRENGTHS
from ..words import clock, count, score
from .findings import ADAPTATIONS, describe_hold_out, describe_missing, write_summary
from .page import fill_text_template
from .summary import Summary
from .wording import family_words, share

MOST_CLASSES = 12  # maximum number of classes that are named


def methods_paragraph(summary: Summary) -> str:
    """Return paragraphs on data, split, candidates, model, scores and software, and the citation."""
    choice, options = summary.choice, summary.options
    if choice is None:
        raise UserError("the run is not finished, so it has no result; continue it with autotransfer resume")
    describe = _describe_regression if choice.task.is_numeric else _describe_classification
    words = describe(summary, choice)
    words["split"] += f" {describe_hold_out(options.hold_out)}"
    scores = dict(choice.baselines)
    if choice.paper_network:
        scores[f"a single {choice.paper_network_label}"] = choice.test_scores["paper_network"]
    if choice.guessing:
        scores[choice.task.guess] = choice.guessing
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    return fill_text_template(
        "methods.txt", data=summary.data, options=options, versions=versions, **words,
        missing=describe_missing(choice), adaptation=ADAPTATIONS.get(choice.adaptation, ""),
        headline=write_summary(choice), metric=label_of(choice.metric), baselines=_list_means(scores),
        name=summary.name, device=summary.device, command=summary.command, end_reason=choice.end_reason,
        spent=clock(choice.stages[-1].seconds) if choice.stages and choice.end_reason else "",
    )  # fmt: skip


def _describe_classification(summary: Summary, choice: Choice) -> dict[str, str]:
    """Return the texts for the template's fields target, split, candidates and model, for classification."""
    classes = summary.data.classes
    class_names = ", ".join(classes[:MOST_CLASSES]) + (", …" if len(classes) > MOST_CLASSES else "")
    networks = (fit for fit in summary.fits if fit.stage == "folds" and not fit.setting.network.is_closed_form)
    seeds = sorted({fit.seed for fit in networks})
    training = "no network was trained"
    if seeds:
        epochs = count(summary.options.max_epochs, "epoch")
        n_seeds = f"{count(len(seeds), 'seed')} ({', '.join(map(str, seeds))})"
        training = f"networks were trained with {n_seeds} for at most {epochs}"
    if choice.ensemble is None:
        model = f"the setting {choice.chosen.name}, selected by the lower quartile of validation scores over subjects. "
        model += "For the score of each subject, the setting was selected again without the scores of that subject."
    else:
        model = (
            "a weighted mean of the log-probabilities of the candidates, divided by a temperature "
            f"({score(choice.ensemble.temperature)}). The weights minimize the class-balanced log-loss on held-out "
            "subjects. For the score of each subject, weights and temperature were estimated again without the fits "
            f"that held that subject out (nested). Weights of the final model: {_list_weights(choice.ensemble)}."
        )
    return {
        "target": f"{count(len(classes), 'class', 'classes')} ({class_names})",
        "split": f"{count(summary.folds, 'fold')}. Each fold tests on one part of the subjects, validates on another "
        "part and trains on the rest.",
        "candidates": f"{len(choice.shortlist)} settings were trained on every fold ({_list_families(choice)}). "
        f"{training[0].upper()}{training[1:]}.",
        "model": model,
    }


def _describe_regression(summary: Summary, choice: Choice) -> dict[str, str]:
    """Return the texts for the template's fields target, split, candidates and model, for regression."""
    column = summary.options.target_column
    weights = "the mean target alone" if choice.ensemble is None else _list_weights(choice.ensemble)
    return {
        "target": "a continuous target" + (f" ({column})" if column else ""),
        "split": f"{count(summary.folds, 'group')} of subjects were held out in turn, and models were fitted to "
        "the others.",
        "candidates": f"ridge regressions on {count(len(choice.shortlist), 'representation')} "
        f"({_list_families(choice)}), with {len(STRENGTHS)} strengths from {STRENGTHS[0]:g} to {STRENGTHS[-1]:g}.",
        "model": "the mean target of the training subjects plus a weighted sum of the deviations that the candidates "
        "predict. Weights are at least 0, sum to at most 1, and minimize squared errors on held-out subjects. For the "
        "score of each subject, strengths and weights were estimated again without that subject. Weights of the "
        f"final model: {weights}.",
    }


def _list_families(choice: Choice) -> str:
    families = Counter(candidate.setting.family for candidate in choice.shortlist)
    return ", ".join(f"{family_words(family)} {n}" for family, n in families.items())


def _list_weights(ensemble: EnsembleWeights) -> str:
    """Return the names and weights of candidates; for regression also their ridge strengths."""
    return "; ".join(
        f"{candidate.name} ({candidate.family}) {share(candidate.share)}"
        if candidate.strength is None
        else f"{candidate.name} (strength {candidate.strength:g}) {share(candidate.weight)}"
        for candidate in ensemble.candidates
    )


def _list_means(scores: Mapping[str, Mapping[str, float]]) -> str:
    means = {name: mean(by_subject) for name, by_subject in scores.items()}
    return "; ".join(f"{name} {score(value)}" for name, value in means.items() if value is not None) or "none"
