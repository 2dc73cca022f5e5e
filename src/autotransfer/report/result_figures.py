"""The paper's results figure, and the paired differences behind the headline."""

from __future__ import annotations

from .comparison import Contender, chance, contenders, find, honest, subject_order
from .escaping import plot_text
from .plot import (
    ACCENT,
    GREY,
    GRID,
    INK,
    LOSS,
    MUTED,
    SOFT,
    Figure,
    Json,
    colour,
    level_line,
    mark,
    name_axis,
    plain_axis,
    points,
    score_axis,
    stacked,
)
from .statistics import paired, spread
from .summary import Summary
from .wording import interval, score, signed


def results(summary: Summary) -> Figure | None:
    """Every fold's test score, one row per method, with the mean as a cross."""
    rows = contenders(summary)
    if not rows:
        return None
    data: list[Json] = []
    notes: list[Json] = []
    for position, row in enumerate(rows):
        texts = [f"{row.label}<br>subject {plot_text(s)}: {score(v)}" for s, v in row.scores.items()]
        spread_out = [position + 0.5 * ((0.618 * i) % 1 - 0.5) for i in range(len(row.scores))]
        look = {"opacity": 0.8, "size": 9}
        data.append(
            points(list(row.scores.values()), spread_out, row.label, fill=colour(row.key), symbol=mark(row.key),
                   text=texts, marker=look, showlegend=False)
        )  # fmt: skip
    for position, row in enumerate(rows):
        described = spread(list(row.scores.values()))
        text = f"{row.label}<br>mean {score(described.mean)}, lower quartile {score(described.lower_quartile)}"
        data.append(
            points([described.mean], [position], "mean", fill=INK, symbol="x-thin", text=[text], showlegend=False,
                   marker={"size": 14, "line": {"color": INK, "width": 2.5}})
        )  # fmt: skip
        notes.append(_beside(score(described.mean), position, bold=row.is_autotransfer))
    labels = [f"<b>{row.label}</b>" if row.is_autotransfer else plot_text(row.label) for row in rows]
    layout = stacked(
        level_line(chance(summary), "chance", horizontal=False),
        {"annotations": [*notes, {**_beside("mean", -0.62), "font": {"color": MUTED, "size": 11}}]},
        {"xaxis": score_axis("balanced accuracy on the test subject"), "margin": {"r": 58}},
        {"yaxis": {"range": [len(rows) - 0.4, -0.8], "tickmode": "array", "tickvals": list(range(len(rows))),
                   "ticktext": [label.replace(", ", "<br>") for label in labels], "zeroline": False,
                   "gridcolor": GRID, "automargin": True}},
    )  # fmt: skip
    return Figure(
        key="results",
        title="Test score of every fold",
        caption="Each dot is one subject that neither trained nor validated the model it is tested on; the cross is "
        "the mean. Each method is shown with the setting that validation ranks first.",
        data=data,
        layout=layout,
        columns=("row", "setting", "test_subject", "test_score"),
        rows=[[r.label, r.setting or "by subject", s, v] for r in rows for s, v in r.scores.items()],
        height=46 * len(rows) + 30,
        legend=False,
    )


def _beside(text: str, position: float, *, bold: bool = False) -> Json:
    """A number to the right of its row."""
    return {"text": f"<b>{text}</b>" if bold else text, "showarrow": False, "xref": "x domain", "x": 1, "yref": "y",
            "y": position, "xanchor": "left", "xshift": 12, "font": {"color": INK, "size": 13}}  # fmt: skip


