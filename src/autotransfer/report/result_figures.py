"""The paper's results figure, and the paired differences behind the headline."""

from __future__ import annotations

from . import plot
from .comparison import Contender, contenders, find, honest, subject_order
from .escaping import plot_text
from .plot import ACCENT, INK, MUTED, Figure, Json
from .statistics import paired, spread
from .summary import Summary
from .wording import interval, score, signed

SORTED = "test subject, worst to best under the baseline"


def results(summary: Summary) -> Figure | None:
    """Every fold's test score, one row per method, with the mean as a cross."""
    rows = contenders(summary)
    if not rows:
        return None
    means = [spread(list(row.scores.values())).mean for row in rows]
    numbers = [_beside(score(mean), i, strong=rows[i].is_autotransfer) for i, mean in enumerate(means)]
    labels = [
        f"<b>{row.label.replace(', ', '<br>')}</b>" if row.is_autotransfer else plot_text(row.label) for row in rows
    ]
    down = plot.plain_axis(automargin=True, range=[len(rows) - 0.4, -0.8], tickmode="array")
    down |= {"tickvals": list(range(len(rows))), "ticktext": labels}
    layout = plot.stacked(
        plot.axes(plot.score_axis("balanced accuracy on the test subject"), down),
        plot.upright(summary.data.chance, "chance"),
        {"annotations": [*numbers, _beside("mean", -0.62, fill=MUTED)], "margin": {"r": 58}},
    )
    return Figure(
        key="results",
        title="Test score of every fold",
        caption="Each dot is one subject that neither trained nor validated the model it is tested on; the cross is "
        "the mean. Each method is shown with the setting that validation ranks first."
        + ("" if summary.complete else " Until all folds have ended, rows may rest on different subjects."),
        data=[_strip(row, i) for i, row in enumerate(rows)] + [_cross(row, i) for i, row in enumerate(rows)],
        layout=layout,
        columns=("row", "setting", "test_subject", "test_score"),
        rows=[[r.label, r.setting or "by subject", s, v] for r in rows for s, v in r.scores.items()],
        height=46 * len(rows) + 30,
        legend=False,
    )


def _strip(row: Contender, position: int) -> Json:
    """One dot per subject; heights are spread so that equal scores do not hide each other, and mean nothing."""
    heights = [position + 0.5 * ((0.618 * i) % 1 - 0.5) for i in range(len(row.scores))]
    texts = [f"{plot_text(row.label, 40)}<br>subject {plot_text(s)}: {score(v)}" for s, v in row.scores.items()]
    dots = list(row.scores.values()), heights, plot_text(row.label, 40)
    look = {"opacity": 0.85}
    return plot.points(*dots, fill=plot.colour(row.key), symbol=plot.mark(row.key), text=texts, marker=look)


def _cross(row: Contender, position: int) -> Json:
    found = spread(list(row.scores.values()))
    text = f"{plot_text(row.label, 40)}<br>mean {score(found.mean)}<br>lower quartile {score(found.lower_quartile)}"
    look = {"size": 14, "line": {"color": INK, "width": 2.5}}
    return plot.points([found.mean], [position], "mean", fill=INK, symbol="x-thin", text=[text], marker=look)


def _beside(text: str, position: float, *, strong: bool = False, fill: str = INK) -> Json:
    """A number to the right of its row."""
    return plot.note(f"<b>{text}</b>" if strong else text, x=1, y=position, fill=fill, xshift=12)


def by_subject(summary: Summary) -> Figure | None:
    """Accuracy by test subject, sorted by the baseline."""
    rows = contenders(summary)
    order = subject_order(rows)
    if not order:
        return None
    front = [row for row in (find(rows, "none"), honest(rows)) if row is not None]
    behind = [row for row in rows if row not in front and not row.is_autotransfer]
    layout = plot.stacked(
        plot.axes(plot.names_axis(order, SORTED), plot.score_axis("balanced accuracy")),
        plot.level(summary.data.chance, "chance"),
    )
    return Figure(
        key="by-subject",
        title="Accuracy by test subject",
        caption="Subjects are sorted by their baseline score, so a gain at the left end is a gain for those whom "
        "the baseline serves worst. Click a name to hide or show it.",
        data=[_dots(row, order) for row in behind] + [_path(row, order) for row in front],
        layout=layout,
        columns=("test_subject", "row", "test_score"),
        rows=[[s, row.label, row.scores[s]] for s in order for row in rows if s in row.scores],
    )


