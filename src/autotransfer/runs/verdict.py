"""What a run found, in the sentences that terminal, report, result.json, model card and estimator all have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ..training.intervals import FEWEST_TO_TEST, NextPerson, bootstrap_interval, next_words
from ..training.scoring import chance_words, label_of
from ..words import count, printable, range_words, score, signed

SAME = 1e-9  # scores that differ by rounding alone
MOST_NAMES = 10  # of people, in a sentence
LETTERS = 40  # of a name


@dataclass(frozen=True)
class BestPeer:
    """The simple model that scores highest on the people of the run, and what is delivered minus it, person by
    person. That it is picked by its test scores favours it, not what is delivered."""

    name: str
    mean: float
    people: int  # whom both have scored
    difference: float  # mean over them
    interval: tuple[float, ...] | None  # 95 %; None for a single person

    @property
    def comparison(self) -> str:
        """Of what is delivered with it: "few" people, "better", "worse" or "level"."""
        if self.interval is None or self.people < FEWEST_TO_TEST:
            return "few"
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "level"


def best_peer(estimate: Mapping[str, float], peers: Mapping[str, Mapping[str, float]]) -> BestPeer | None:
    """estimate: what is delivered, by person; peers: simple models, by name and person. None where nobody was scored by
    both."""
    common = {
        name: [person for person in estimate if math.isfinite(scores.get(person, math.nan))]
        for name, scores in peers.items()
    }
    means = {name: sum(peers[name][person] for person in both) / len(both) for name, both in common.items() if both}
    if not means:
        return None
    name = max(means, key=means.__getitem__)
    gaps = [estimate[person] - peers[name][person] for person in common[name]]
    gaps = [0.0 if abs(gap) <= SAME else gap for gap in gaps]
    return BestPeer(name, means[name], len(gaps), sum(gaps) / len(gaps), bootstrap_interval(gaps, seed=0))


class Result(Protocol):
    """What the sentences below need of a `Choice`, which has the first of them among its fields."""

    @property
    def estimate(self) -> Mapping[str, float]: ...

    @property
    def interval(self) -> tuple[float, float] | None: ...

    @property
    def below(self) -> Mapping[str, float]: ...

    @property
    def guesses(self) -> bool: ...

    @property
    def metric(self) -> str: ...

    @property
    def chance(self) -> float | None: ...

    @property
    def hold_out(self) -> str: ...

    @property
    def at_least(self) -> float | None: ...

    @property
    def skipped_peers(self) -> Mapping[str, str]: ...

    @property
    def verdict(self) -> str: ...

    @property
    def best_peer(self) -> BestPeer | None: ...

    @property
    def next_person(self) -> NextPerson | None: ...


# ---- the headline ----------------------------------------------------------------------------------------------------


def verdict(result: Result) -> str:
    """What is delivered scores on people it has not seen, how sure that is, and how the best simple model does."""
    start = "Not better than guessing: the" if result.guesses else "The"
    return f"{start} model scores {result_words(result)}{_beside(result.best_peer)}."


def _beside(peer: BestPeer | None) -> str:
    if peer is None:
        return "; no simple model was scored beside it"
    name, difference = _name(peer.name), signed(peer.difference)
    if peer.comparison == "few":
        people = count(peer.people, "person is", "people are")
        return (
            f"; the best simple model, {name}, scores {score(peer.mean)} (difference {difference}), and {people} too "
            "few to tell them apart"
        )
    words = {"better": "better than", "worse": "worse than", "level": "not clearly better than"}[peer.comparison]
    return (
        f": {words} the best simple model, {name}, which scores {score(peer.mean)} (difference {difference}, 95 % "
        f"interval {range_words(peer.interval)})"
    )


def worst_words(result: Result) -> str | None:
    """Who scores lowest and, where the user named a threshold, who is below it."""
    if not result.estimate:
        return None
    person, lowest = min(result.estimate.items(), key=lambda item: item[1])
    told = f"Worst person: {score(lowest)} (subject {_name(person)})."
    if result.at_least is None:
        return told
    below = result.below
    if not below:
        return f"{told} Nobody scores below {result.at_least:g}."
    names = [f"{_name(one)}: {score(value)}" for one, value in list(below.items())[:MOST_NAMES]]
    more = f" and {len(below) - MOST_NAMES} more" if len(below) > MOST_NAMES else ""
    return (
        f"{told} Below {result.at_least:g}: {len(below)} of {len(result.estimate)} people ({', '.join(names)}{more})."
    )


def headline(result: Result) -> list[str]:
    """The verdict, the next person, the worst one: what comes before all else, wherever a run's result is told."""
    return [
        line for line in (result.verdict, next_words(result.next_person, result.hold_out), worst_words(result)) if line
    ]


def skipped_words(result: Result) -> list[str]:
    """Simple models that nobody has scores of, and why."""
    if not result.skipped_peers:
        return []
    return [f"simple models not scored: {'; '.join(f'{_name(n)} ({why})' for n, why in result.skipped_peers.items())}"]


_WAYS = {
    "shift": "by a shift that all classes share", "prototypes": "by class prototypes",
    "statistics": "by means and covariances", "entropy": "by entropy",
}  # fmt: skip


def follow_words(follows: str, gain: float) -> str:
    """What following held-out people without labels gave them, and what the delivered model therefore does."""
    if follows == "none":
        return f"{signed(gain)}; a session does not learn from unlabelled windows"
    if follows.startswith("online"):
        return f"{signed(gain)}; sessions of the delivered model learn from a person's windows ({follows})"
    return f"{signed(gain)}; a session learns from unlabelled windows ({_WAYS.get(follows, follows)})"


# ---- its parts -------------------------------------------------------------------------------------------------------


def result_words(result: Result) -> str:
    """'0.487 balanced accuracy on 6 people it has not seen (95 % interval 0.460 to 0.514; chance .50)'."""
    limits, values = result.interval, list(result.estimate.values())
    told = [] if limits is None else [f"95 % interval {score(limits[0])} to {score(limits[1])}"]
    told += [] if result.chance is None else [chance_words(result.chance)]
    mean = sum(values) / len(values) if values else None
    people = count(len(values), "person", "people")
    where = unseen_words(result.hold_out, people)
    return f"{score(mean)} {metric_label(result)} {where}" + (f" ({'; '.join(told)})" if told else "")


def unseen_words(hold_out: str, people: str) -> str:
    """On what the model is scored. people: '6 people'."""
    if hold_out == "session":
        return f"on new sessions of {people} it was trained on"
    if hold_out != "subject":
        return f"on {people}, every {_name(hold_out)} new to it"
    return f"on {people} it has not seen"


def metric_label(result: Result) -> str:
    return label_of(result.metric)


def guessing_words(result: Result) -> str:
    """'Not better than guessing (chance .50)'."""
    return "Not better than guessing" + ("" if result.chance is None else f" ({chance_words(result.chance)})")


def metric_words(result: Result, chance: float | None = None) -> str:
    """'balanced accuracy on 12 test subjects (chance .25)'. chance: where the choice does not say it."""
    known = result.chance if result.chance is not None else chance
    told = "" if known is None else f" ({chance_words(known)})"
    return f"{metric_label(result)} on {count(len(result.estimate), 'test subject')}{told}"


def _name(text: str) -> str:
    """A user's own, on one line."""
    shown = printable(text)
    return shown if len(shown) <= LETTERS else shown[: LETTERS - 1] + "…"
