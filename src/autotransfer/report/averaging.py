"""What is in the delivered average, and what each kind of candidates is worth in it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..runs.choice import Average
from .escaping import Html, joined, tag
from .outcomes import finite
from .result_words import metric_words
from .statistics import Paired, paired, spread
from .summary import Summary
from .tables import table
from .wording import interval, kind_label, kind_words, score, share, signed


@dataclass(frozen=True)
class Part:
    """A kind of candidates in the average."""

    kind: str
    share: float
    between: tuple[float, float] | None  # the smallest and largest share where one person at a time is left out
    candidates: int  # with any weight
    members: int
    pair: Paired | None  # the average minus the average without the kind, subject by subject

    @property
    def idle(self) -> bool:
        """Whether the average scores the same or better without it, to three digits."""
        return self.pair is not None and round(self.pair.mean, 3) <= 0


def parts(summary: Summary) -> list[Part]:
    """By kind, the heaviest first; none without an average."""
    average = summary.average
    if summary.choice is None or average is None:
        return []
    scores, nested = finite(summary.choice.nested_test_scores), nested_shares(average)
    kinds = []
    for kind in dict.fromkeys([*average.kinds, *average.without_kind]):
        used = [candidate for candidate in average.weights if candidate.kind == kind and candidate.share > 0]
        values = [shares.get(kind, 0.0) for shares in nested.values()]
        between = (min(values), max(values)) if values else None
        pair = paired(scores, finite(average.without_kind.get(kind, {})))
        members = sum(candidate.members for candidate in used)
        kinds.append(Part(kind, average.kinds.get(kind, 0.0), between, len(used), members, pair))
    return kinds


def nested_shares(average: Average) -> dict[str, dict[str, float]]:
    """Subject -> kind -> share of the weights that were found without the subject."""
    kinds = {candidate.name: candidate.kind for candidate in average.weights}
    by_subject: dict[str, dict[str, float]] = {}
    for subject, shares in average.nested_weights.items():
        by_kind = by_subject.setdefault(subject, {})
        for name, value in shares.items():
            kind = kinds.get(name, name)
            by_kind[kind] = by_kind.get(kind, 0.0) + value
    return by_subject


def moved_weight(average: Average) -> list[float]:
    """For each subject: the share of the weights that moves to other candidates when the subject is left out."""
    delivered = {candidate.name: candidate.share for candidate in average.weights}
    return [
        sum(abs(nested.get(name, 0.0) - delivered.get(name, 0.0)) for name in {*nested, *delivered}) / 2
        for nested in average.nested_weights.values()
        if nested
    ]


def others(summary: Summary) -> dict[str, Paired | None]:
    """The average minus its alternatives, by label: the best single candidate, and equal weights."""
    average = summary.average
    if summary.choice is None or average is None:
        return {}
    nested = finite(summary.choice.nested_test_scores)
    tables = {"Choosing alone": average.choosing_test_scores, "Equal weights": average.equal_test_scores}
    return {label: paired(nested, finite(scores)) for label, scores in tables.items()}


def kinds(summary: Summary) -> Html | None:
    """Share and contribution of every kind, and a sentence on those that contribute nothing."""
    shown = parts(summary)
    if not shown:
        return None
    lines = [
        [
            kind_label(part.kind), part.candidates, part.members, share(part.share), _between(part.between),
            *_worth(part.pair),
        ]
        for part in shown
    ]  # fmt: skip
    heads = (
        "kind", "candidates", "members", "share of the weights", "without one person", "average without the kind",
        "what the kind adds", "95 % interval", "gain / tie / loss",
    )  # fmt: skip
    caption = (
        f"Kinds of candidates in the average. Scores: {_metric(summary)}. What a kind adds is the average minus the "
        "average without it, the mean over subjects"
    )
    idle = [f"Without {kind_words(part.kind)} the average scores the same or better." for part in shown if part.idle]
    return joined(
        table(caption, heads, lines, numeric=1, less="1 2 4 5 8"),
        tag("p", " ".join(idle), class_="caption") if idle else None,
    )


def alternatives(summary: Summary) -> Html | None:
    """Scores of the best single candidate, and of equal weights."""
    pairs = {label: pair for label, pair in others(summary).items() if pair is not None}
    if summary.choice is None or not pairs:
        return None
    nested = spread(list(finite(summary.choice.nested_test_scores).values()))
    lines = [["Average, nested", score(nested.mean), score(nested.lower_quartile), "–", "–", "–"]]
    for label, pair in pairs.items():
        mean, *against = _worth(pair)
        lines.append([label, mean, score(pair.second.lower_quartile), *against])
    heads = ("", "mean", "lower quartile", "average minus it", "95 % interval", "gain / tie / loss")
    caption = f"The average beside the best single candidate and beside equal weights: {_metric(summary)}, all nested"
    return table(caption, heads, lines, numeric=1, less="2 5")


def _metric(summary: Summary) -> str:
    assert summary.choice is not None
    return metric_words(summary.choice, summary.data.chance)


def _between(ends: tuple[float, float] | None) -> str:
    if ends is None or not all(map(math.isfinite, ends)):
        return "–"
    low, high = np.round(np.multiply(ends, 100)).astype(int).tolist()
    return share(ends[0]) if low == high else f"{low} to {high}\u00a0%"


def _worth(pair: Paired | None) -> list[str]:
    """Score of the alternative, the average's difference to it, interval and signs."""
    if pair is None:
        return ["–"] * 4
    return [score(pair.second.mean), signed(pair.mean), interval(pair), f"{pair.wins} / {pair.ties} / {pair.losses}"]
