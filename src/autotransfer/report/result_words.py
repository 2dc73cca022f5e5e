"""What a run found, in the words that terminal, page, methods paragraph and Python share.

The verdict itself is in runs/verdict.py: choice.json and the model's card keep it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..person.adaptation import ADAPTATION_METHODS, NO_ADAPTATION
from ..runs.choice import HARM, Average, Choice, Playback
from ..runs.ending import out_of_time
from ..runs.regression import LOWEST, RegressionChoice
from ..runs.verdict import MOST_NAMES, mean, peer_name, shown_name, unseen_words
from ..settings import SUBJECT
from ..training.intervals import next_words
from ..training.scoring import BALANCED_ACCURACY, chance_words, label_of
from ..words import count, score, signed
from .summary import Summary
from .wording import kind_words, share

NO_BETTER = "No setting is clearly better than the plain network"
# What is used of a new person, by the adaptation of a run: in a line, and in a methods section.
ADAPTATIONS = {
    "online": "online: adapts to each new person from their unlabelled windows so far",
    "transductive": "transductive: uses all unlabelled windows of a new person",
}
USED_OF_A_PERSON = {
    **dict.fromkeys(("none", "zero-shot"), "Nothing of a new person was used before their predictions (zero-shot)."),
    "online": "Each window of a new person was predicted with their own unlabelled windows before it (online).",
    "transductive": "All unlabelled windows of a new person were used before their predictions (transductive).",
}


# ---- the headline ----------------------------------------------------------------------------------------------------


def headline(choice: Choice) -> list[str]:
    """The verdict, the next person, the worst one: what comes before all else, wherever a run's result is told."""
    worst = worst_words(choice.estimate, choice.below, choice.at_least) if choice.estimate else None
    lines = (choice.verdict, next_words(choice.next_person, choice.hold_out), worst)
    return [line for line in lines if line]


def regression_headline(choice: RegressionChoice, *, hint: bool = True) -> list[str]:
    """The same of a continuous target, with intervals of predictions. hint: also what else may be tried."""
    scores = choice.nested_test_scores
    expected = next_words(choice.next_person, metric="R²", lowest=LOWEST)
    lines = [choice.verdict, expected, worst_words(scores, choice.below, choice.at_least, metric="R²")]
    if choice.radius is None:
        people = count(len(scores) + len(choice.not_scored), "person", "people")
        lines.append(
            f"Intervals: {people}, as different as they are, are too few for a 90 % interval; it reaches from −∞ to ∞. "
            "Record more people, or ask for less coverage (predict --coverage)."
        )
    elif choice.coverage:
        lines.append(
            f"Intervals: 90 % intervals (±{choice.radius:.3g}) held {100 * (mean(choice.coverage) or 0):.0f} % of "
            "held-out people's targets."
        )
    if hint and (rescaled := choice.rescaled) is not None:
        lines.append(
            f"Gain and offset: set right for each person, predictions would have R² {score(rescaled)}; where a new "
            "person's windows are recorded before they are predicted, try --adaptation transductive."
        )
    if choice.not_scored:
        lines.append(f"Not scored: {count(len(choice.not_scored), 'person', 'people')} whose target never changes.")
    return [line for line in lines if line]


def worst_words(
    scores: Mapping[str, float], below: Mapping[str, float], at_least: float | None, metric: str = ""
) -> str:
    """Who scores lowest and, where the user named a threshold, who is below it. scores: by person."""
    person, lowest = min(scores.items(), key=lambda item: item[1])
    worst = f"Worst person: {f'{metric} {score(lowest)}'.lstrip()} (subject {shown_name(person)})."
    if at_least is None:
        return worst
    if not below:
        return f"{worst} Nobody scores below {at_least:g}."
    names = [f"{shown_name(name)}: {score(value)}" for name, value in below.items()]
    return f"{worst} Below {at_least:g}: {len(below)} of {len(scores)} people ({', '.join(names)})."


# ---- scores ----------------------------------------------------------------------------------------------------------


def metric_words(choice: Choice, chance: float | None = None) -> str:
    """'balanced accuracy on 12 test subjects (chance .25)'. chance: where the choice does not say it."""
    known = choice.chance if choice.chance is not None else chance
    guessing = "" if known is None else f" ({chance_words(known)})"
    return f"{label_of(choice.metric)} on {count(len(choice.estimate), 'test subject')}{guessing}"


def guessing_words(chance: float | None) -> str:
    """'Not clearly better than guessing (chance .50)'."""
    return "Not clearly better than guessing" + ("" if chance is None else f" ({chance_words(chance)})")


def on_unseen_people(summary: Summary) -> str:
    """What the scores of a run are on: 'on people it has not seen'."""
    return unseen_words(summary.options.hold_out, "people")


