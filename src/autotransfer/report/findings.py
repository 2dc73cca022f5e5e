"""What a run found, in sentences that terminal, page, Python and the methods paragraph share.

The headline is made in runs/headline.py, because choice.json and the model's card keep it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..folds import SESSION, SUBJECT
from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION
from ..runs.choice import HARM, Choice, Ensemble, ReplayResult
from ..runs.headline import MOST_NAMES, mean, short_name
from ..tasks import label_of
from ..training.intervals import describe_next_subject
from ..words import count, score, signed
from .statistics import paired
from .wording import family_words, interval, share

NO_BETTER = "No setting is clearly better than the paper's network"
ADAPTATIONS = {
    **dict.fromkeys(("none", "zero-shot"), "Nothing of a new person was used before their predictions (zero-shot)."),
    "online": "Each window of a new person was predicted with their own unlabeled windows before it (online), so "
    "these are not zero-shot scores.",
    "transductive": "All unlabeled windows of a new person were used before their predictions (transductive), so "
    "these are not zero-shot scores.",
}


def headline(choice: Choice) -> list[str]:
    """Return the headline, the next person, the worst one, and the gains from unlabeled windows and from labels, or
    intervals about numbers."""
    metric = named_metric(choice)
    worst = describe_worst(choice.estimate, choice.below, choice.at_least, metric) if choice.estimate else None
    lines = (choice.headline, describe_next_subject(choice.next_subject, choice.hold_out, metric=metric), worst)
    more = [describe_intervals(choice)] if choice.task.is_numeric else describe_replay(choice)
    return [*(line for line in lines if line), *more]


def named_metric(choice: Choice) -> str:
    """Return the label of the metric if a score alone could be taken for another thing, such as a number's R²."""
    return label_of(choice.metric) if choice.task.is_numeric else ""


def describe_intervals(choice: Choice) -> str:
    """Say how wide 90 % intervals about predicted numbers are, and how many held-out windows they held."""
    check, people = choice.intervals, len(choice.estimate) + len(choice.unscored_subjects)
    if check is None or not math.isfinite(check.radius):
        return (
            f"Intervals: {count(people, 'person', 'people')} are too few for a 90 % interval, so it reaches from −∞ to "
            "∞. Record more people, or ask for less coverage (predict --coverage)."
        )
    held = 100 * (mean(check.coverage) or 0.0)
    return f"Intervals: 90 % intervals (±{check.radius:.3g}) held {held:.0f} % of held-out people's targets."


def describe_worst(
    scores: Mapping[str, float], below: Mapping[str, float], at_least: float | None, metric: str = ""
) -> str:
    """Name the lowest score and, if the user gave a threshold, everybody below it. scores: by person."""
    person, lowest = min(scores.items(), key=lambda item: item[1])
    worst = f"Worst person: {f'{metric} {score(lowest)}'.lstrip()} (subject {short_name(person)})."
    if at_least is None:
        return worst
    if not below:
        return f"{worst} Nobody scores below {at_least:g}."
    names = [f"{short_name(name)}: {score(value)}" for name, value in below.items()]
    return f"{worst} Below {at_least:g}: {len(below)} of {len(scores)} people ({', '.join(names)})."


def describe_replay(choice: Choice) -> list[str]:
    """Say what held-out people gained in replayed sessions, without labels and with a few."""
    played = choice.replay
    if played is None:
        if choice.adaptation == "transductive":
            return []
        return ["Unlabeled windows: neither adaptation nor labels were tried on held-out people."]
    people = len(next(iter(played.zero_shot.values())))
    held_out = short_name(choice.hold_out)
    who = "held-out people" if choice.hold_out == SUBJECT else f"people with each {held_out} held out"
    lines = [
        f"Unlabeled windows: {signed(played.gain)} in an online session, mean over {people} {who} and "
        f"orders of all their windows; {describe_session(played)}."
    ]
    if played.calibrated:
        gains = {n: paired(scores, played.before_calibration[n]) for n, scores in played.calibrated.items()}
        listed = [
            f"{signed(pair.mean)} with {n}" + f" ({pair.n} people; {people - pair.n} have too few)" * (pair.n < people)
            for n, pair in gains.items()
            if pair is not None
        ]
        lines.append(f"Labels: {', '.join(listed)} labeled windows of each class, on all windows without a label.")
    return lines


def describe_session(played: ReplayResult) -> str:
    """Say whether a session of the delivered model adapts to unlabeled windows, and how."""
    if played.session_method == NO_ADAPTATION:
        return "a session does not adapt to unlabeled windows"
    method = (
        ADAPTATION_METHODS[played.session_method].label
        if played.session_method in ADAPTATION_METHODS
        else played.session_method
    )
    return f"a session adapts to unlabeled windows ({method})"


