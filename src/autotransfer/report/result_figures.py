"""The paper's results figure, the paired differences behind the headline, and how the score grew with time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from ..settings import SUBJECT
from ..training.intervals import bootstrap_interval
from . import plot
from .comparison import Contender, contenders, find, rival, strictest_estimate, subject_order
from .escaping import plot_text
from .plot import ACCENT, INK, MUTED, SOFT, Figure, Json
from .result_words import on_unseen_people
from .statistics import paired, spread
from .summary import Summary
from .wording import duration, interval, score, signed

SORTED = "test subject, worst to best under the baseline"


def glance(summary: Summary) -> Figure | None:
    """The figure of the first screen: scores of all people under the delivered model, the simple models (best first)
    and the plain network."""
    rows = contenders(summary)
    best, base = strictest_estimate(rows), find(rows, "none")
    if best is None:
        return None
    peers = sorted((row for row in rows if row.is_peer), key=lambda row: -spread(list(row.scores.values())).mean)
    shown = [replace(best, label="AutoTransfer, as delivered"), *peers]
    shown += [replace(base, label="Single plain network")] if base else []
    return _dots_by_row(
        summary,
        shown,
        key="glance",
        title="Every person it has not seen" if summary.options.hold_out == SUBJECT else "Every person",
        caption="Dots are people, lines means, bands their 95 % intervals.",
        shapes=[shape for i, row in enumerate(shown) for shape in _band(row, i)],
    )


def _band(row: Contender, position: int) -> list[Json]:
    """Mean and interval of a row."""
    values = list(row.scores.values())
    mean, limits = spread(values).mean, bootstrap_interval(values, seed=0)
    across: Json = {"xref": "x", "yref": "y", "layer": "below", "y0": position - 0.3, "y1": position + 0.3}
    fill, soft = (ACCENT, SOFT) if row.is_autotransfer else (plot.GREY, plot.GREY_SOFT)
    line = {**across, "type": "line", "x0": mean, "x1": mean, "line": {"color": fill, "width": 2.5}}
    if limits is None:
        return [line]
    return [{**across, "type": "rect", "x0": limits[0], "x1": limits[1], "fillcolor": soft, "line": {"width": 0}}, line]


def results(summary: Summary) -> Figure | None:
    """Every fold's test score, one row per method, with the mean as a cross."""
    rows = contenders(summary)
    if not rows:
        return None
    drawn = _dots_by_row(
        summary,
        rows,
        key="results",
        title="Test score of every fold",
        caption="Each dot is one subject that neither trained nor validated the model it is tested on; the cross is "
        "the mean. Each method is shown with the setting that validation ranks first."
        + ("" if summary.complete else " Until all folds have ended, rows may rest on different subjects."),
    )
    return replace(drawn, data=drawn.data + [_cross(row, i) for i, row in enumerate(rows)])


def _dots_by_row(
    summary: Summary, rows: list[Contender], *, key: str, title: str, caption: str, shapes: Sequence[Json] = ()
) -> Figure:
    """A row of dots for each contender, its name above and its mean to the right."""
    values = [list(row.scores.values()) for row in rows]
    across = plot.score_axis(f"{summary.metric} on the test subject", chain(*values), summary.chance)
    placed = plot.DotRows([plot.swarm(scores, across["range"]) for scores in values])
    titles, means = [plot_text(row.label, 40) for row in rows], [score(spread(scores).mean) for scores in values]
    for i in (i for i, row in enumerate(rows) if row.is_autotransfer):
        titles[i], means[i] = f"<b>{titles[i]}</b>", f"<b>{means[i]}</b>"
    head = plot.note("mean", x=1, y=-0.5, fill=MUTED, xshift=12)
    chance = plot.vertical_line(summary.chance, "chance")
    return Figure(
        key=key,
        title=title,
        caption=caption,
        data=[_strip(row, placed.heights(i)) for i, row in enumerate(rows)],
        layout=placed.layout(across, titles, means, chance, {"shapes": [*shapes], "annotations": [head]}),
        columns=("row", "setting", "test_subject", "test_score"),
        rows=[[r.label, r.setting or "by subject", s, v] for r in rows for s, v in r.scores.items()],
        height=placed.height * len(rows) + 14,
        legend=False,
    )


