"""The methods section of a paper, as plain text, from the records of a run. Its layout is templates/methods.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..errors import UserError
from ..runs.choice import Choice, Ensemble
from ..runs.headline import mean
from ..tasks import label_of
from ..training.ridge import STRENGTHS
from .findings import ADAPTATIONS, describe_hold_out, describe_missing, headline
from .page import text_of
from .summary import Summary
from .wording import count, family_words, score, share

MOST_CLASSES = 12  # that are named


def methods_paragraph(summary: Summary) -> str:
    """Describe data, split, candidates, weights, seeds, scores with intervals and versions, with the citation."""
    choice, options = summary.choice, summary.options
    if choice is None:
        raise UserError("the run is not finished, so there is nothing to report yet; continue it with resume")
    words = (
        _describe_regression(summary, choice) if choice.task.is_numeric else _describe_classification(summary, choice)
    )
    words["split"] += f" {describe_hold_out(options.hold_out)}"
    alone = (
        {f"a single {choice.paper_network_label}": choice.test_scores["paper_network"]} if choice.paper_network else {}
    )
    alone |= {choice.task.guess: choice.guessing} if choice.guessing else {}
    versions = ", ".join(f"{name} {version}" for name, version in summary.versions.items())
    return text_of(
        "methods.txt", data=summary.data, options=options, versions=versions, **words,
        missing=describe_missing(choice), adaptation=ADAPTATIONS.get(choice.adaptation, ""),
        headline=headline(choice), metric=label_of(choice.metric), baselines=_list_means(choice.baselines | alone),
        name=summary.name, device=summary.device, command=summary.command,
    )  # fmt: skip


def _describe_classification(summary: Summary, choice: Choice) -> dict[str, str]:
    """Describe target, split, candidates and model of a run that predicts classes."""
    classes = summary.data.classes
    named = ", ".join(classes[:MOST_CLASSES]) + (", …" if len(classes) > MOST_CLASSES else "")
    networks = (each for each in summary.fits if each.stage == "folds" and not each.setting.network.closed_form)
    seeds = sorted({training.seed for training in networks})
    trained = "no network was among them"
    if seeds:
        epochs = count(summary.options.max_epochs, "epoch")
        trained = f"networks with {count(len(seeds), 'seed')} ({', '.join(map(str, seeds))}) for at most {epochs}"
    if choice.ensemble is None:
        model = f"the setting {choice.chosen.name}, chosen by the lower quartile of validation scores over people; for "
        model += "each person's own score it was chosen again without theirs."
    else:
        model = (
            "log-probabilities of the candidates, averaged with weights that minimize the class-balanced log-loss on "
            f"held-out people, and a temperature ({choice.ensemble.temperature:.2f}); for each person's own score, "
            "weights and temperature were found again without the fits that held them out (nested). Weights of "
            f"the delivered model: {_list_weights(choice.ensemble)}."
        )
    return {
        "target": f"{count(len(classes), 'class', 'classes')} ({named})",
        "split": f"{count(summary.folds, 'fold')}; in every fold one part was held out for the test, another for "
        "validation, and the rest trained.",
        "candidates": f"{len(choice.shortlist)} settings were trained on every fold "
        f"({_list_families(choice)}); {trained}.",
        "model": model,
    }


def _describe_regression(summary: Summary, choice: Choice) -> dict[str, str]:
    """Describe target, split, candidates and model of a run that predicts a number."""
    column = summary.options.column
    weights = "the mean alone" if choice.ensemble is None else _list_weights(choice.ensemble)
    return {
        "target": "a continuous target" + (f" ({column})" if column else ""),
        "split": f"{count(summary.folds, 'group')} of people were held out in turn, and everybody else trained.",
        "candidates": f"ridge regressions on {count(len(choice.shortlist), 'representation')} "
        f"({_list_families(choice)}), "
        f"with {len(STRENGTHS)} strengths from {STRENGTHS[0]:g} to {STRENGTHS[-1]:g}.",
        "model": "the mean of the training people's targets plus deviations that the candidates predict, averaged with "
        "weights of at least 0 and at most 1 together that minimize squared errors on held-out people; for each "
        "person's own score, strengths and weights were found again without their windows. Weights of the delivered "
        f"model: {weights}.",
    }


def _list_families(choice: Choice) -> str:
    kinds = Counter(candidate.setting.family for candidate in choice.shortlist)
    return ", ".join(f"{family_words(kind)} {n}" for kind, n in kinds.items())


def _list_weights(ensemble: Ensemble) -> str:
    """List weights: shares of an ensemble of classes, and weights with the strength of the ridge of one of numbers."""
    return "; ".join(
        f"{one.name} ({one.family}) {share(one.share)}"
        if one.strength is None
        else f"{one.name} (strength {one.strength:g}) {share(one.weight)}"
        for one in ensemble.candidates
    )


def _list_means(scores: Mapping[str, Mapping[str, float]]) -> str:
    means = {name: mean(by_person) for name, by_person in scores.items()}
    return "; ".join(f"{name} {score(value)}" for name, value in means.items() if value is not None) or "none"
