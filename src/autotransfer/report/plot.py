"""Parts of figures: the class `Figure`, colors, axes and marks.

Figures are JSON for plotly. Colors are CSS variables, which the page replaces for light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .escaping import format_label

Json = dict[str, Any]

INK, MUTED, GRID, BACKGROUND = "var(--ink)", "var(--muted)", "var(--grid)", "var(--background)"
ACCENT, SOFT, GREY, GREY_SOFT = "var(--accent)", "var(--accent-soft)", "var(--grey)", "var(--grey-soft)"
LOSS = "var(--c1)"
DOT = 8  # diameter of a dot, in pixels
NARROW = 300  # pixels between the ends of an axis on a phone
LOWEST_SHOWN = -1.0  # lowest drawn R² if some scores are above 0, because R² has no lower limit
MOST_LEVELS = 7  # maximum number of levels of dots above and below the middle of a row; further dots overlap


@dataclass(frozen=True)
class Figure:
    """Figure of the page: data and layout for plotly, and a table of the numbers that the figure shows."""

    key: str
    title: str
    caption: str  # one or two sentences on how to read the figure
    data: list[Json]
    layout: Json
    columns: tuple[str, ...]
    rows: list[list[Any]]
    height: int = 340  # in pixels
    legend: bool = False


def gain_color(value: float) -> str:
    return ACCENT if value > 0 else LOSS if value < 0 else GREY


def merge_layouts(*parts: Json) -> Json:
    """Merge layouts: append shapes and annotations, and replace other keys."""
    merged: Json = {"shapes": [], "annotations": []}
    for part in parts:
        for key, value in part.items():
            merged[key] = merged[key] + value if key in ("shapes", "annotations") else value
    return merged


def plain_axis(title: str = "", **more: Any) -> Json:
    look = {"gridcolor": GRID, "zeroline": False, "ticklabelstandoff": 5, "automargin": True}
    return {"title": {"text": title, "standoff": 6}, **look, **more}


def score_axis(title: str, values: Iterable[float | None], chance: float | None = None) -> Json:
    """Return an axis for scores whose range includes chance."""
    low, high = score_range([*values, chance])
    if high - low > 1:
        return plain_axis(title, range=[low, high], nticks=6)
    step = 0.05 if high - low <= 0.25 else 0.1 if high - low <= 0.6 else 0.2
    return plain_axis(title, range=[low, high], dtick=step, tick0=0)


def score_range(values: Iterable[float | None]) -> tuple[float, float]:
    """Return a range around all values: multiples of .05 that are at least .2 apart and at most 1.

    The lower end is at least 0 if no value is negative, and at least LOWEST_SHOWN if only some values are negative.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)] or [0.0, 1.0]
    lowest = 0.0 if min(finite) >= 0 else max(LOWEST_SHOWN, min(finite)) if max(finite) > 0 else min(finite)
    low, high = math.floor(20 * min(finite) - 0.4), math.ceil(20 * max(finite) + 0.4)  # in steps of .05
    missing = max(0, 4 - (high - low))
    low, high = low - missing // 2, high + missing - missing // 2
    lowest_step = math.floor(20 * lowest)
    low, high = (lowest_step, max(high, lowest_step + 4)) if low < lowest_step else (low, high)
    low, high = (min(low, 16), 20) if high > 20 else (low, high)
    return low / 20, high / 20


def difference_axis(title: str, values: Iterable[float], *, least: float) -> Json:
    """Return an axis from zero to the values, with at least the length `least` on each side that has values."""
    finite = [value for value in values if math.isfinite(value)]
    ends = min(0.0, *finite, 0.0), max(0.0, *finite, 0.0)
    low, high = (side * max(abs(end), least) if end else 0.0 for side, end in zip((-1, 1), ends, strict=True))
    margin = 0.12 * (high - low) or least
    look: Json = {"zeroline": True, "zerolinecolor": MUTED, "tickformat": "+.3~f", "nticks": 6}
    return plain_axis(title, range=[low - margin, high + margin], **look)


def names_axis(names: Sequence[str], title: str = "", *, length: int = 14, **more: Any) -> Json:
    """Return an axis with names at 0, 1, ..., because plotly would read the category '1' as a number."""
    ticks = {"tickmode": "array", "tickvals": list(range(len(names)))}
    labels = [format_label(name, length) for name in names]
    return plain_axis(title, range=[-0.6, len(names) - 0.4], showgrid=False, ticktext=labels, **ticks) | more


