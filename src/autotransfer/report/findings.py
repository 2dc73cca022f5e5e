"""Sentences about the result of a run for the terminal, the report and the methods section.

runs/headline.py writes the first sentence, because choice.json and the model card store it.
"""

from __future__ import annotations

import math

from ..folds import SESSION, SUBJECT
from ..models.adaptation import NO_ADAPTATION
from ..runs.choice import HARM, Choice, EnsembleWeights, ReplayResult
from ..runs.headline import BASELINE_LETTERS, MOST_NAMES, mean, short_name
from ..tasks import label_of
from ..tasks.regression import R2
from ..training.intervals import describe_next_subject
from ..words import count, range_words, score, signed
from .statistics import compare_paired
from .wording import family_words, share

NO_BETTER = "No setting is clearly better than the paper's network"
USELESS = "an R² of 0 or less means that the mean of a subject's own targets is at least as good as the model."
MOST_STAGES = 3  # maximum number of stages whose names are listed
ADAPTATIONS = {
    **dict.fromkeys(("none", "zero-shot"), "The model used no data of a test subject before it predicted (zero-shot)."),
    "online": "The model predicted each window of a test subject with the subject's earlier unlabeled windows "
    "(online), so these are not zero-shot scores.",
    "transductive": "The model used all unlabeled windows of a test subject before it predicted (transductive), so "
    "these are not zero-shot scores.",
}


def write_summary(choice: Choice) -> list[str]:
    """Return sentences on the score, the gain from labels, the next and the worst subject, and unlabeled windows.

    For regression, a sentence on prediction intervals replaces the sentence on unlabeled windows.
    """
    metric = metric_label(choice)
    lines = [
        choice.headline,
        f"Useless: {USELESS}" if is_useless(choice) else None,
        describe_labels(choice),
        describe_next_subject(choice.next_subject, choice.hold_out, metric=metric),
        describe_worst(choice, metric) if choice.estimate else None,
        describe_target_intervals(choice) if choice.task.is_numeric else describe_unlabeled(choice),
    ]
    return [line for line in lines if line]


def is_useless(choice: Choice) -> bool:
    """Return whether the mean R² of the model is not above 0."""
    return choice.metric == R2 and (mean(choice.estimate) or 0.0) <= 0


def metric_label(choice: Choice) -> str:
    """Return the label of the metric for regression, where a number without a label could be misread."""
    return label_of(choice.metric) if choice.task.is_numeric else ""


def describe_target_intervals(choice: Choice) -> str:
    """Return the half-width of 90 % prediction intervals, and the share of held-out targets inside them."""
    intervals, n_subjects = choice.intervals, len(choice.estimate) + len(choice.unscored_subjects)
    if intervals is None or not math.isfinite(intervals.radius):
        return (
            f"Intervals: {count(n_subjects, 'subject')} are too few for a 90 % interval. "
            "Record more subjects, or reduce the coverage (predict --coverage)."
        )
    coverage = share(mean(intervals.coverage) or 0.0)
    return f"Intervals: 90 % intervals (±{intervals.radius:.3g}) hold {coverage} of the targets of held-out subjects."


def describe_worst(choice: Choice, metric: str = "") -> str:
    """Return the lowest score and the subjects below the required score."""
    subject, lowest = min(choice.estimate.items(), key=lambda item: item[1])
    worst = f"Worst subject: {f'{metric} {score(lowest)}'.lstrip()} (subject {short_name(subject)})"
    if choice.next_subject is not None and lowest < choice.next_subject.low:
        worst += ". This score is below the prediction interval for a new subject, as about one score in twenty is"
    return f"{worst}. {describe_below(choice)}".rstrip()


def describe_below(choice: Choice) -> str:
    """Return the subjects below the required score; nothing if no score is required."""
    if choice.at_least is None:
        return ""
    if not choice.low_scores:
        return f"No subject scores below {score(choice.at_least)}."
    names = [f"{short_name(name)}: {score(value)}" for name, value in choice.low_scores.items()]
    below = f"{len(choice.low_scores)} of {count(len(choice.estimate), 'subject')}"
    return f"Below {score(choice.at_least)}: {below} ({', '.join(names)})."