def _strip(row: Contender, heights: list[float]) -> Json:
    """One dot per subject; heights only keep dots apart."""
    texts = [f"{plot_text(row.label, 40)}<br>subject {plot_text(s)}: {score(v)}" for s, v in row.scores.items()]
    dots = list(row.scores.values()), heights, plot_text(row.label, 40)
    fill, symbol = plot.colour_and_mark(row.key)
    return plot.points(*dots, fill=fill, symbol=symbol, text=texts, marker={"opacity": 0.85, "size": plot.DOT})


def _cross(row: Contender, position: int) -> Json:
    described = spread(list(row.scores.values()))
    text = f"{plot_text(row.label, 40)}<br>mean {score(described.mean)}"
    text += f"<br>lower quartile {score(described.lower_quartile)}"
    look = {"size": 14, "line": {"color": INK, "width": 2.5}}
    return plot.points([described.mean], [position], "mean", fill=INK, symbol="x-thin", text=[text], marker=look)


def scores_by_subject(summary: Summary) -> Figure | None:
    """Accuracy by test subject, sorted by the baseline."""
    rows = contenders(summary)
    order = subject_order(rows)
    if not order:
        return None
    best = strictest_estimate(rows)
    front = [row for row in rows if row.key == "none" or row.is_peer or row is best]
    behind = [row for row in rows if row not in front and not row.is_autotransfer]
    values = [value for row in rows for value in row.scores.values()]
    hidden = {"visible": "legendonly"} if front else {}
    return Figure(
        key="by-subject",
        title="Accuracy by test subject",
        caption="Subjects are sorted by their baseline score, so a gain at the left end is a gain for those whom "
        "the baseline serves worst. Click a name to show or hide it.",
        data=[_dots(row, order) | hidden for row in behind] + [_path(row, order) for row in front],
        layout=plot.scores_over(plot.names_axis(order, SORTED), summary.metric, values, summary.chance),
        columns=("test_subject", "row", "test_score"),
        rows=[[s, row.label, row.scores[s]] for s in order for row in rows if s in row.scores],
    )


def _dots(row: Contender, order: list[str]) -> Json:
    points = [(i, s, row.scores[s]) for i, s in enumerate(order) if s in row.scores]
    label = plot_text(row.label, 40)
    texts = [f"subject {plot_text(s)}<br>{label}: {score(v)}" for _, s, v in points]
    dots = [i for i, *_ in points], [v for *_, v in points], label
    fill, symbol = plot.colour_and_mark(row.key)
    return plot.points(*dots, fill=fill, symbol=symbol, text=texts, marker={"size": 7, "opacity": 0.8})


def _path(row: Contender, order: list[str]) -> Json:
    """Dots joined by a line, for those that the page compares."""
    dots = _dots(row, order)
    dots["marker"] |= {"size": 9, "opacity": 1}
    return {**dots, "mode": "lines+markers", "line": {"color": plot.colour_and_mark(row.key)[0], "width": 2.2}}


def differences(summary: Summary) -> Figure | None:
    """The delivered model minus the best simple model, by subject, with the interval of the mean."""
    rows = contenders(summary)
    other, best = rival(rows), strictest_estimate(rows)
    order = subject_order(rows)
    known = {s: other.scores[s] for s in order if s in other.scores} if other else {}
    pair = paired(best.scores, known) if best else None
    if pair is None or best is None or other is None or pair.ties == pair.n:
        return None
    names, values = list(pair.differences), list(pair.differences.values())
    up = plot.difference_axis("difference", [*values, *(pair.interval or ())], least=0.05)
    title = f"mean {signed(pair.mean)}" + (f", interval {interval(pair)}" if pair.interval else "")
    layout = plot.merge_layouts(
        plot.axes(plot.names_axis(names, SORTED), up),
        _mean_band(pair.mean, pair.interval),
        {"annotations": [plot.panel_title(title, 0, fill=ACCENT)], "margin": {"l": 62, "t": 28}},
    )
    return Figure(
        key="differences",
        title="Gain or loss of every subject",
        caption=f"{best.label} minus {other.label}, in the order of the figure above. The line is the mean over "
        "subjects, the band its 95 % interval; where the band reaches zero, the gain may be chance.",
        data=_lollipops(names, values),
        layout=layout,
        columns=("test_subject", "difference"),
        rows=[[n, v] for n, v in pair.differences.items()],
        height=280,
        legend=False,
    )


