"""Held-out people using the model: what labels and adaptation are worth to a person."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from ..runs.choice import Scores
from . import plot
from .plot import ACCENT, GREY, LOSS, MUTED, Figure, Json
from .result_words import calibration_words, follow_words, harmed_by_following, losing_words
from .summary import Summary
from .wording import count, score, signed

LINES = {  # of Playback: how a line is called and drawn
    "calibrated": ("calibrated", ACCENT, "circle"),
    "before": ("as delivered", MUTED, "diamond"),
    "own": ("the person's own classifier", LOSS, "square"),
}


def labels(summary: Summary) -> Figure | None:
    """Score by the number of labelled windows of each class."""
    played = None if summary.choice is None else summary.choice.playback
    if played is None or not played.calibrated:
        return None
    data: list[Json] = []
    rows: list[list[Any]] = []
    for field, (name, fill, symbol) in LINES.items():
        tables: dict[str, Scores] = getattr(played, field)
        if not tables:
            continue
        x = list(tables)
        means = [float(np.mean(list(by_person.values()))) for by_person in tables.values()]
        low = [float(np.percentile(list(by_person.values()), 25)) for by_person in tables.values()]
        texts = [
            f"{name}<br>{count(int(k), 'labelled window')} of each class: {score(mean)}<br>lower quartile {score(q)}, "
            f"{count(len(by_person), 'subject')}"
            for (k, by_person), mean, q in zip(tables.items(), means, low, strict=True)
        ]
        data.append(plot.path(x, means, name, fill=fill, symbol=symbol, text=texts, marker={"size": 10}))
        rows += [[name, int(k), mean, q, len(tables[k])] for k, mean, q in zip(x, means, low, strict=True)]
    across = plot.plain_axis("labelled windows of each class", type="category")
    return Figure(
        key="labels",
        title="What a few labels are worth",
        caption="Mean over held-out people, each by trainings that left them out. The first windows of each class are "
        "labelled, the others are predicted: by the model as it is delivered, by the same calibrated with the labels, "
        f"and by a linear classifier of the labels alone. {calibration_words(played)}",
        data=data,
        layout=plot.scores_over(across, "balanced accuracy", [row[2] for row in rows], summary.data.chance),
        columns=("model", "labels_of_each_class", "mean", "lower_quartile", "subjects"),
        rows=rows,
        height=360,
    )


CURVES = {  # of Playback.curves: how a line is called and drawn
    "zero_shot": ("every window by itself", MUTED, "diamond"),
    "session": ("in a session", ACCENT, "circle"),
    "all_windows": ("with all windows at once", GREY, "square"),
}


def windows_seen(summary: Summary) -> Figure | None:
    """Score by the number of windows that a person has shown before."""
    played = None if summary.choice is None else summary.choice.playback
    if played is None or not played.curves:
        return None
    ends = [f" to {end}" for end in played.seen[1:]] + [" on"]
    stretches = [f"{start + 1}{end}" for start, end in zip(played.seen, ends, strict=True)]
    data: list[Json] = []
    rows: list[list[Any]] = []
    for order, lines in played.curves.items():
        for curve, (name, fill, symbol) in CURVES.items():
            values = lines[curve]
            rows += [[order, name, stretch, value] for stretch, value in zip(stretches, values, strict=True)]
            if order == "recorded":
                text = [f"{name}<br>windows {s}: {score(v)}" for s, v in zip(stretches, values, strict=True)]
                data.append(
                    plot.path(stretches, values, name, fill=fill, symbol=symbol, text=text, marker={"size": 10})
                )
    shown = [value for values in played.curves["recorded"].values() for value in values]
    across = plot.plain_axis("windows of the person", type="category")
    return Figure(
        key="windows_seen",
        title="What more windows of a person are worth",
        caption="Held-out people in the order of recording, without labels: the score on their first windows, on the "
        "next, and so on. What a session does is decided by the others. The numbers have the other orders as well. "
        + losing_words(played),
        data=data,
        layout=plot.scores_over(across, "balanced accuracy", shown, summary.data.chance),
        columns=("order", "model", "windows", "mean"),
        rows=rows,
        height=360,
    )


def adaptation(summary: Summary) -> Figure | None:
    """What people gain by being followed, by the order in which their windows come."""
    played = None if summary.choice is None else summary.choice.playback
    if played is None:
        return None
    data: list[Json] = []
    rows: list[list[Any]] = []
    titles, means = [], []
    gains = {
        order: [played.adapted[order][name] - value for name, value in before.items()]
        for order, before in played.zero_shot.items()
    }
    across = plot.difference_axis("adapted minus as delivered", chain(*gains.values()), least=0.01)
    placed = plot.DotRows([plot.swarm(values, across["range"]) for values in gains.values()])
    for place, (order, before) in enumerate(played.zero_shot.items()):
        after, values = played.adapted[order], gains[order]
        mean = float(np.mean(values))
        look = {"size": plot.DOT, "opacity": 0.6}
        text = [signed(gain) for gain in values]
        data.append(plot.points(values, placed.heights(place), "people", fill=GREY, text=text, marker=look))
        fill = plot.gain_colour(mean)
        data.append(plot.points([mean], [place], "mean", fill=fill, text=[signed(mean)], marker={"size": 12}))
        titles.append(f"{order}: {score(float(np.mean(list(after.values()))))}")
        means.append(signed(mean))
        rows += [[order, name, before[name], after[name]] for name in before]
    return Figure(
        key="adaptation",
        title="What following a person is worth",
        caption="Held-out people played back window by window, without labels: in the order of recording, in a random "
        "one, class after class, and one class before the others. A dot is a person's balanced accuracy with "
        "adaptation minus without; right of zero they gain. How a person is followed is decided by the others. "
        f"The mean over all orders is {follow_words(played.session, played.gain)}. {harmed_by_following(played)}.",
        data=data,
        layout=placed.layout(across | {"nticks": 6}, titles, means),
        columns=("order", "subject", "as_delivered", "adapted"),
        rows=rows,
        height=placed.height * len(played.zero_shot) + 14,
        legend=False,
    )