def describe_unlabeled(choice: Choice) -> str | None:
    """Return the gain of held-out subjects from unlabeled windows in a replayed online session."""
    replay = choice.replay
    if replay is None:
        if choice.adaptation == "transductive":
            return None
        return "Unlabeled windows: the run tested neither adaptation nor calibration on held-out subjects."
    n_subjects, held_out = len(next(iter(replay.zero_shot.values()))), short_name(choice.hold_out)
    subjects = f"{n_subjects} held-out subjects"
    if choice.hold_out != SUBJECT:
        subjects = f"{n_subjects} subjects with every {held_out} held out"
    at_once = f", {signed(replay.transductive_gain)} with all windows of a subject at once" * bool(replay.all_windows)
    return (
        f"Unlabeled windows: {signed(replay.gain)} in an online session (mean over {subjects}, whose "
        f"windows are replayed in {count(len(replay.zero_shot), 'order')}){at_once}. {describe_session(replay)}"
    )


def describe_labels(choice: Choice) -> str | None:
    """Return the gains of held-out subjects from a few labeled windows."""
    if choice.replay is None or not choice.replay.calibrated:
        return None
    replay, gains = choice.replay, list[str]()
    n_subjects = len(next(iter(replay.zero_shot.values())))
    for n, scores in replay.calibrated.items():
        if (pair := compare_paired(scores, replay.before_calibration[n])) is not None:
            fewer = f" (for the {pair.n} of {n_subjects} subjects with enough windows)" * (pair.n < n_subjects)
            labels = n if gains else f"{count(int(n), 'labeled window')} per class"
            gains.append(f"with {labels} {signed(pair.mean)}{fewer}")
    return f"Labels: {'; '.join(gains)}. These are gains on windows that were not used for calibration."


def describe_session(replay: ReplayResult) -> str:
    """Return whether an online session of the delivered model adapts to unlabeled windows, and how."""
    if replay.session_method == NO_ADAPTATION:
        return "Online sessions do not adapt to unlabeled windows."
    return f"Online sessions adapt to unlabeled windows ({replay.session_method})."


def describe_losses(replay: ReplayResult) -> str:
    """Return the number of subjects whose score decreases with online adaptation and with calibration."""
    by_labels = replay.harm_by_labels.items()
    harmed = {"online adaptation": replay.harm}
    harmed |= {f"{count(int(n), 'labeled window')} of each class": part for n, part in by_labels}
    counts = [f"{round(part * n_subjects)} of {n_subjects} with {name}" for name, (part, n_subjects) in harmed.items()]
    return f"Subjects that lose more than {score(HARM)}: {', '.join(counts)}."


def describe_metric(choice: Choice) -> str:
    """Return, for example, 'balanced accuracy on 12 test subjects (chance .250)'."""
    guessing = "" if choice.chance is None else f" ({choice.task.chance_words(choice.chance)})"
    held_out = "" if choice.hold_out == SUBJECT else f", by held-out {short_name(choice.hold_out)}"
    return f"{label_of(choice.metric)} on {count(len(choice.estimate), 'test subject')}{held_out}{guessing}"


def describe_hold_out(hold_out: str) -> str:
    """Return which windows were held out, and which claim the scores therefore support."""
    if hold_out == SUBJECT:
        return "Each subject was predicted by models that were trained on other subjects only."
    if hold_out == SESSION:
        return (
            "Sessions were held out, not subjects: each session was predicted by models that were trained on other "
            "sessions of the same subject. The scores do not hold for new subjects."
        )
    return (
        f"Each {hold_out} was held out, not each subject: models may have been trained on other windows of the subject "
        "that they predict."
    )


def describe_ensemble(ensemble: EnsembleWeights) -> str:
    """Return, for example, 'weighted ensemble of 12 models (candidates) from 5 model families'."""
    families = count(len(ensemble.families), "model family", "model families")
    return f"weighted ensemble of {count(len(ensemble.candidates), 'model')} (candidates) from {families}"


