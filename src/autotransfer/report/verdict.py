"""The headline: what the run found, in one line and one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.choice import Choice
from .statistics import FEWEST_TO_TEST, Paired
from .summary import Summary
from .wording import (
    NO_BETTER,
    average_words,
    count,
    guessing_words,
    heaviest_words,
    result_words,
    score,
    setting_words,
    signed,
)


@dataclass(frozen=True)
class Verdict:
    kind: str  # "guessing", "gain", "unclear", "loss", "baseline" or "unknown"
    headline: str
    sentence: str


def verdict(summary: Summary, pair: Paired | None) -> Verdict:
    """Of a finished run. A gain is claimed only for enough subjects and where the whole interval lies above zero, and
    nothing is claimed of what is not better than guessing."""
    choice = summary.choice
    assert choice is not None
    if choice.guesses:
        return _guessing(choice, pair)
    if choice.average is not None:
        rest = heaviest_words(choice.average)
        name = average_words(choice.average)
        return _judged(pair, Delivered("the average", f"AutoTransfer's {name}", f"Delivered: an {name}", rest, rest))
    if choice.baseline_won and choice.censor_tried:
        sentence = f"{NO_BETTER}, so AutoTransfer kept it."
        return Verdict("baseline", "Censoring did not help on these recordings", sentence)
    if choice.baseline_won:
        sentence = "Validation gave no reason to leave it, so AutoTransfer kept it. No censor was tried."
        return Verdict("baseline", NO_BETTER, sentence)
    chosen = setting_words(choice.chosen.setting, summary.plain)
    whom = f" It chose {chosen}"
    doubtful = f"{whom}, which validation favoured."
    return _judged(pair, Delivered(_cause(summary), "AutoTransfer", f"Chosen: {chosen}", f"{whom}.", doubtful))


def _guessing(choice: Choice, pair: Paired | None) -> Verdict:
    what = "the plain network" if choice.average is None and choice.baseline_won else "what AutoTransfer delivers"
    beside = "" if pair is None or what == "the plain network" else f"; the plain network {score(pair.second.mean)}"
    remedy = "Look at the data, their labels and how windows were cut before you use this model."
    return Verdict(
        "guessing", guessing_words(choice), f"{_capital(what)} scored {result_words(choice)}{beside}. {remedy}"
    )


@dataclass(frozen=True)
class Delivered:
    """The words for what was delivered."""

    cause: str  # what may have helped
    name: str
    title: str  # all there is to say without scores
    rest: str  # a further sentence
    doubtful: str  # the same where there is no clear gain


def _judged(pair: Paired | None, of: Delivered) -> Verdict:
    if pair is None or pair.interval is None:
        return Verdict("unknown", of.title, "There are too few test scores to compare it with the baseline.")
    scores = f"{of.name} scored {score(pair.first.mean)} against {score(pair.second.mean)} for the plain network"
    low, high = pair.interval
    if pair.n < FEWEST_TO_TEST:
        headline = f"{count(pair.n, 'subject')}: too few to tell whether {of.cause} helps"
        return Verdict("unclear", headline, f"{scores}.{of.rest}")
    if low > 0:
        headline = f"{_capital(of.cause)} helped on unseen subjects: {signed(pair.mean)} balanced accuracy"
        return Verdict("gain", headline, f"{scores}.{of.rest}")
    if high < 0:
        headline = f"{_capital(of.cause)} lowered the score on unseen subjects: {signed(pair.mean)} balanced accuracy"
        return Verdict("loss", headline, f"{scores}.{of.doubtful}")
    return Verdict(
        "unclear",
        f"No clear gain from {of.cause} on these recordings",
        f"{scores}, and the interval for the difference includes zero.{of.doubtful}",
    )


def _cause(summary: Summary) -> str:
    """Censoring, where nothing else tells what was chosen, for all or for somebody, from the baseline."""
    choice = summary.choice
    assert choice is not None
    known = summary.settings | choice.settings
    names = [*choice.nested_choices.values(), *choice.nested_full_choices.values()]
    settings = [choice.chosen.setting, *(known[name] for name in names if name in known)]
    return "the chosen setting" if any(one.traits(summary.plain) for one in settings) else "censoring"


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
