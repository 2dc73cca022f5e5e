"""The methods section of a paper, as plain text, from the records of a run. Its layout is templates/methods.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..runs.data_facts import Data
from ..runs.ledger import Ledger
from ..runs.options import RunOptions
from ..runs.regression import SIMPLE, RegressionChoice
from ..runs.study import command_of
from ..runs.verdict import mean
from ..search.regression import STRENGTHS, candidate_name
from ..tasks import label_of
from .findings import ADAPTATIONS, headline, hold_out_words, missing_words, regression_headline
from .page import text_of
from .summary import Summary
from .wording import count, kind_words, score, share

MOST_CLASSES = 12  # that are named


def methods_paragraph(summary: Summary) -> str:
    """Describe data, split, candidates, weights, seeds, scores with intervals and versions, with the citation."""
    choice, options = summary.choice, summary.options
    if choice is None:
        raise UserError("the run is not finished, so there is nothing to report yet; continue it with resume")
    classes = summary.data.classes
    named = ", ".join(classes[:MOST_CLASSES]) + (", …" if len(classes) > MOST_CLASSES else "")
    kinds = Counter(candidate.setting.kind for candidate in choice.shortlist)
    listed = ", ".join(f"{kind_words(kind)} {n}" for kind, n in kinds.items())
    networks = (each for each in summary.trainings if each.stage == "folds" and not each.setting.network.closed_form)
    seeds = sorted({training.seed for training in networks})
    trained = "no network was among them"
    if seeds:
        epochs = count(options.max_epochs, "epoch")
        trained = f"networks with {count(len(seeds), 'seed')} ({', '.join(map(str, seeds))}) for at most {epochs}"
    if choice.ensemble is None:
        model = f"the setting {choice.chosen.name}, chosen by the lower quartile of validation scores over people; for "
        model += "each person's own score it was chosen again without theirs."
    else:
        weights = [
            f"{candidate.name} ({candidate.kind}) {share(candidate.share)}" for candidate in choice.ensemble.weights
        ]
        model = (
            "log-probabilities of the candidates, averaged with weights that minimize the class-balanced log-loss on "
            f"held-out people, and a temperature ({choice.ensemble.temperature:.2f}); for each person's own score, "
            "weights and temperature were found again without the trainings that held them out (nested). Weights of "
            f"the delivered model: {'; '.join(weights)}."
        )
    plain = {"a single plain network": choice.test_scores["paper_network"]} if choice.paper_network else {}
    return _filled(
        summary.data, options, summary.versions,
        target=f"{count(len(classes), 'class', 'classes')} ({named})",
        split=f"{count(summary.folds, 'fold')}; in every fold one part was held out for the test, another for "
        f"validation, and the rest trained. {hold_out_words(options.hold_out)}",
        candidates=f"{len(choice.shortlist)} settings were trained on every fold ({listed}); {trained}.",
        missing=missing_words(choice), model=model, adaptation=ADAPTATIONS.get(choice.adaptation, ""),
        headline=headline(choice), metric=label_of(choice.metric), baselines=_means(choice.baselines | plain),
        name=summary.name, device=summary.device, command=summary.command,
    )  # fmt: skip


def regression_methods(folder: Path, choice: RegressionChoice) -> str:
    """Describe a run with a continuous target, from its ledger."""
    with closing(Ledger(folder / "ledger.sqlite", read_only=True)) as ledger:
        data, versions = ledger.recall("data", Data), ledger.recall("versions", dict[str, str])
        options = ledger.recall("options", RunOptions)
        solved = ledger.entries(records=False)
    if data is None or versions is None or options is None:
        raise UserError(f"{folder} does not say what it was made from; run it again into another folder")
    target = options.target.removeprefix("continuous").lstrip(":")
    forms = list(dict.fromkeys(candidate_name(entry.setting) for entry in solved))
    weights = [f"{part.name} (strength {part.strength:g}) {share(part.weight)}" for part in choice.chosen]
    return _filled(
        data, options, versions,
        target=f"a continuous target{f' ({target})' * bool(target)}",
        split=f"{count(choice.folds, 'group')} of people were held out in turn, and everybody else trained. "
        f"{hold_out_words(options.hold_out)}",
        candidates=f"ridge regressions on {count(len(forms), 'representation')} ({'; '.join(forms)}), with "
        f"{len(STRENGTHS)} strengths from {STRENGTHS[0]:g} to {STRENGTHS[-1]:g}.",
        missing=[],
        model="the mean of the training people's targets plus deviations that the candidates predict, averaged with "
        "weights of at least 0 and at most 1 together that minimize squared errors on held-out people; for each "
        "person's own score, strengths and weights were found again without their windows. Weights of the delivered "
        f"model: {'; '.join(weights) or 'the mean alone'}.",
        adaptation=ADAPTATIONS.get(choice.adaptation, ""),
        headline=regression_headline(choice), metric="R²",
        baselines=_means({name: choice.test_scores[name] for name in SIMPLE}),
        name=data.name, device=options.device, command=command_of(folder),
    )  # fmt: skip


def _filled(data: Data, options: RunOptions, versions: Mapping[str, str], **values: Any) -> str:
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return text_of("methods.txt", data=data, options=options, versions=listed, **values)


def _means(scores: Mapping[str, Mapping[str, float]]) -> str:
    means = {name: mean(by_person) for name, by_person in scores.items()}
    return "; ".join(f"{name} {score(value)}" for name, value in means.items() if value is not None) or "none"