def describe_model(choice: Choice) -> str:
    """Return a sentence that names the delivered model."""
    if choice.ensemble is not None:
        sentence = f"The delivered model is a {describe_ensemble(choice.ensemble)}."
        for family, weight in list(choice.ensemble.families.items())[:1]:
            sentence += f" The largest weight, {share(weight)}, is on the model family {family_words(family)}."
        return sentence
    if not choice.is_paper_network_chosen:
        return f"The delivered model is {choice.chosen.name}, which had the best validation scores."
    has_penalty = any(named.setting.penalty is not None for named in choice.shortlist)
    reason = "censoring did not help on these recordings" if has_penalty else "no penalty was tried"
    return f"The delivered model is the paper's network. {NO_BETTER}; {reason}."


def describe_missing(choice: Choice) -> list[str]:
    """Return which baselines, stages and subjects have no scores, and why."""
    lines = []
    if choice.skipped_baselines:
        baselines = [f"{short_name(name, BASELINE_LETTERS)} ({why})" for name, why in choice.skipped_baselines.items()]
        lines.append(f"Baselines without a score: {'; '.join(baselines)}.")
    if choice.undelivered_stages:
        names = _list_names(choice.undelivered_stages, MOST_STAGES, "; ")
        lines.append(f"Not trained before the time limit: {names}. autotransfer resume trains them.")
    if choice.unscored_subjects:
        names = _list_names([short_name(name) for name in choice.unscored_subjects], MOST_NAMES, ", ")
        lines.append(f"Subjects without a score because {choice.task.one_value_reason} in all their windows: {names}.")
    return lines


def _list_names(names: list[str], most: int, separator: str) -> str:
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def describe_estimate(choice: Choice) -> str:
    """Return how the model for the score of each subject was selected without the subject."""
    if choice.ensemble is None:
        selection = "the setting was selected again without the validation scores of that subject"
    elif choice.task.is_numeric:
        selection = "ridge penalties and weights were estimated again without that subject"
    else:
        selection = "weights and temperature were estimated again without fits that held that subject out"
    return (
        f"The score of a subject is from a model that was selected without scores of that subject: {selection}. The "
        "selection used scores of models that were trained on that subject, so scores may be slightly too high."
    )


def describe_censoring(choice: Choice) -> list[str]:
    """Return the scores of an ensemble of the paper's network and of an ensemble without censoring."""
    alternatives = {
        f"An ensemble of {choice.paper_network_label}": "paper_network",
        "The same procedure with uncensored candidates only": "uncensored",
    }
    lines = []
    for name, key in alternatives.items():
        pair = compare_paired(choice.estimate, choice.alternatives.get(key, {}))
        if pair is not None and pair.ties < pair.n:
            gain = f"{signed(pair.mean)} ({range_words(pair.interval)})"
            lines.append(f"{name} scores {score(pair.second.mean)}; the gain of the delivered model is {gain}.")
    return lines


def explain_next_subject(choice: Choice) -> str | None:
    """Return the meaning of the prediction interval for the next subject."""
    if choice.next_subject is None:
        return None
    interval = choice.next_subject
    assumption = "" if interval.assumes == "nothing" else " and scores of subjects have a normal distribution"
    return (
        f"The score of one more subject lies in the prediction interval with {100 * interval.level:.0f} % "
        f"probability if the subject is like the test subjects{assumption}. The 95 % interval is for the mean score."
    )


def notes(choice: Choice) -> list[str]:
    """Return explanations of the scores, one or two sentences each."""
    adaptation = ADAPTATIONS.get(choice.adaptation)
    lines = [
        describe_model(choice), describe_hold_out(choice.hold_out), adaptation, describe_estimate(choice),
        explain_next_subject(choice), *describe_censoring(choice), *choice.task.notes,
    ]  # fmt: skip
    return [line for line in lines if line]
