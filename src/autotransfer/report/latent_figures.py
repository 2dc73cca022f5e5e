"""What the representation still tells about people: leakage, and a picture of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from .escaping import plain, plot_text
from .plot import (
    ACCENT,
    GREY,
    MUTED,
    Figure,
    Json,
    axis_name,
    bare_axis,
    level_line,
    name_axis,
    nth,
    on_panel,
    panel_title,
    points,
    score_axis,
    stacked,
)
from .summary import Summary
from .wording import score

MOST_POINTS = 1200  # per picture: more hide each other, and each costs the reader's browser
MOST_NAMES = 14  # in a legend
SIDES = (("baseline", "Baseline", GREY), ("chosen", "Chosen", ACCENT))


def leakage(summary: Summary) -> Figure | None:
    """How well a fresh probe reads the subject from z, before and after, per fold."""
    found = {side: _finite(summary.leakage.get(side)) for side, *_ in SIDES}
    folds = sorted(set(found["baseline"]) | set(found["chosen"]))
    if not folds:
        return None
    tests = {int(split.get("fold", i)): split.get("test_subject") for i, split in enumerate(summary.splits)}
    names = [plain(tests[fold]) if fold in tests else f"fold {fold}" for fold in folds]
    data: list[Json] = []
    both = [i for i, fold in enumerate(folds) if fold in found["baseline"] and fold in found["chosen"]]
    ends = [
        v for i in both for v in (found["baseline"][folds[i]]["accuracy"], found["chosen"][folds[i]]["accuracy"], None)
    ]
    data.append({"type": "scatter", "mode": "lines", "x": [v for i in both for v in (i, i, None)], "y": ends,
                 "line": {"color": MUTED, "width": 1.5}, "hoverinfo": "skip", "showlegend": False})  # fmt: skip
    for side, label, fill in SIDES:
        here = [(i, found[side][fold]) for i, fold in enumerate(folds) if fold in found[side]]
        texts = [f"test subject {plot_text(names[i])}<br>{label}: {score(r['accuracy'])}{_bits(r)}" for i, r in here]
        if here:
            data.append(points([i for i, _ in here], [r["accuracy"] for _, r in here], label, fill=fill, text=texts,
                               marker={"size": 10}))  # fmt: skip
    chances = [r["chance"] for side in found.values() for r in side.values() if "chance" in r]
    layout = stacked(
        level_line(float(np.mean(chances)) if chances else None, "chance", horizontal=True),
        {"xaxis": name_axis(names, "fold, by its test subject")},
        {"yaxis": score_axis("accuracy of reading the subject")},
    )
    return Figure(
        key="leakage",
        title="Can the subject be read from the representation?",
        caption="A fresh classifier tries to tell from the network's latent code which training subject a trial belongs to; "
        "at the dashed line it can only guess, so censoring should move the dots down.",
        data=data,
        layout=layout,
        columns=("fold", "test_subject", "model", "accuracy", "chance", "bits"),
        rows=[[fold, name, side, r["accuracy"], r.get("chance"), r.get("bits")]
              for fold, name in zip(folds, names, strict=True) for side, *_ in SIDES if (r := found[side].get(fold))],
        height=300,
    )  # fmt: skip


def _finite(rows: list[dict[str, float]] | None) -> dict[int, dict[str, float]]:
    """Fold -> what was measured there."""
    kept: dict[int, dict[str, float]] = {}
    for position, row in enumerate(rows or []):
        known = {k: float(v) for k, v in row.items() if v is not None and math.isfinite(float(v))}
        if "accuracy" in known:
            kept[int(known.get("fold", position))] = known
    return kept


def _bits(row: dict[str, float]) -> str:
    return f"<br>at least {row['bits']:.2f} bits" if "bits" in row else ""


def latent_by_subject(summary: Summary) -> Figure | None:
    return _picture(summary, "subject", "class")


def latent_by_class(summary: Summary) -> Figure | None:
    return _picture(summary, "class", "subject")


def _picture(summary: Summary, by: str, other: str) -> Figure | None:
    """Codes of one fold's training trials in two dimensions, a panel for each model, coloured by `by`."""
    frames = {side: thinned(summary.latent[side]) for side, *_ in SIDES if side in summary.latent}
    frames = {side: frame for side, frame in frames.items() if len(frame)}
    if not frames:
        return None
    names = list(dict.fromkeys(name for frame in frames.values() for name in frame[by]))
    names.sort(key=_natural)
    labels = {side: label for side, label, _ in SIDES}
    data: list[Json] = []
    parts: list[Json] = []
    for panel, (side, frame) in enumerate(frames.items()):
        for position, name in enumerate(names):
            rows = frame[frame[by] == name]
            fill, symbol = nth(position)
            data.append(
                points(rows["x"].tolist(), rows["y"].tolist(), plot_text(name), fill=fill, symbol=symbol,
                       text=[plot_text(value) for value in rows[other]], legendgroup=str(position),
                       hovertemplate=f"{by} %{{fullData.name}}<br>{other} %{{text}}<extra></extra>",
                       marker={"size": 5, "opacity": 0.75}, showlegend=panel == 0, **on_panel(panel))
            )  # fmt: skip
        parts.append({axis_name("x", panel): bare_axis(), axis_name("y", panel): bare_axis()})
        parts.append({"annotations": [panel_title(labels[side], panel)]})
    wish = "the less the colours form islands, the less the representation tells who it was"
    if by == "class":
        wish = "islands of one colour are what the classifier needs, and censoring should leave them in place"
    return Figure(
        key=f"latent-{by}",
        title=f"The representation of every trial, coloured by {by}",
        caption=f"Each dot is a training trial of one fold, flattened to two dimensions: {wish}.",
        data=[trace for trace in data if trace["x"]],
        layout=stacked(*parts),
        columns=("model", "x", "y", "subject", "class"),
        rows=[[side, *row] for side, frame in frames.items() for row in frame[["x", "y", "subject", "class"]].values.tolist()],
        panels=len(frames),
        square=True,
        height=380,
        legend=len(names) <= MOST_NAMES,
        axes=False,
    )  # fmt: skip


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Finite points, names as text, evenly thinned to what a page can carry."""
    table = frame.reindex(columns=["x", "y", "subject", "class"])
    for column in ("x", "y"):
        table[column] = pd.to_numeric(table[column], errors="coerce")
    table = table[np.isfinite(table["x"]) & np.isfinite(table["y"])]
    if len(table) > MOST_POINTS:
        table = table.iloc[np.linspace(0, len(table) - 1, MOST_POINTS).round().astype(int)]
    for column in ("subject", "class"):
        table[column] = pd.Series([plain(value) for value in table[column]], index=table.index, dtype=object)
    return table


def _natural(name: str) -> tuple[Any, ...]:
    """2 before 10, numbers before words."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)
