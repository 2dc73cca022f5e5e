"""How training went: learning curves."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..folds import name_of
from ..runs.results import Trained
from . import plot
from .escaping import plot_text
from .outcomes import stage_two_trainings
from .plot import ACCENT, GREY, Figure, Json
from .summary import Summary

MOST_EPOCHS = 150  # drawn; more cannot be told apart on a screen
NEGATIVE = (
    "A penalty below zero is no fault: an adversary's is minus the loss of its critic, the complementary mode "
    "subtracts what the other half is to tell, and an unbiased estimate of little dependence scatters around zero."
)
PANELS = {
    "Loss": (("train_loss", "training"), ("validation_loss", "validation")),
    "Validation score": (("validation_score", "validation"),),
    "Penalty": (("penalty", "training"),),
}
LOOKS = {"baseline": (GREY, plot.GREY_SOFT), "chosen": (ACCENT, plot.SOFT)}


class RoleCurves(NamedTuple):
    """A role whose curves are drawn."""

    label: str
    fill: str
    soft: str
    trainings: list[Trained]


class QuartileCurve(NamedTuple):
    """Quartiles over folds, epoch by epoch."""

    epochs: list[int]
    quartiles: NDArray[np.float64]  # (3, epochs): lower quartile, median, upper quartile


def one_table(histories: list[list[float]]) -> NDArray[np.float64]:
    """Curves of several lengths as one array (curves, epochs), NaN where there is no finite value."""
    table = np.full((len(histories), max(map(len, histories), default=0)), math.nan)
    for row, history in zip(table, histories, strict=True):
        row[: len(history)] = history
    table[~np.isfinite(table)] = math.nan
    return table


def over_folds(histories: list[list[float]]) -> QuartileCurve | None:
    """Quartiles up to the epoch that half of the folds reached; None if nothing finite was recorded."""
    table = one_table(histories)
    table = table[np.isfinite(table).any(1)]
    epochs = np.flatnonzero(np.isfinite(table).sum(0) * 2 >= len(table))
    if not table.size or not len(epochs):
        return None
    if len(epochs) > MOST_EPOCHS:
        epochs = epochs[np.linspace(0, len(epochs) - 1, MOST_EPOCHS).round().astype(int)]
    return QuartileCurve([int(e) + 1 for e in epochs], np.nanquantile(table[:, epochs], (0.25, 0.5, 0.75), axis=0))


def curves(summary: Summary) -> Figure | None:
    """Losses, validation score and penalty by epoch: medians over folds with quartile bands."""
    models = _models(summary)
    data: list[Json] = []
    parts: list[Json] = []
    rows: list[list[Any]] = []
    panel = 0
    for title, quantities in PANELS.items():
        drawn: list[Json] = []
        for model, (key, kind) in ((m, q) for m in models for q in quantities):
            curve = over_folds([training.record.history[key] for training in model.trainings])
            if curve and (key != "penalty" or curve.quartiles.any()):  # the baseline has none
                drawn += _lines(curve, model, kind)
                rows += [
                    [model.label, key, e, *q] for e, q in zip(curve.epochs, curve.quartiles.T.tolist(), strict=True)
                ]
        if drawn:
            up = plot.plain_axis(zeroline=title == "Penalty", zerolinecolor=plot.MUTED)
            if title == "Validation score":
                up = plot.score_axis("", (v for trace in drawn for v in trace["y"]), summary.data.chance)
                low, high = up["range"]
                counted = {training.key for training in stage_two_trainings(summary)}
                rugs = [_snapshots(m, counted, low + (0.02 + 0.04 * i) * (high - low)) for i, m in enumerate(models)]
                drawn += [rug for rug in rugs if rug is not None]
                parts.append(plot.horizontal_line(summary.data.chance, "chance", panel=panel))
            data += [trace | plot.on_panel(panel) for trace in drawn]
            parts.append({"annotations": [plot.panel_title(f"<b>{title}</b>", panel)]})
            parts.append(plot.axes(plot.plain_axis("epoch", rangemode="tozero"), up, panel))
            panel += 1
    if not data:
        return None
    negative = any(key == "penalty" and low < 0 for _, key, _, low, *_ in rows)
    return Figure(
        key="curves",
        title="Learning curves",
        caption="Median over folds, with a band from the lower to the upper quartile. Ticks under the score mark the "
        "epoch that each fold kept: the one of lowest validation loss, or the last where a setting keeps that."
        + (f" {NEGATIVE}" if negative else ""),
        data=_named_once(data),
        layout=plot.merge_layouts(*parts),
        columns=("model", "quantity", "epoch", "lower_quartile", "median", "upper_quartile"),
        rows=rows,
        panels=panel,
        height=280,
    )


def _models(summary: Summary) -> list[RoleCurves]:
    return [
        RoleCurves(
            summary.role_names[role],
            *LOOKS[role],
            [training for training in summary.trainings if training.setting == setting],
        )
        for role, setting in summary.roles.items()
    ]


def _lines(curve: QuartileCurve, model: RoleCurves, kind: str) -> list[Json]:
    """The median, and behind it the band between the quartiles."""
    low, middle, high = curve.quartiles.tolist()
    name = f"{model.label}, {kind}"
    hover = f"{name}<br>epoch %{{x}}: %{{y:.3f}}<extra></extra>"
    dash = {"dash": "dot" if kind == "training" else "solid"}
    median = plot.line(curve.epochs, middle, name, stroke=model.fill, line=dash, hovertemplate=hover, legendgroup=name)
    around = curve.epochs + curve.epochs[::-1]
    band = plot.line(around, high + low[::-1], name, stroke=model.fill, width=0, legendgroup=name, showlegend=False)
    return [band | {"fill": "toself", "fillcolor": model.soft}, median]


def _named_once(data: list[Json]) -> list[Json]:
    """A curve that appears in several panels has one entry in the legend, which hides it in all of them."""
    seen: set[str] = set()
    for trace in data:
        if trace.get("showlegend", True):
            trace["showlegend"] = trace["name"] not in seen
            seen.add(trace["name"])
    return data


def _snapshots(model: RoleCurves, counted: set[str], height: float) -> Json | None:
    kept = [training for training in model.trainings if training.key in counted and training.record.best_epoch > 0]
    if not kept:
        return None
    epochs = [training.record.best_epoch for training in kept]
    texts = [
        f"{model.label}, test subject {plot_text(name_of(training.test_subject))}<br>"
        f"snapshot of epoch {training.record.best_epoch}"
        for training in kept
    ]
    look = {"line": {"color": model.fill, "width": 1.5}}
    where = epochs, [height] * len(kept)
    rug = plot.points(*where, model.label, fill=model.fill, symbol="line-ns", text=texts, marker=look)
    return rug | {"showlegend": False}