def by_subject(summary: Summary) -> Figure | None:
    """Accuracy by test subject, sorted by the baseline."""
    rows = contenders(summary)
    order = subject_order(rows)
    if not order:
        return None
    front = [row for row in (find(rows, "none"), honest(rows)) if row is not None]
    others = [row for row in rows if row not in front and row.key != "published"]
    data = [_dots(row, order) for row in others]
    for row in front:
        line = _dots(row, order)
        width = 2.5 if row.is_autotransfer else 2
        data.append({**line, "mode": "lines+markers", "line": {"color": colour(row.key), "width": width},
                     "marker": {**line["marker"], "size": 9, "opacity": 1}})  # fmt: skip
    layout = stacked(
        level_line(chance(summary), "chance", horizontal=True),
        {"xaxis": name_axis([str(s) for s in order], "test subject, worst to best under the baseline")},
        {"yaxis": score_axis("balanced accuracy")},
    )
    return Figure(
        key="by-subject",
        title="Accuracy by test subject",
        caption="Subjects are sorted by their baseline score, so a gain at the left end is a gain for those whom "
        "the baseline serves worst. Click a name to hide or show it.",
        data=data,
        layout=layout,
        columns=("test_subject", "row", "test_score"),
        rows=[[s, row.label, row.scores[s]] for s in order for row in rows if s in row.scores],
    )


def _dots(row: Contender, order: list[str]) -> Json:
    there = [(i, s) for i, s in enumerate(order) if s in row.scores]
    texts = [f"subject {plot_text(s)}<br>{plot_text(row.label, 40)}: {score(row.scores[s])}" for _, s in there]
    return points(
        [i for i, _ in there],
        [row.scores[s] for _, s in there],
        plot_text(row.label, 40),
        fill=colour(row.key),
        symbol=mark(row.key),
        text=texts,
        marker={"size": 7, "opacity": 0.7},
    )


def differences(summary: Summary) -> Figure | None:
    """Chosen minus baseline, subject by subject, with the interval of the mean."""
    rows = contenders(summary)
    base, best = find(rows, "none"), honest(rows)
    if base is None or best is None:
        return None
    order = subject_order([base])
    pair = paired(best.scores, {s: base.scores[s] for s in order})
    if pair is None:
        return None
    names, values = list(pair.differences), list(pair.differences.values())
    fills = [ACCENT if v > 0 else LOSS if v < 0 else GREY for v in values]
    texts = [f"subject {plot_text(n)}: {signed(v)}" for n, v in pair.differences.items()]
    stems = [{"type": "scatter", "mode": "lines", "x": [i, i], "y": [0, v], "line": {"color": fill, "width": 3},
              "hoverinfo": "skip", "showlegend": False} for i, (v, fill) in enumerate(zip(values, fills, strict=True))]  # fmt: skip
    heads = points(list(range(len(names))), values, "difference", fill=ACCENT, text=texts, showlegend=False,
                   marker={"color": fills, "size": 10})  # fmt: skip
    reach = 1.2 * max(0.05, *(abs(v) for v in values), *(abs(v) for v in pair.interval or ()))
    layout = stacked(
        _mean_band(pair.mean, pair.interval),
        {"annotations": [{"text": f"mean {signed(pair.mean)} ({interval(pair)})", "showarrow": False, "x": 0, "y": 1,
                          "xref": "x domain", "yref": "y domain", "xanchor": "left", "yanchor": "bottom", "yshift": 4,
                          "font": {"color": ACCENT, "size": 13}}]},
        {"xaxis": name_axis(names, "test subject, worst to best under the baseline")},
        {"yaxis": plain_axis("difference", range=[-reach, reach], zeroline=True, zerolinecolor=MUTED,
                             tickformat="+.2f")},
    )  # fmt: skip
    return Figure(
        key="differences",
        title="Gain or loss of every subject",
        caption=f"{best.label} minus baseline, in the order of the figure above; the line is the mean over subjects, "
        "the band its 95 % interval, and a band that touches zero means that the gain may be chance.",
        data=[*stems, heads],
        layout=layout,
        columns=("test_subject", "difference"),
        rows=[[n, v] for n, v in pair.differences.items()],
        height=280,
        legend=False,
    )


def _mean_band(mean: float, limits: tuple[float, float] | None) -> Json:
    across = {"xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "layer": "below"}
    line = {**across, "type": "line", "y0": mean, "y1": mean, "line": {"color": ACCENT, "width": 2}}
    if limits is None:
        return {"shapes": [line]}
    band = {**across, "type": "rect", "y0": limits[0], "y1": limits[1], "fillcolor": SOFT, "line": {"width": 0}}
    return {"shapes": [band, line]}
