"""What the figures share: their type, colours, axes and marks.

A figure is plotly's own JSON. Colours are names of CSS variables, which the page puts in for light, dark and print;
panels are laid out by the page too, side by side where there is room and below one another on a phone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .escaping import plot_text

Json = dict[str, Any]

INK, MUTED, GRID, ACCENT, SOFT = "var(--ink)", "var(--muted)", "var(--grid)", "var(--accent)", "var(--accent-soft)"
BACKGROUND, GREY, GREY_SOFT, LOSS = "var(--background)", "var(--grey)", "var(--grey-soft)", "var(--c1)"
# Seven hues that stay apart under the common colour deficiencies (Tol's "vibrant"); the shape tells them apart too.
PALETTE = (ACCENT, *(f"var(--c{i})" for i in range(1, 6)), GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
COLOURS = {
    "none": GREY,
    "adversary": "var(--c1)",
    "mige": "var(--c2)",
    "mmd": "var(--c3)",
    "pairwise_mmd": "var(--c4)",
    "began": "var(--c5)",
    "published": ACCENT,
    "nested": ACCENT,
    "nested_full": ACCENT,
}
MARKS = {
    "none": "circle",
    "adversary": "triangle-up",
    "mige": "square",
    "mmd": "diamond",
    "pairwise_mmd": "triangle-down",
    "began": "pentagon",
    "published": "circle-open",
    "nested": "circle",
    "nested_full": "circle",
}


@dataclass(frozen=True)
class Figure:
    """One figure of the page: plotly's data and layout, and the numbers behind it as a table."""

    key: str
    title: str
    caption: str  # one sentence: how to read it
    data: list[Json]
    layout: Json
    columns: tuple[str, ...]
    rows: list[list[Any]]
    panels: int = 1
    height: int = 340  # of one panel, in pixels
    square: bool = False  # panels as high as they are wide
    legend: bool = True
    axes: bool = True  # whether they have labels that need room


def colour(method: str) -> str:
    return COLOURS.get(method, INK)


def mark(method: str) -> str:
    return MARKS.get(method, "star")


def nth(index: int) -> tuple[str, str]:
    """Colour and shape of the index-th of many: 35 pairs before they repeat."""
    return PALETTE[index % len(PALETTE)], SYMBOLS[index // len(PALETTE) % len(SYMBOLS)]


def axis_name(kind: str, panel: int) -> str:
    """The layout's key for an axis of the panel-th panel: xaxis, xaxis2, ..."""
    return f"{kind}axis{panel or ''}" if panel == 0 else f"{kind}axis{panel + 1}"


def on_panel(panel: int) -> Json:
    """What a trace needs to lie on a panel."""
    suffix = "" if panel == 0 else str(panel + 1)
    return {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}


def points(x: list[Any], y: list[Any], name: str, *, fill: str, symbol: str = "circle", **more: Any) -> Json:
    """Dots that may sit on the very edge of the axes, such as a score of 1."""
    marker = {"color": fill, "symbol": symbol, "size": 9, **more.pop("marker", {})}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name, "marker": marker,
            "cliponaxis": False, "hovertemplate": "%{text}<extra></extra>", **more}  # fmt: skip


def score_axis(title: str) -> Json:
    """Balanced accuracy is always drawn from 0 to 1: a zoomed axis makes small gains look large."""
    return {
        "title": {"text": title, "standoff": 8},
        "range": [0, 1],
        "dtick": 0.2,
        "gridcolor": GRID,
        "zeroline": False,
    }


def plain_axis(title: str = "", **more: Any) -> Json:
    return {"title": {"text": title, "standoff": 8}, "gridcolor": GRID, "zeroline": False, **more}


def name_axis(names: list[str], title: str = "") -> Json:
    """Names at positions 0, 1, ...: as categories, plotly would read '1' as a number and merge equal short forms."""
    labels = [plot_text(name, 14) for name in names]
    return {
        "title": {"text": title, "standoff": 8}, "range": [-0.6, len(names) - 0.4], "showgrid": False, "zeroline": False,
        "tickmode": "array", "tickvals": list(range(len(names))), "ticktext": labels,
        "tickangle": "auto" if sum(map(len, labels)) < 70 else -90,
    }  # fmt: skip


def bare_axis() -> Json:
    """For positions without a unit."""
    return {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "mirror": True,
            "showline": True, "linecolor": GRID}  # fmt: skip


def level_line(value: float | None, text: str, *, horizontal: bool, panel: int = 0) -> Json:
    """Layout entries for a dashed line at a level, labelled where it ends; nothing for None."""
    if value is None:
        return {"shapes": [], "annotations": []}
    suffix = "" if panel == 0 else str(panel + 1)
    along, across = ("x", "y") if horizontal else ("y", "x")
    line = {
        "type": "line", "layer": "below", f"{along}ref": f"{along}{suffix} domain", f"{across}ref": f"{across}{suffix}",
        f"{along}0": 0, f"{along}1": 1, f"{across}0": value, f"{across}1": value,
        "line": {"color": MUTED, "width": 1, "dash": "dash"},
    }  # fmt: skip
    label = {
        "text": text, "showarrow": False, "font": {"color": MUTED, "size": 11},
        f"{along}ref": f"{along}{suffix} domain", f"{across}ref": f"{across}{suffix}", f"{along}": 1, f"{across}": value,
        "xanchor": "right" if horizontal else "left", "yanchor": "bottom" if horizontal else "top",
    }  # fmt: skip
    return {"shapes": [line], "annotations": [label]}


def panel_title(text: str, panel: int) -> Json:
    suffix = "" if panel == 0 else str(panel + 1)
    return {
        "text": f"<b>{text}</b>", "showarrow": False, "xref": f"x{suffix} domain", "yref": f"y{suffix} domain",
        "x": 0, "y": 1, "xanchor": "left", "yanchor": "bottom", "yshift": 6, "font": {"size": 13, "color": INK},
    }  # fmt: skip


def stacked(*parts: Json) -> Json:
    """Layouts put together: lists are appended, the rest is taken over."""
    whole: Json = {"shapes": [], "annotations": []}
    for part in parts:
        for key, value in part.items():
            whole[key] = whole[key] + value if key in ("shapes", "annotations") else value
    return whole
