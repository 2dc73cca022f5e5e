"""What the representation still tells about people: leakage, and a picture of it."""

from __future__ import annotations

import math

import numpy as np

from ..settings import SUBJECT, nuisance_parts
from . import plot
from .escaping import plot_text
from .plot import ACCENT, GREY, MUTED, PALETTE, Figure, Json
from .summary import Leak, Point, Summary
from .wording import score

MOST_NAMES = 14  # in a legend
SIDES = {"baseline": GREY, "uncensored": PALETTE[1], "chosen": ACCENT}  # and their colours
Measured = dict[str, Leak]  # by test subject of the fold


def leakage(summary: Summary) -> Figure | None:
    """How well a fresh probe reads the subject from z, before and after, per fold."""
    leaks_of = {
        side: {leak.test_subject: leak for leak in summary.weights.leakage.get(side, []) if leak.nuisance == SUBJECT}
        for side in SIDES
    }
    folds = [subject for subject in summary.data.subjects if any(subject in measured for measured in leaks_of.values())]
    if not folds:
        return None
    names = summary.role_names
    marks = [_measured(leaks_of[s], fill, names[s], folds) for s, fill in SIDES.items() if leaks_of[s]]
    leaks = [leak for side in leaks_of.values() for leak in side.values()]
    chance = float(np.mean([leak.chance for leak in leaks]))
    across, accuracies = plot.names_axis(folds, "fold, by its test subject"), [leak.accuracy for leak in leaks]
    rows = [(side, leaks_of[side][fold]) for fold in folds for side in SIDES if fold in leaks_of[side]]
    return Figure(
        key="leakage",
        title="Can the subject be read from the representation?",
        caption="A fresh classifier tries to tell from the network's latent code which training subject a trial "
        f"belongs to. At the dashed line it can only guess{_reading(summary, leaks_of)}.",
        data=[_joints(leaks_of, folds), *marks],
        layout=plot.scores_over(across, "accuracy of reading the subject", accuracies, chance),
        columns=("test_subject", "model", "accuracy", "chance", "bits"),
        rows=[[leak.test_subject, side, leak.accuracy, leak.chance, leak.bits] for side, leak in rows],
        height=300,
    )


def _reading(summary: Summary, leaks_of: dict[str, Measured]) -> str:
    """How to read the distance between dots: a baseline with another preprocessing shows no effect of the censor."""
    choice = summary.choice
    if choice is None or not leaks_of["chosen"]:
        return ""
    alike = not set(choice.chosen.setting.traits(choice.baseline.setting)) - {"batches"}
    if choice.chosen.setting.penalty is None:
        none = "no censor was chosen" if choice.average is None else "the best single candidate has no censor"
        difference = "batches are drawn" if alike else "windows are preprocessed and learned from"
        return f"; {none}, so the dots differ by how {difference}"
    if SUBJECT not in nuisance_parts(choice.chosen.setting.penalty.nuisance):
        return f"; the censor removes the {choice.chosen.setting.penalty.nuisance}, not the subject: see the table"
    if leaks_of["uncensored"]:
        rest = "draws its batches" if alike else "preprocesses its windows or trains"
        return (
            ", so the censor should move the dots down from those of the same network without it; the baseline "
            f"{rest} in another way"
        )
    if not alike:
        return "; the baseline preprocesses its windows or trains in another way, so censoring is not the only cause"
    return ", so censoring should move the dots down"


def _joints(leaks_of: dict[str, Measured], folds: list[str]) -> Json:
    """A line from before to after, for the folds that have both."""
    before = leaks_of["uncensored"] or leaks_of["baseline"]
    x: list[int | None] = []
    y: list[float | None] = []
    for i, fold in enumerate(folds):
        if fold in before and fold in leaks_of["chosen"]:
            x += [i, i, None]
            y += [before[fold].accuracy, leaks_of["chosen"][fold].accuracy, None]
    return plot.line(x, y, "", stroke=MUTED, width=1.5, showlegend=False)


def _measured(leaks: Measured, fill: str, label: str, folds: list[str]) -> Json:
    placed = [(i, leaks[fold]) for i, fold in enumerate(folds) if fold in leaks]
    texts = [
        f"test subject {plot_text(leak.test_subject)}<br>{label}: {score(leak.accuracy)}"
        f"<br>at least {leak.bits:.2f} bits"
        for _, leak in placed
    ]
    x, y = [i for i, _ in placed], [leak.accuracy for _, leak in placed]
    return plot.points(x, y, label, fill=fill, text=texts, marker={"size": 10})


def latent_by_subject(summary: Summary) -> Figure | None:
    reading = "the less the colours form islands, the less the representation tells who it was"
    return _picture(summary, "subject", reading)


def latent_by_class(summary: Summary) -> Figure | None:
    reading = "islands of one colour are what the classifier needs, and censoring should leave them in place"
    return _picture(summary, "class", reading)


def _picture(summary: Summary, by: str, reading: str) -> Figure | None:
    """z of one fold's training trials in two dimensions, a panel for each model, coloured by `by`."""
    clouds = {side: cloud for side in SIDES if (cloud := summary.weights.latent.get(side))}
    if not clouds:
        return None
    names = sorted({_name(point, by) for cloud in clouds.values() for point in cloud}, key=_natural)
    parts: list[Json] = []
    for panel, side in enumerate(clouds):
        parts.append(plot.axes(plot.bare_axis(frame=True), plot.bare_axis(frame=True), panel))
        parts.append({"annotations": [plot.panel_title(f"<b>{summary.role_names[side]}</b>", panel)]})
    return Figure(
        key=f"latent-{by}",
        title=f"The representation of every trial, coloured by {by}",
        caption=f"Each dot is a training trial of one fold, flattened to two dimensions: {reading}.",
        data=[trace for panel, cloud in enumerate(clouds.values()) for trace in _clouds(cloud, by, names, panel)],
        layout=plot.merge_layouts(*parts),
        columns=("model", "x", "y", "subject", "class"),
        rows=[
            [side, point.x, point.y, point.subject, point.label] for side, cloud in clouds.items() for point in cloud
        ],
        panels=len(clouds),
        height=400,
        square=True,
        legend=len(names) <= MOST_NAMES,
        axes=False,
    )


def _name(point: Point, by: str) -> str:
    return point.subject if by == "subject" else point.label


def _clouds(points: list[Point], by: str, names: list[str], panel: int) -> list[Json]:
    other = "class" if by == "subject" else "subject"
    hover = f"{by} %{{fullData.name}}<br>{other} %{{text}}<extra></extra>"
    traces = []
    for position, name in enumerate(names):
        named = [point for point in points if _name(point, by) == name]
        if named:
            fill, symbol = plot.colour_and_shape(position)
            x, y = [point.x for point in named], [point.y for point in named]
            look, texts = {"size": 5, "opacity": 0.85}, [plot_text(_name(point, other)) for point in named]
            dots = plot.points(
                x, y, plot_text(name), fill=fill, symbol=symbol, marker=look, text=texts, hovertemplate=hover
            )
            traces.append({**dots, "legendgroup": str(position), "showlegend": panel == 0, **plot.on_panel(panel)})
    return traces


def _natural(name: str) -> tuple[int, float, str]:
    """2 before 10, numbers before words."""
    try:
        value = float(name)
    except ValueError:
        value = math.nan
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
