"""The methods section of a paper, as plain text, from the records of the run: a paragraph for each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..runs.choice import Choice
from ..runs.data_facts import Data
from ..runs.ledger import Ledger
from ..runs.number_run import SOLVED, TRAINED
from ..runs.options import RunOptions
from ..runs.regression import NUMBERS, SIMPLE, RegressionChoice
from ..runs.study import command_of
from ..runs.verdict import mean
from ..search.number_networks import candidate_name
from ..search.regression import STRENGTHS
from ..training.scoring import label_of
from .findings import ADAPTATIONS, headline, hold_out_words, missing_words, regression_headline
from .summary import Summary
from .wording import count, kind_words, score, setting_names, share

CITATION = (
    "Smedemark-Margulies, N., Wang, Y., Koike-Akino, T., Erdoğmuş, D. AutoTransfer: Subject Transfer Learning with "
    "Censored Representations on Biosignals Data. arXiv:2112.09796"
)
MOST_CLASSES = 12  # that are named
INTERVALS = "Intervals of means are 95 % bootstrap intervals over people (10,000 resamples), paired for differences."


def methods_paragraph(summary: Summary) -> str:
    """Describe data, split, candidates, weights, seeds, scores with intervals and versions, with the citation."""
    choice = summary.choice
    if choice is None:
        raise UserError("the run is not finished, so there is nothing to report yet; continue it with resume")
    classes = summary.data.classes
    named = ", ".join(classes[:MOST_CLASSES]) + (", …" if len(classes) > MOST_CLASSES else "")
    return _text(
        _data(summary.name, summary.data, f"{count(len(classes), 'class', 'classes')} ({named})"),
        _split(summary),
        _candidates(summary, choice),
        _delivered(summary, choice),
        _scores(choice),
        _software(summary.versions, summary.device, summary.options.seed, summary.command),
    )


def _text(*parts: Iterable[str]) -> str:
    return "\n\n".join(" ".join(part).replace("\u00a0", " ") for part in (*parts, [f"Citation: {CITATION}"]))


def _data(name: str, data: Data, target: str) -> Iterable[str]:
    rate = "" if data.sfreq is None else f" at {data.sfreq:g} Hz"
    fewest, most = min(data.trials_by_person), max(data.trials_by_person)
    each = f"{fewest:,} of each person" if fewest == most else f"{fewest:,} to {most:,} of a person"
    yield (
        f"Data: {name}, {count(len(data.people), 'person', 'people')}, {count(data.n_trials, 'window')} "
        f"({each}) of {count(data.n_channels, 'channel')} and "
        f"{count(data.n_times, 'sample')}{rate}, {target}."
    )


def _split(summary: Summary) -> Iterable[str]:
    options, folds = summary.options, count(summary.folds, "fold")
    grouped = "" if options.n_folds is None else " Subjects were held out in groups."
    yield (
        f"Split: {folds}; in every fold one part was held out for the test, another for validation, and the rest "
        f"trained.{grouped} {hold_out_words(options.hold_out)}"
    )


def _candidates(summary: Summary, choice: Choice) -> Iterable[str]:
    options = summary.options
    kinds = Counter(candidate.setting.kind for candidate in choice.shortlist)
    listed = ", ".join(f"{kind_words(kind)} {n}" for kind, n in kinds.items())
    networks = (each for each in summary.trainings if each.stage == "folds" and not each.setting.network.closed_form)
    seeds = sorted({training.seed for training in networks})
    with_seeds = f"networks with {count(len(seeds), 'seed')} ({', '.join(map(str, seeds))})"
    trained = f"{with_seeds} for at most {count(options.max_epochs, 'epoch')}" if seeds else "no network was among them"
    yield f"Candidates: {len(choice.shortlist)} settings were trained on every fold ({listed}); {trained}."
    if options.time is not None:
        yield f"The run was planned for {options.time}."
    yield from missing_words(choice)


def _delivered(summary: Summary, choice: Choice) -> Iterable[str]:
    names = setting_names(summary)
    if choice.average is None:
        yield (
            f"Model: the setting {names.get(choice.chosen.name, choice.chosen.name)}, chosen by the lower quartile of "
            "validation scores over people; for each person's own score it was chosen again without theirs."
        )
    else:
        weights = "; ".join(
            f"{names.get(candidate.name, candidate.name)} ({candidate.kind}) {share(candidate.share)}"
            for candidate in choice.average.weights
            if candidate.share > 0
        )
        yield (
            "Model: log-probabilities of the candidates, averaged with weights that minimize the class-balanced "
            f"log-loss on held-out people, and a temperature ({choice.average.temperature:.2f}); for each person's own "
            "score, weights and temperature were found again without the trainings that held them out (nested). "
            f"Weights of the delivered model: {weights}."
        )
    yield ADAPTATIONS.get(choice.adaptation, f"Adaptation: {choice.adaptation}.")


def _scores(choice: Choice) -> Iterable[str]:
    yield f"Results: {' '.join(headline(choice))}"
    single = {"a single plain network": choice.test_scores["baseline"]} if choice.has_plain_network else {}
    means = {name: mean(by_person) for name, by_person in (choice.peers | single).items()}
    listed = "; ".join(f"{name} {score(value)}" for name, value in means.items() if value is not None)
    if listed:
        yield f"On the same folds, {label_of(choice.metric)}, mean over people: {listed}."
    yield INTERVALS


def _software(versions: dict[str, str], device: str, seed: int, command: str) -> Iterable[str]:
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"Software: {listed}; device {device}; seed {seed}; command: {command}"


# ---- a continuous target ---------------------------------------------------------------------------------------------


def regression_methods(folder: Path, choice: RegressionChoice) -> str:
    """Describe a run with a continuous target, from its ledger."""
    with closing(Ledger(folder / NUMBERS, read_only=True)) as ledger:
        data, versions = ledger.recall("data", Data), ledger.recall("versions", dict[str, str])
        stored = ledger.recall("options", dict[str, Any])
        tried = {
            stage: list(dict.fromkeys(entry.setting for entry in ledger.entries(stage, records=False)))
            for stage in (SOLVED, TRAINED)
        }
    if data is None or versions is None or stored is None:
        raise UserError(f"{folder} does not say what it was made from; run it again into another folder")
    options = RunOptions.from_dict(stored)
    forms, networks = ([candidate_name(setting) for setting in tried[stage]] for stage in (SOLVED, TRAINED))
    target = options.target.removeprefix("continuous").lstrip(":")
    return _text(
        _data(data.name, data, f"a continuous target{f' ({target})' * bool(target)}"),
        [
            f"Split: {count(choice.folds, 'group')} of people were held out in turn, and everybody else trained; no "
            "person's windows were on both sides of a split."
        ],
        _number_candidates(choice, options, forms, networks),
        _number_model(choice),
        _number_scores(choice),
        _software(versions, options.device, options.seed, command_of(options, folder)),
    )


def _number_candidates(
    choice: RegressionChoice, options: RunOptions, forms: list[str], networks: list[str]
) -> Iterable[str]:
    yield (
        f"Candidates: ridge regressions on {count(len(forms), 'representation')} ({'; '.join(forms)}), with "
        f"{len(STRENGTHS)} strengths from {STRENGTHS[0]:g} to {STRENGTHS[-1]:g}."
    )
    if networks:
        seeds = ", ".join(map(str, options.every_seed))
        yield (
            f"Networks ({'; '.join(networks)}) learned the standardized target with the {options.loss} loss, with "
            f"{count(options.seeds, 'seed')} ({seeds}) for {count(options.max_epochs, 'epoch')}."
        )
    if options.time is not None:
        yield f"The run was planned for {options.time}."
    yield from (f"Left out: {line}." for line in choice.left_out)


def _number_model(choice: RegressionChoice) -> Iterable[str]:
    weights = "; ".join(
        f"{part.name}{'' if part.strength is None else f' (strength {part.strength:g})'} {share(part.weight)}"
        for part in choice.chosen
    )
    yield (
        "Model: the mean of the training people's targets, and deviations from it that the candidates predict, "
        "averaged with weights of at least 0 and at most 1 together that minimize squared errors on held-out people, "
        "of whom each counts the same; for each person's own score, strengths and weights were found again without "
        f"their windows. Weights of the delivered model: {weights or 'the mean alone'}."
    )
    yield ADAPTATIONS.get(choice.adaptation, f"Adaptation: {choice.adaptation}.")


def _number_scores(choice: RegressionChoice) -> Iterable[str]:
    yield f"Results: {' '.join(regression_headline(choice, hint=False))}"
    listed = "; ".join(f"{name} {score(mean(choice.test_scores[name]))}" for name in SIMPLE)
    yield f"On the same folds, R², mean over people: {listed}."
    yield INTERVALS