def _lollipops(names: list[str], values: list[float]) -> list[Json]:
    fills = list(map(plot.gain_colour, values))
    texts = [f"subject {plot_text(n)}: {signed(v)}" for n, v in zip(names, values, strict=True)]
    stems = [plot.line([i, i], [0, v], "", stroke=fills[i], width=3) for i, v in enumerate(values)]
    heads = plot.points(list(range(len(names))), values, "difference", fill=fills, text=texts, marker={"size": 10})
    return [*stems, heads]


def _mean_band(mean: float, limits: tuple[float, float] | None) -> Json:
    across = {"xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "layer": "below"}
    shapes = [{**across, "type": "line", "y0": mean, "y1": mean, "line": {"color": ACCENT, "width": 2}}]
    if limits is not None:
        band = {"y0": limits[0], "y1": limits[1], "fillcolor": SOFT, "line": {"width": 0}}
        shapes.insert(0, {**across, "type": "rect", **band})
    return {"shapes": shapes}


def stages(summary: Summary) -> Figure | None:
    """The score on people not seen when each stage had ended, against the time since the run began."""
    known = [] if summary.choice is None else summary.choice.stages
    ended = [stage for stage in known if math.isfinite(stage.score) and math.isfinite(stage.seconds)]
    if not ended:
        return None
    unit, size = ("minutes", 60.0) if ended[-1].seconds >= 120 else ("seconds", 1.0)
    x, y = [stage.seconds / size for stage in ended], [stage.score for stage in ended]
    ends = [(stage.interval[0], stage.interval[1]) if len(stage.interval) == 2 else None for stage in ended]
    bars = [(at, value) for at, end in zip(x, ends, strict=True) if end for value in (*end, None)]
    named = [f"{number} {stage.name} ({duration(stage.seconds)})" for number, stage in enumerate(ended, 1)]
    texts = [
        f"{plot_text(name)}<br>mean {score(stage.score)}"
        + (f", 95 % {score(end[0])} to {score(end[1])}" if end else "")
        for name, stage, end in zip(named, ended, ends, strict=True)
    ]
    across = plot.plain_axis(f"{unit} since the run began", range=[0, 1.06 * max(x) or 1.0])
    numbers = {"mode": "markers+text", "textposition": "top right", "texttemplate": "%{customdata}"}
    return Figure(
        key="stages",
        title="What every stage was worth",
        caption=f"The mean score {on_unseen_people(summary)} when a stage had ended, with everything trained up to "
        "then; bars are 95 % intervals over people. Each person's score was decided without them. Stages: "
        + "; ".join(named) + ".",
        data=[
            plot.line([at for at, _ in bars], [value for _, value in bars], "95 % interval", stroke=MUTED, width=1.5),
            plot.line(x, y, "mean", stroke=SOFT, line={"shape": "hv"}),
            plot.points(x, y, "stage", fill=ACCENT, text=texts, customdata=list(range(1, len(ended) + 1)), **numbers),
        ],
        layout=plot.scores_over(across, "mean score", [*y, *(value for _, value in bars)], summary.chance),
        columns=("stage", "seconds", "score", "low", "high"),
        rows=[
            [stage.name, stage.seconds, stage.score, *(end or (None, None))]
            for stage, end in zip(ended, ends, strict=True)
        ],
        height=300,
        legend=False,
    )  # fmt: skip