def stack_dots(values: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Return for each dot its level above or below the middle of a row, so that dots do not overlap on a phone.

    ends: lowest and highest value of the axis
    """
    spacing = (DOT + 0.5) * (ends[1] - ends[0]) / NARROW
    levels = sorted(range(-MOST_LEVELS, MOST_LEVELS + 1), key=lambda level: (abs(level), -level))
    last_value = dict.fromkeys(levels, -math.inf)  # value of the last dot on each level
    level_of_dot = [0] * len(values)
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        free_levels = [level for level in levels if values[i] - last_value[level] >= spacing]
        level_of_dot[i] = free_levels[0] if free_levels else min(levels, key=lambda level: last_value[level])
        last_value[level_of_dot[i]] = values[i]
    return level_of_dot


def dot_rows(
    rows: Sequence[Sequence[float]], x_axis: Json, titles: Sequence[str], numbers: Sequence[str]
) -> tuple[list[list[float]], Json, int]:
    """Return heights of dots, a layout with a title above each row and a number at its end, and a height in pixels."""
    levels = [stack_dots(values, x_axis["range"]) for values in rows]
    half_height = DOT // 2 + DOT * max((abs(level) for row in levels for level in row), default=0)  # of the dots
    height = 2 * half_height + 26  # height of a row
    heights = [[i - level * DOT / height for level in row] for i, row in enumerate(levels)]
    y_axis: Json = {"showgrid": False, "zeroline": False, "showticklabels": False}
    y_axis["range"] = [len(titles) - 0.5, -0.5 - 14 / height]
    notes = []
    for row, (title, number) in enumerate(zip(titles, numbers, strict=True)):
        fill = INK if title.startswith("<b>") else MUTED
        notes.append(note(title, x=0, y=row, fill=fill, yshift=half_height + 10, bgcolor=BACKGROUND, borderpad=1))
        notes.append(note(number, x=1, y=row, xshift=12))
    layout = {"xaxis": x_axis, "yaxis": y_axis, "annotations": notes, "margin": {"l": 14, "r": 62, "t": 24, "b": 46}}
    return heights, layout, height * len(rows) + 70


def points(x: Sequence[Any], y: Sequence[Any], name: str, *, fill: Any, symbol: str = "circle", **more: Any) -> Json:
    """Return dots, which are not cut at the edge of the axes; `text` is shown on hover."""
    look = {"color": fill, "symbol": symbol, "size": 9, **more.pop("marker", {})}
    shown: Json = {"cliponaxis": False, "hovertemplate": "%{text}<extra></extra>", **more, "marker": look}
    return {"type": "scatter", "mode": "markers", "x": [*x], "y": [*y], "name": name, **shown}


def path(x: Sequence[Any], y: Sequence[Any], name: str, *, fill: str, width: float = 2, **more: Any) -> Json:
    """Return dots connected by a line."""
    return {**points(x, y, name, fill=fill, **more), "mode": "lines+markers", "line": {"color": fill, "width": width}}


def line(x: Sequence[Any], y: Sequence[Any], name: str, *, stroke: str, width: float = 2, **more: Any) -> Json:
    """Return a line without hover text."""
    look = {"color": stroke, "width": width, **more.pop("line", {})}
    shown = {"hoverinfo": "skip", **more}
    return {"type": "scatter", "mode": "lines", "x": [*x], "y": [*y], "name": name, "line": look, **shown}


def note(text: str, *, x: float, y: float, fill: str = INK, size: int = 12, **more: Any) -> Json:
    """Return text at x, a share of the plot width unless `xref` is set, and at y, a value of the axis."""
    font = {"color": fill, "size": size}
    refs = {"xref": "x domain", "yref": "y", "xanchor": "left"}
    return {"text": text, "showarrow": False, "x": x, "y": y, "font": font, **refs, **more}


def dashed_line(value: float | None, text: str = "chance", *, vertical: bool = False) -> Json:
    """Return the layout of a dashed line with a label at its end; an empty layout for None."""
    if value is None:
        return {}
    line: Json = {"type": "line", "layer": "below", "line": {"color": MUTED, "width": 1, "dash": "dash"}}
    look: Json = {"fill": MUTED, "size": 11, "yanchor": "bottom"}
    if vertical:
        line |= {"yref": "y domain", "x0": value, "x1": value, "y0": 0, "y1": 1}
        label = note(text, x=value, y=1, xref="x", yref="y domain", xanchor="center", **look)
    else:
        line |= {"xref": "x domain", "x0": 0, "x1": 1, "y0": value, "y1": value}
        label = note(text, x=1, y=value, xanchor="right", **look)
    return {"shapes": [line], "annotations": [label]}


def scores_layout(x_axis: Json, title: str, values: Iterable[float | None], chance: float | None) -> Json:
    """Return the layout of scores above an x axis, with chance as a dashed line."""
    return merge_layouts({"xaxis": x_axis, "yaxis": score_axis(title, values, chance)}, dashed_line(chance))
