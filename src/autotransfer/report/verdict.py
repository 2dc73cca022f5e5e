"""The headline: what the run found, in one line and one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from .statistics import FEWEST_TO_TEST, Paired
from .summary import Summary
from .terminal import NO_BETTER
from .wording import count, score, setting_words, signed


@dataclass(frozen=True)
class Verdict:
    kind: str  # "gain", "unclear", "loss", "baseline" or "unknown"
    headline: str
    sentence: str


def verdict(summary: Summary, pair: Paired | None) -> Verdict:
    """Of a finished run. A gain is claimed only for enough subjects and where the whole interval lies above zero."""
    choice = summary.choice
    assert choice is not None
    if choice.baseline_won and choice.lead is None and choice.censor_tried:
        sentence = "No setting did better than the plain network on validation, so AutoTransfer kept it."
        return Verdict("baseline", "Censoring did not help on these recordings", sentence)
    if choice.baseline_won:
        tried = "" if choice.censor_tried else " No censor was tried."
        return Verdict("baseline", NO_BETTER, f"Validation gave no reason to leave it, so AutoTransfer kept it.{tried}")
    chosen, what = setting_words(choice.chosen.setting, summary.plain), _cause(summary)
    if pair is None or pair.interval is None:
        return Verdict("unknown", f"Chosen: {chosen}", "There are too few test scores to compare it with the baseline.")
    scores = f"AutoTransfer scored {score(pair.first.mean)} against {score(pair.second.mean)} for the plain network"
    low, high = pair.interval
    if pair.n < FEWEST_TO_TEST:
        people = count(pair.n, "subject")
        return Verdict("unclear", f"{people}: too few to tell whether {what} helps", f"{scores}. It chose {chosen}.")
    if low > 0:
        headline = f"{_capital(what)} helped on unseen subjects: {signed(pair.mean)} balanced accuracy"
        return Verdict("gain", headline, f"{scores}. It chose {chosen}.")
    if high < 0:
        headline = f"{_capital(what)} lowered the score on unseen subjects: {signed(pair.mean)} balanced accuracy"
        return Verdict("loss", headline, f"{scores}. It chose {chosen}, which validation favoured.")
    return Verdict(
        "unclear",
        f"No clear gain from {what} on these recordings",
        f"{scores}, and the interval for the difference includes zero. It chose {chosen}, which validation favoured.",
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
