"""What the representation still tells about people: leakage, and a picture of it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from ..settings import PREPARED
from . import plot
from .escaping import plain, plot_text
from .plot import ACCENT, GREY, MUTED, PALETTE, Figure, Json
from .summary import Summary
from .wording import score

MOST_POINTS = 1200  # per picture: more hide each other, and each costs the reader's browser
MOST_NAMES = 14  # in a legend
SIDES = {
    "baseline": ("Baseline", GREY),
    "uncensored": ("As chosen, without the censor", PALETTE[1]),
    "chosen": ("Chosen", ACCENT),
}
Measured = dict[int, dict[str, float]]  # fold -> accuracy, chance, bits


def leakage(summary: Summary) -> Figure | None:
    """How well a fresh probe reads the subject from z, before and after, per fold."""
    found = {side: _finite(summary.leakage.get(side)) for side in SIDES}
    folds = sorted({fold for side in found.values() for fold in side})
    if not folds:
        return None
    tests = {int(split.get("fold", i)): split.get("test_subject") for i, split in enumerate(summary.splits)}
    names = [plain(tests[fold]) if fold in tests else f"fold {fold}" for fold in folds]
    chances = [r["chance"] for side in found.values() for r in side.values() if "chance" in r]
    layout = plot.stacked(
        plot.axes(
            plot.names_axis(names, "fold, by its test subject"), plot.score_axis("accuracy of reading the subject")
        ),
        plot.level(float(np.mean(chances)) if chances else None, "chance"),
    )
    rows = [(i, fold, side) for i, fold in enumerate(folds) for side in SIDES if fold in found[side]]
    return Figure(
        key="leakage",
        title="Can the subject be read from the representation?",
        caption="A fresh classifier tries to tell from the network's latent code which training subject a trial "
        f"belongs to. At the dashed line it can only guess{_reading(summary, found)}.",
        data=[_joints(found, folds), *(_measured(found[s], s, folds, names) for s in SIDES if found[s])],
        layout=layout,
        columns=("fold", "test_subject", "model", "accuracy", "chance", "bits"),
        rows=[[f, names[i], s, *(found[s][f].get(k) for k in ("accuracy", "chance", "bits"))] for i, f, s in rows],
        height=300,
    )


def _reading(summary: Summary, found: dict[str, Measured]) -> str:
    """What the way between the dots means: a baseline that prepares windows otherwise says nothing of the censor."""
    if not found["chosen"]:
        return ""
    baseline, chosen = ((summary.choice or {}).get(side) or {} for side in ("baseline", "chosen"))
    alike = all(baseline.get(name) == chosen.get(name) for name in PREPARED)
    if chosen.get("method") in (None, "none"):
        what = "batches are drawn" if alike else "windows are prepared and learned from"
        return f"; no censor was chosen, so that the dots differ by how {what}"
    if found["uncensored"]:
        rest = "draws its batches" if alike else "prepares its windows or learns from them"
        return (
            ", so the censor should move the dots down from those of the same network without it; the baseline "
            f"{rest} otherwise"
        )
    if not alike:
        return "; the baseline prepares its windows or learns from them otherwise: the way is not the censor's alone"
    return ", so censoring should move the dots down"


def _finite(rows: list[dict[str, float]] | None) -> Measured:
    kept: Measured = {}
    for position, row in enumerate(rows or []):
        known = {k: float(v) for k, v in row.items() if v is not None and math.isfinite(float(v))}
        if "accuracy" in known:
            kept[int(known.get("fold", position))] = known
    return kept


def _joints(found: dict[str, Measured], folds: list[int]) -> Json:
    """A line from before to after, for the folds that have both."""
    before = found["uncensored"] or found["baseline"]
    x: list[int | None] = []
    y: list[float | None] = []
    for i, fold in enumerate(folds):
        if fold in before and fold in found["chosen"]:
            x += [i, i, None]
            y += [before[fold]["accuracy"], found["chosen"][fold]["accuracy"], None]
    return plot.line(x, y, "", stroke=MUTED, width=1.5, showlegend=False)


def _measured(found: Measured, side: str, folds: list[int], names: list[str]) -> Json:
    label, fill = SIDES[side]
    here = [(i, found[fold]) for i, fold in enumerate(folds) if fold in found]
    bits = [f"<br>at least {r['bits']:.2f} bits" if "bits" in r else "" for _, r in here]
    texts = [
        f"test subject {plot_text(names[i])}<br>{label}: {score(r['accuracy'])}{b}"
        for (i, r), b in zip(here, bits, strict=True)
    ]
    x, y = [i for i, _ in here], [r["accuracy"] for _, r in here]
    return plot.points(x, y, label, fill=fill, text=texts, marker={"size": 10})


def latent_by_subject(summary: Summary) -> Figure | None:
    reading = "the less the colours form islands, the less the representation tells who it was"
    return _picture(summary, "subject", reading)


def latent_by_class(summary: Summary) -> Figure | None:
    reading = "islands of one colour are what the classifier needs, and censoring should leave them in place"
    return _picture(summary, "class", reading)


def _picture(summary: Summary, by: str, reading: str) -> Figure | None:
    """z of one fold's training trials in two dimensions, a panel for each model, coloured by `by`."""
    frames = {side: thinned(summary.latent[side]) for side in SIDES if side in summary.latent}
    frames = {side: frame for side, frame in frames.items() if len(frame)}
    if not frames:
        return None
    names = sorted({str(name) for frame in frames.values() for name in frame[by]}, key=_natural)
    parts: list[Json] = []
    for panel, side in enumerate(frames):
        parts.append(plot.axes(plot.bare_axis(frame=True), plot.bare_axis(frame=True), panel))
        parts.append({"annotations": [plot.panel_title(f"<b>{SIDES[side][0]}</b>", panel)]})
    return Figure(
        key=f"latent-{by}",
        title=f"The representation of every trial, coloured by {by}",
        caption=f"Each dot is a training trial of one fold, flattened to two dimensions: {reading}.",
        data=[trace for panel, frame in enumerate(frames.values()) for trace in _clouds(frame, by, names, panel)],
        layout=plot.stacked(*parts),
        columns=("model", "x", "y", "subject", "class"),
        rows=[[side, *row] for side, frame in frames.items() for row in frame.values.tolist()],
        panels=len(frames),
        height=400,
        square=True,
        legend=len(names) <= MOST_NAMES,
        axes=False,
    )


