"""When the delivered model should not answer: how often sets hold the true class, and what abstaining gains."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from ..runs.choice import Answering, Scores
from . import plot
from .escaping import plot_text
from .plot import ACCENT, GREY, LOSS, MUTED, Figure, Json
from .result_words import unseen_person_words
from .summary import Summary
from .wording import score, share

USUAL = "0.9"  # the coverage whose worst person is named


def coverage(summary: Summary) -> Figure | None:
    """Of each person, how often prediction sets hold the true class; a row for each coverage that is asked for."""
    answering = _answering(summary)
    if answering is None or not answering.coverage:
        return None
    data: list[Json] = []
    rows: list[list[Any]] = []
    titles, means = [], []
    values = {asked: list(by_person.values()) for asked, by_person in answering.coverage.items()}
    across = plot.score_axis("share of a person's windows", chain(*values.values(), map(float, values)))
    placed = plot.DotRows([plot.swarm(shares, across["range"]) for shares in values.values()])
    for place, (asked, by_person) in enumerate(answering.coverage.items()):
        sizes, mean, level = answering.set_size[asked], float(np.mean(values[asked])), float(asked)
        texts = [
            f"subject {plot_text(who)}<br>{share(value)}, {sizes[who]:.1f} classes in a set"
            for who, value in by_person.items()
        ]
        look = {"size": plot.DOT, "opacity": 0.6}
        data.append(plot.points(values[asked], placed.heights(place), "people", fill=GREY, text=texts, marker=look))
        data.append(plot.line([level] * 2, [place - 0.3, place + 0.3], "asked for", stroke=MUTED, line={"dash": "dot"}))
        data.append(plot.points([mean], [place], "mean", fill=ACCENT, text=[share(mean)], marker={"size": 12}))
        titles.append(f"{share(level)} asked for: {_mean(sizes):.1f} classes in a set")
        means.append(score(mean))
        rows += [[level, who, value, sizes[who]] for who, value in by_person.items()]
    return Figure(
        key="coverage",
        title="How often sets hold the true class",
        caption=f"A dot is {unseen_person_words(summary)}: the share of their windows whose prediction set holds "
        "the true class, with thresholds that the others gave. The dotted line is the share that was asked for, which "
        f"is promised for the mean over people alone.{_worst(answering.coverage.get(USUAL, {}))}",
        data=data,
        layout=placed.layout(across, titles, means),
        columns=("coverage_asked_for", "subject", "coverage", "classes_in_a_set"),
        rows=rows,
        height=placed.height * len(values) + 14,
        legend=False,
    )


def abstention(summary: Summary) -> Figure | None:
    """Accuracy on what is answered, by the share that is not."""
    answering = _answering(summary)
    if answering is None or not answering.accuracy:
        return None
    unanswered = [1 - _mean(answering.answered[asked]) for asked in answering.accuracy]
    data = []
    for who in dict.fromkeys(chain(*answering.accuracy.values())):
        known = [
            (x, by_person[who])
            for x, by_person in zip(unanswered, answering.accuracy.values(), strict=True)
            if who in by_person
        ]
        data.append(plot.line([x for x, _ in known], [y for _, y in known], "", stroke=GREY, width=1, opacity=0.45,
                              showlegend=False))  # fmt: skip
    first = next(iter(answering.accuracy.values()))
    lowest = min(first, key=lambda who: first[who])
    for name, fill, symbol, values in (
        ("mean over people", ACCENT, "circle", [_mean(by_person) for by_person in answering.accuracy.values()]),
        (f"subject {plot_text(lowest)}, the lowest", LOSS, "diamond",
         [by_person.get(lowest) for by_person in answering.accuracy.values()]),
    ):  # fmt: skip
        texts = [
            f"{name}<br>{share(x)} unanswered: {'–' if y is None else score(y)}"
            for x, y in zip(unanswered, values, strict=True)
        ]
        data.append(plot.path(unanswered, values, name, fill=fill, symbol=symbol, text=texts))
    everything = [value for by_person in answering.accuracy.values() for value in by_person.values()]
    across = plot.plain_axis("windows left unanswered, mean over people", tickformat=".0%", nticks=6)
    return Figure(
        key="abstention",
        title="What abstaining gains",
        caption="Accuracy on the windows that are answered, where those are left out of which the model is least sure; "
        "a thin line is a person. Thresholds come from the others, so of somebody who is hard to read more stays "
        f"unanswered.{_gained(answering)}",
        data=data,
        layout=plot.scores_over(across, "accuracy of the answers", everything, summary.data.chance),
        columns=("unanswered_asked_for", "subject", "answered", "accuracy"),
        rows=[
            [float(asked), who, share_, answering.accuracy.get(asked, {}).get(who)]
            for asked, by_person in answering.answered.items()
            for who, share_ in by_person.items()
        ],
        height=380,
    )


def _answering(summary: Summary) -> Answering | None:
    return None if summary.choice is None else summary.choice.answering


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def _worst(held: Scores) -> str:
    """held: by person, the share of windows whose set holds the true class."""
    if not held:
        return ""
    worst = min(held, key=held.__getitem__)
    return f" Least often, at {share(float(USUAL))}: {share(held[worst])} of the windows of subject {worst}."


def _gained(answering: Answering) -> str:
    if not {"0", "0.2"} <= set(answering.accuracy):
        return ""
    before, after = _mean(answering.accuracy["0"]), _mean(answering.accuracy["0.2"])
    left = 1 - _mean(answering.answered["0.2"])
    return f" With {share(left)} unanswered the mean goes from {score(before)} to {score(after)}."