def describe_losses(played: ReplayResult) -> str:
    """Say how many people lose by online adaptation and by calibration."""
    parts = {"an online session": played.harmed}
    parts |= {f"calibration with {n} of each class": part for n, part in played.harmed_by_labels.items()}
    losing = [f"{round(part * people)} of {people} by {name}" for name, (part, people) in parts.items()]
    return f"People who lose more than {HARM:g}: {', '.join(losing)}."


def describe_metric(choice: Choice) -> str:
    """Return, for example, 'balanced accuracy on 12 test subjects (chance .25)'."""
    guessing = "" if choice.chance is None else f" ({choice.task.chance_words(choice.chance)})"
    held_out = "" if choice.hold_out == SUBJECT else f", by held-out {short_name(choice.hold_out)}"
    return f"{label_of(choice.metric)} on {count(len(choice.estimate), 'test subject')}{held_out}{guessing}"


def describe_hold_out(hold_out: str) -> str:
    """Say what was held out and what the scores therefore are about."""
    if hold_out == SUBJECT:
        return "Each person was predicted by models that were trained on other people only."
    if hold_out == SESSION:
        return (
            "Sessions were held out, not people: each session was predicted by models that were trained on other "
            "sessions of the same person. Scores say nothing about people whom the model does not know."
        )
    return (
        f"Each {hold_out} was held out, not each person: models may have been trained on other windows of the person "
        "whom they predict."
    )


def describe_ensemble(ensemble: Ensemble) -> str:
    """Return, for example, 'average of 12 candidates of 5 kinds'."""
    return f"average of {count(len(ensemble.candidates), 'candidate')} of {count(len(ensemble.families), 'kind')}"


def describe_model(choice: Choice) -> str:
    """Name the delivered model in a sentence."""
    if choice.ensemble is not None:
        heaviest = next(iter(choice.ensemble.families.items()), None)
        words = "" if heaviest is None else f" Most weight, {share(heaviest[1])}, lies on {family_words(heaviest[0])}."
        return f"Delivered: an {describe_ensemble(choice.ensemble)}.{words}"
    if not choice.paper_network_won:
        return f"Delivered: {choice.chosen.name}, which validation favored."
    censored = any(named.setting.penalty is not None for named in choice.shortlist)
    tried = "censoring did not help on these recordings" if censored else "no censor was tried"
    return f"Delivered: the paper's network. {NO_BETTER}; {tried}."


def describe_missing(choice: Choice) -> list[str]:
    """Say which baselines, stages and people have no scores, and why."""
    lines = []
    if choice.skipped_baselines:
        baselines = [f"{short_name(name)} ({why})" for name, why in choice.skipped_baselines.items()]
        lines.append(f"Baselines not scored: {'; '.join(baselines)}.")
    if choice.undelivered_stages:
        lines.append(f"Left out because there was no time: {'; '.join(choice.undelivered_stages)}.")
    if choice.unscored_subjects:
        more = len(choice.unscored_subjects) - MOST_NAMES
        names = ", ".join(map(short_name, choice.unscored_subjects[:MOST_NAMES])) + (
            f" and {more} more" if more > 0 else ""
        )
        lines.append(f"Not scored because {choice.task.one_value} in all their windows: {names}.")
    return lines


def describe_estimate(choice: Choice) -> str:
    """Say how each person's score was kept free of their own labels."""
    if choice.ensemble is None:
        found = "the setting was chosen again without the validation scores measured on that person"
    elif choice.task.is_numeric:
        found = "strengths and weights were found again without that person"
    else:
        found = "weights and temperature were found again without the fits that held that person out"
    return (
        f"Scores are nested: for each person {found}. Their labels took part in the other fits, so a little "
        "optimizm may remain."
    )


def describe_censoring(choice: Choice) -> list[str]:
    """Say what an ensemble of the paper's network scores, and how much of the score is due to censoring."""
    others = {
        f"An ensemble of {choice.paper_network_label}": "paper_network",
        "The same procedure with uncensored candidates only": "uncensored",
    }
    lines = []
    for name, key in others.items():
        pair = paired(choice.estimate, choice.alternatives.get(key, {}))
        if pair is not None and pair.ties < pair.n:
            gain = f"the delivered model minus it is {signed(pair.mean)} ({interval(pair)})"
            lines.append(f"{name} scores {score(pair.second.mean)}; {gain}.")
    return lines


def notes(choice: Choice) -> list[str]:
    """Return what a careful reader wants to know about the numbers, one sentence or two each."""
    adaptation = ADAPTATIONS.get(choice.adaptation)
    lines = [
        describe_model(choice), describe_hold_out(choice.hold_out), adaptation, describe_estimate(choice),
        *describe_censoring(choice), *choice.task.notes,
    ]  # fmt: skip
    return [line for line in lines if line]