def _clouds(frame: pd.DataFrame, by: str, names: list[str], panel: int) -> list[Json]:
    other = "class" if by == "subject" else "subject"
    hover = f"{by} %{{fullData.name}}<br>{other} %{{text}}<extra></extra>"
    traces = []
    for position, name in enumerate(names):
        rows = frame[frame[by] == name]
        if len(rows):
            fill, symbol = plot.nth(position)
            dots = plot.points(rows["x"].tolist(), rows["y"].tolist(), plot_text(name), fill=fill, symbol=symbol)
            dots["marker"] |= {"size": 5, "opacity": 0.85}
            dots |= {"text": [plot_text(value) for value in rows[other]], "hovertemplate": hover}
            traces.append({**dots, "legendgroup": str(position), "showlegend": panel == 0, **plot.on_panel(panel)})
    return traces


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns x, y, subject, class: finite points, names as text, evenly thinned to what a page can carry."""
    table = frame.reindex(columns=pd.Index(["x", "y", "subject", "class"])).astype(object)
    for column in ("x", "y"):
        table[column] = pd.to_numeric(table[column], errors="coerce").replace([math.inf, -math.inf], math.nan)
    table = table.dropna(subset=["x", "y"])
    for column in ("subject", "class"):
        table[column] = [plain(value) for value in table[column]]
    if len(table) <= MOST_POINTS:
        return table
    return table.iloc[np.linspace(0, len(table) - 1, MOST_POINTS).round().astype(int)]


def _natural(name: str) -> tuple[int, float, str]:
    """2 before 10, numbers before words."""
    try:
        value = float(name)
    except ValueError:
        value = math.nan
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
