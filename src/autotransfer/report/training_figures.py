"""How training went, and which classes are taken for which."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .comparison import chance, succeeded
from .escaping import plain, plot_text
from .plot import (
    ACCENT,
    BACKGROUND,
    GREY,
    GREY_SOFT,
    SOFT,
    Figure,
    Json,
    axis_name,
    level_line,
    on_panel,
    panel_title,
    plain_axis,
    points,
    score_axis,
    stacked,
)
from .summary import Summary

MOST_EPOCHS = 150  # drawn; more cannot be told apart on a screen
MOST_CELLS = 12  # classes up to which counts are written into the cells
Curve = tuple[list[int], NDArray[np.float64]]  # epochs, (3, epochs): lower quartile, median, upper quartile


def quartiles(histories: list[dict[str, Any]], key: str) -> Curve | None:
    """Over folds, epoch by epoch, as far as half of the folds got."""
    curves = [np.array([math.nan if v is None else v for v in h.get(key) or []], dtype=float) for h in histories]
    curves = [curve for curve in curves if np.isfinite(curve).any()]
    if not curves:
        return None
    longest = max(len(curve) for curve in curves)
    table = np.full((len(curves), longest), math.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    table[~np.isfinite(table)] = math.nan
    enough = np.isfinite(table).sum(0) * 2 >= len(curves)
    epochs = np.flatnonzero(enough)
    if not len(epochs):
        return None
    if len(epochs) > MOST_EPOCHS:
        epochs = epochs[np.linspace(0, len(epochs) - 1, MOST_EPOCHS).round().astype(int)]
    return [int(e) + 1 for e in epochs], np.nanquantile(table[:, epochs], (0.25, 0.5, 0.75), axis=0)


def curves(summary: Summary) -> Figure | None:
    """Losses, validation score and penalty by epoch: medians over folds with quartile bands."""
    panels = [
        ("Loss", (("train_loss", "training", "dot", False), ("validation_loss", "validation", "solid", True))),
        ("Validation score", (("validation_score", "validation", "solid", True),)),
        ("Penalty", (("penalty", "training", "dot", True),)),
    ]
    data: list[Json] = []
    parts: list[Json] = []
    rows: list[list[Any]] = []
    used = 0
    for title, lines in panels:
        drawn = []
        for name, label, fill, soft in _models(summary):
            for key, kind, dash, band in lines:
                curve = quartiles(summary.histories.get(name, []), key)
                if curve and (key != "penalty" or np.any(curve[1])):  # the baseline has none
                    drawn += _lines(curve, f"{label}, {kind}", fill, soft if band else None, dash)
                    rows += [[label, key, e, *q] for e, q in zip(curve[0], curve[1].T.tolist(), strict=True)]
        if drawn:
            shown = {trace["name"] for trace in data}
            data += [{**t, **on_panel(used), "showlegend": t["showlegend"] and t["name"] not in shown} for t in drawn]
            parts += _panel(summary, title, used)
            if title == "Validation score":
                data += [{**rug, **on_panel(used)} for rug in _snapshots(summary)]
            used += 1
    if not data:
        return None
    return Figure(
        key="curves",
        title="Learning curves",
        caption="Median over folds, with the band from the lower to the upper quartile; ticks at the bottom of the "
        "score mark the epoch whose snapshot each fold kept, the one of lowest validation loss.",
        data=data,
        layout=stacked(*parts),
        columns=("model", "quantity", "epoch", "lower_quartile", "median", "upper_quartile"),
        rows=rows,
        panels=used,
        height=280,
    )


def _models(summary: Summary) -> list[tuple[str, str, str, str]]:
    choice = summary.choice or {}
    baseline = str((choice.get("baseline") or {}).get("name", "baseline"))
    models = [(baseline, "Baseline", GREY, GREY_SOFT)]
    chosen = (choice.get("chosen") or {}).get("name")
    if chosen is not None and chosen != baseline:
        models.append((str(chosen), "Chosen", ACCENT, SOFT))
    return models


def _lines(curve: Curve, name: str, fill: str, soft: str | None, dash: str) -> list[Json]:
    epochs, (low, middle, high) = curve
    line = {"type": "scatter", "mode": "lines", "x": epochs, "y": middle.tolist(), "name": name, "legendgroup": name,
            "line": {"color": fill, "width": 2, "dash": dash}, "showlegend": True,
            "hovertemplate": f"{name}<br>epoch %{{x}}: %{{y:.3f}}<extra></extra>"}  # fmt: skip
    if soft is None:
        return [line]
    band = {"type": "scatter", "mode": "lines", "x": epochs + epochs[::-1], "y": [*high.tolist(), *low.tolist()[::-1]],
            "fill": "toself", "fillcolor": soft, "line": {"width": 0, "color": fill}, "hoverinfo": "skip",
            "showlegend": False, "name": name, "legendgroup": name}  # fmt: skip
    return [band, line]


def _panel(summary: Summary, title: str, panel: int) -> list[Json]:
    across = plain_axis("epoch", rangemode="tozero")
    parts: list[Json] = [{"annotations": [panel_title(title, panel)], axis_name("x", panel): across}]
    if title == "Validation score":
        parts += [
            {axis_name("y", panel): score_axis("")},
            level_line(chance(summary), "chance", horizontal=True, panel=panel),
        ]
    else:
        parts += [{axis_name("y", panel): plain_axis(rangemode="tozero" if title == "Loss" else "normal")}]
    return parts


def _snapshots(summary: Summary) -> list[Json]:
    folds = succeeded(summary.results, "folds")
    rugs = []
    for (name, label, fill, _), height in zip(_models(summary), (0.02, 0.06), strict=False):
        rows = folds[(folds["setting"] == plain(name)) & (folds["best_epoch"] > 0)]
        texts = [f"{label}, test subject {plot_text(s)}<br>snapshot of epoch {e:.0f}"
                 for s, e in zip(rows["test_subject"], rows["best_epoch"], strict=True)]  # fmt: skip
        if len(rows):
            rugs.append(points([float(e) for e in rows["best_epoch"]], [height] * len(rows), label, fill=fill, text=texts,
                               symbol="line-ns", showlegend=False, marker={"size": 9, "line": {"color": fill, "width": 1.5}}))  # fmt: skip
    return rugs


def confusion(summary: Summary) -> Figure | None:
    """Which class is taken for which, over all test subjects; rows sum to one."""
    sides = [(side, label, summary.confusion[side]) for side, label in (("baseline", "Baseline"), ("chosen", "Chosen"))
             if summary.confusion.get(side)]  # fmt: skip
    if not sides:
        return None
    size = len(sides[0][2])
    given = list(summary.data.get("classes") or [])
    names = [plain(given[i]) if i < len(given) else f"class {i}" for i in range(size)]
    data: list[Json] = []
    parts: list[Json] = []
    rows: list[list[Any]] = []
    for panel, (side, label, counts) in enumerate(sides):
        data.append({**_heatmap(np.asarray(counts, dtype=float), names), **on_panel(panel)})
        ticks = {"tickmode": "array", "tickvals": list(range(size)), "ticktext": [plot_text(n, 12) for n in names],
                 "showgrid": False, "zeroline": False, "constrain": "domain"}  # fmt: skip
        anchor = "x" if panel == 0 else f"x{panel + 1}"
        parts += [
            {axis_name("x", panel): {**ticks, "title": {"text": "predicted"}}},
            {
                axis_name("y", panel): {
                    **ticks,
                    "title": {"text": "true"},
                    "autorange": "reversed",
                    "scaleanchor": anchor,
                }
            },
            {"annotations": [panel_title(label, panel)]},
        ]
        rows += [[side, names[i], names[j], int(counts[i][j])] for i in range(size) for j in range(size)]
    return Figure(
        key="confusion",
        title="Which class is taken for which",
        caption="Rows are the true classes and sum to one over all test subjects; the diagonal is what is recognised. "
        "Counts appear when you point at a cell.",
        data=data,
        layout=stacked(*parts),
        columns=("model", "true", "predicted", "count"),
        rows=rows,
        panels=len(sides),
        square=True,
        height=400,
        legend=False,
    )


def _heatmap(counts: NDArray[np.float64], names: list[str]) -> Json:
    """counts: (C, C). A class without trials has no share, and its row stays empty."""
    totals = counts.sum(1, keepdims=True)
    share = np.divide(counts, totals, out=np.full_like(counts, math.nan), where=totals > 0)
    texts = [[f"true {plot_text(t)}<br>predicted {plot_text(p)}<br>{int(counts[i, j])} of {int(totals[i, 0])} trials"
              for j, p in enumerate(names)] for i, t in enumerate(names)]  # fmt: skip
    trace: Json = {"type": "heatmap", "z": share.tolist(), "zmin": 0, "zmax": 1, "hovertext": texts, "showscale": False,
                   "hovertemplate": "%{hovertext}<extra></extra>", "xgap": 2, "ygap": 2,
                   "colorscale": [[0, BACKGROUND], [1, ACCENT]]}  # fmt: skip
    if len(names) <= MOST_CELLS:
        trace |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 12}}
    return trace