def unseen_person_words(summary: Summary) -> str:
    """Whom a dot stands for."""
    known = summary.options.hold_out != SUBJECT
    return "a person, scored on what was held out of theirs" if known else "a person whom the model has not seen"


# ---- what is delivered, and what is missing --------------------------------------------------------------------------


def average_words(average: Average) -> str:
    """'average of 12 candidates of 5 kinds'."""
    used = [candidate.kind for candidate in average.weights if candidate.share > 0]
    return f"average of {count(len(used), 'candidate')} of {count(len(set(used)), 'kind')}"


def heaviest_words(average: Average) -> str:
    """A sentence on the kind that weighs most, after a space; nothing without any weights."""
    for kind, weight in average.kinds.items():
        return f" Most weight, {share(weight)}, lies on {kind_words(kind)}."
    return ""


def skipped_words(choice: Choice) -> list[str]:
    """Simple models that nobody has scores of, and why."""
    peers = [f"{peer_name(name)} ({why})" for name, why in choice.skipped_peers.items()]
    return [f"simple models not scored: {'; '.join(peers)}"] if peers else []


def left_out_words(choice: Choice) -> list[str]:
    """Stages that a limited run had no time for."""
    return [f"left out or shortened, for want of time: {'; '.join(choice.left_out)}"] if choice.left_out else []


def not_scored_words(choice: Choice) -> list[str]:
    """People whose windows are all of one class."""
    if not choice.not_scored:
        return []
    more = len(choice.not_scored) - MOST_NAMES
    names = ", ".join(map(shown_name, choice.not_scored[:MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
    return [f"not scored, for want of a second class: {names}"]


# ---- held-out people using the model ---------------------------------------------------------------------------------


def follow_words(follows: str, gain: float) -> str:
    """What following held-out people without labels gave them, and what the delivered model therefore does."""
    if follows == NO_ADAPTATION:
        return f"{signed(gain)}; a session does not learn from unlabelled windows"
    if follows.startswith("online"):
        return f"{signed(gain)}; sessions of the delivered model learn from a person's windows ({follows})"
    method = ADAPTATION_METHODS[follows].label if follows in ADAPTATION_METHODS else follows
    return f"{signed(gain)}; a session learns from unlabelled windows ({method})"


def playback_words(choice: Choice) -> list[str]:
    """What labels and adaptation gave held-out people. Not all need be played back, nor on all their windows, and
    always in balanced accuracy: these are not the scores of the table."""
    played = choice.playback
    if played is None:
        if choice.adaptation == "transductive":
            return []
        why = ": the time was too short for that" if out_of_time(choice.ended) else ""
        return [f"neither adaptation nor labels were tried on held-out people{why}"]
    people = len(next(iter(played.zero_shot.values())))
    metric = "" if choice.metric == BALANCED_ACCURACY else ", in balanced accuracy"
    gained = follow_words(played.session, played.gain)
    lines = [f"on the {people} people played back{metric}, without labels a session gains {gained}"]
    if played.online:
        tables = played.zero_shot["recorded"], played.adapted["recorded"], played.all_windows
        before, session, whole = (score(mean(scores)) for scores in tables)
        lines[0] += f" (as recorded: zero-shot {before}, in a session {session}, all windows {whole})"
    if played.calibrated:
        first, *more = [
            (n, f"{score(mean(played.before[n]))} becomes {score(mean(scores))}")
            for n, scores in played.calibrated.items()
        ]
        lines.append(
            f"with {first[0]} label{'s' * (first[0] != '1')} of each class {first[1]} on the windows left"
            + "".join(f"; with {n}, {words}" for n, words in more)
        )
    return lines


def harmed_by_following(played: Playback) -> str:
    """'1 of 12 people lose more than 0.02 when a session learns from their windows'."""
    return f"{_harmed(*played.harmed)} lose more than {HARM:g} when a session learns from their windows"


def calibration_words(played: Playback) -> str:
    """Where the delivered model is calibrated, and who loses by that."""
    helped = ", ".join(map(str, played.calibrates))
    where = (
        "is calibrated where people gained by it: " + helped if helped else "is never calibrated: nobody gained by it"
    )
    harmed = [f"{_harmed(*part)} with {labels}" for labels, part in played.harmed_by_labels.items()]
    losing = f" Who loses more than {HARM:g} by being calibrated: {', '.join(harmed)}." if harmed else ""
    return f"The delivered model {where}.{losing}"


def _harmed(part: float, people: int) -> str:
    return f"{round(part * people)} of {count(people, 'person', 'people')}"


def losing_words(played: Playback) -> str:
    """Whether anybody scores clearly lower in a session."""
    losing = {name for names in played.losing.values() for name in names}
    if not losing:
        return "Nobody scores clearly lower in any order."
    people = count(len(losing), "person", "people")
    return f"Clearly lower in some order, by a bootstrap of their own windows: {people}."