def _dots(row: Contender, order: list[str]) -> Json:
    there = [(i, s, row.scores[s]) for i, s in enumerate(order) if s in row.scores]
    label = plot_text(row.label, 40)
    texts = [f"subject {plot_text(s)}<br>{label}: {score(v)}" for _, s, v in there]
    dots = [i for i, *_ in there], [v for *_, v in there], label
    look = {"size": 7, "opacity": 0.8}
    return plot.points(*dots, fill=plot.colour(row.key), symbol=plot.mark(row.key), text=texts, marker=look)


def _path(row: Contender, order: list[str]) -> Json:
    """Dots joined by a line, for the two that the page compares."""
    dots = _dots(row, order)
    dots["marker"] |= {"size": 9, "opacity": 1}
    return {**dots, "mode": "lines+markers", "line": {"color": plot.colour(row.key), "width": 2.2}}


def differences(summary: Summary) -> Figure | None:
    """Chosen minus baseline, subject by subject, with the interval of the mean."""
    rows = contenders(summary)
    base, best = find(rows, "none"), honest(rows)
    pair = paired(best.scores, {s: base.scores[s] for s in subject_order([base])}) if base and best else None
    if pair is None or best is None or pair.ties == pair.n:
        return None
    names, values = list(pair.differences), list(pair.differences.values())
    reach = 1.2 * max(0.05, *(abs(v) for v in values), *(abs(v) for v in pair.interval or ()))
    up = plot.plain_axis("difference", range=[-reach, reach], zeroline=True, zerolinecolor=MUTED, tickformat="+.2f")
    said = f"mean {signed(pair.mean)}" + (f", interval {interval(pair)}" if pair.interval else "")
    layout = plot.stacked(
        plot.axes(plot.names_axis(names, SORTED), up),
        _mean_band(pair.mean, pair.interval),
        {"annotations": [plot.panel_title(said, 0, fill=ACCENT)], "margin": {"l": 62, "t": 28}},
    )
    return Figure(
        key="differences",
        title="Gain or loss of every subject",
        caption=f"{best.label} minus baseline, in the order of the figure above. The line is the mean over subjects, "
        "the band its 95 % interval; where the band reaches zero, the gain may be chance.",
        data=_lollipops(names, values),
        layout=layout,
        columns=("test_subject", "difference"),
        rows=[[n, v] for n, v in pair.differences.items()],
        height=280,
        legend=False,
    )


def _lollipops(names: list[str], values: list[float]) -> list[Json]:
    fills = [ACCENT if v > 0 else plot.LOSS if v < 0 else plot.GREY for v in values]
    texts = [f"subject {plot_text(n)}: {signed(v)}" for n, v in zip(names, values, strict=True)]
    stems = [plot.line([i, i], [0, v], "", stroke=fills[i], width=3) for i, v in enumerate(values)]
    heads = plot.points(list(range(len(names))), values, "difference", fill=fills, text=texts, marker={"size": 10})
    return [*stems, heads]


def _mean_band(mean: float, limits: tuple[float, float] | None) -> Json:
    across = {"xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "layer": "below"}
    shapes = [{**across, "type": "line", "y0": mean, "y1": mean, "line": {"color": ACCENT, "width": 2}}]
    if limits is not None:
        band = {"y0": limits[0], "y1": limits[1], "fillcolor": plot.SOFT, "line": {"width": 0}}
        shapes.insert(0, {**across, "type": "rect", **band})
    return {"shapes": shapes}
