"""What the figures share: their type, colours, axes and marks.

A figure is plotly's own JSON. Colours are names of CSS variables, which the page puts in for light, dark and print;
panels are laid out by the page too, side by side where there is room and below one another on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..censoring import CENSORS
from .escaping import plot_text

Json = dict[str, Any]

INK, MUTED, GRID, BACKGROUND = "var(--ink)", "var(--muted)", "var(--grid)", "var(--background)"
ACCENT, SOFT, GREY, GREY_SOFT = "var(--accent)", "var(--accent-soft)", "var(--grey)", "var(--grey-soft)"
# Seven colours that differ in lightness as well, and so stay apart under the colour deficiencies (a test measures it);
# shapes tell the methods apart a second time.
PALETTE = (ACCENT, *(f"var(--c{i})" for i in range(1, 6)), GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")
LOSS = PALETTE[1]
# Of the baselines and AutoTransfer's own rows. Methods have theirs by their place in the registry.
LOOKS = {
    "none": (GREY, "circle"), "uncensored": (GREY, "circle-open"), "published": (ACCENT, "circle-open"),
    "choosing": (ACCENT, "diamond-open"), "equal": (ACCENT, "square-open"), "nested": (ACCENT, "circle"),
}  # fmt: skip
# Of peers, by their number: 25 pairs before one repeats, and the first five are no method's.
PEER_COLOURS = tuple(PALETTE[place] for place in (4, 5, 3, 2, 1))
PEER_MARKS = ("diamond", "cross", "star", "bowtie", "hourglass")
METHOD_MARKS = (
    "triangle-up", "square", "diamond", "triangle-down", "pentagon", "hexagon", "star", "hourglass",
    "bowtie", "triangle-left", "hexagram", "cross", "diamond-tall", "star-triangle-down", "octagon", "x",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One figure of the page: plotly's data and layout, and the numbers behind it as a table."""

    key: str
    title: str
    caption: str  # one sentence or two: how to read it
    data: list[Json]
    layout: Json
    columns: tuple[str, ...]
    rows: list[list[Any]]
    panels: int = 1
    height: int = 340  # of one panel, in pixels
    square: bool = False  # panels as high as they are wide
    legend: bool = True
    axes: bool = True  # whether they have labels that need room


def colour_and_mark(key: str) -> tuple[str, str]:
    """Colour and mark of a row. Methods have five colours, repeated from the sixth on, and marks that differ up to the
    sixteenth."""
    if key in CENSORS:
        place = list(CENSORS).index(key)
        return PALETTE[1 + place % 5], METHOD_MARKS[place % len(METHOD_MARKS)]
    if key.startswith("peer "):
        place = int(key.split()[1])
        return PEER_COLOURS[place % 5], PEER_MARKS[(place + place // 5) % 5]
    return LOOKS.get(key, (INK, "asterisk-open"))


def gain_colour(value: float) -> str:
    return ACCENT if value > 0 else LOSS if value < 0 else GREY


def colour_and_shape(index: int) -> tuple[str, str]:
    """Colour and shape of the index-th of many: 35 pairs before they repeat."""
    return PALETTE[index % len(PALETTE)], SYMBOLS[index // len(PALETTE) % len(SYMBOLS)]


# ---- panels ----------------------------------------------------------------------------------------------------------


def suffix(panel: int) -> str:
    """plotly counts axes x, x2, x3, ..."""
    return "" if panel == 0 else str(panel + 1)


def on_panel(panel: int) -> Json:
    """What a trace needs to lie on a panel."""
    return {"xaxis": f"x{suffix(panel)}", "yaxis": f"y{suffix(panel)}"}


def axes(x: Json, y: Json, panel: int = 0) -> Json:
    return {f"xaxis{suffix(panel)}": x, f"yaxis{suffix(panel)}": y}


def merge_layouts(*parts: Json) -> Json:
    """Layouts merged: shapes and annotations are appended, other keys replaced."""
    whole: Json = {"shapes": [], "annotations": []}
    for part in parts:
        for key, value in part.items():
            whole[key] = whole[key] + value if key in ("shapes", "annotations") else value
    return whole


# ---- axes ------------------------------------------------------------------------------------------------------------


def plain_axis(title: str = "", **more: Any) -> Json:
    """An axis whose labels stand off, so that those of two axes do not overlap in the corner."""
    look = {"gridcolor": GRID, "zeroline": False, "ticklabelstandoff": 5}
    return {"title": {"text": title, "standoff": 6}, **look, **more}


def score_axis(title: str, values: Iterable[float | None], chance: float | None = None) -> Json:
    """An axis for scores that includes chance."""
    low, high = score_range([*values, chance])
    step = 0.05 if high - low <= 0.25 else 0.1 if high - low <= 0.6 else 0.2
    return plain_axis(title, range=[low, high], dtick=step, tick0=0)


def score_range(values: Iterable[float | None]) -> tuple[float, float]:
    """From the twentieth below the lowest to the twentieth above the highest, at least a fifth wide, within 0 and 1."""
    known = [value for value in values if value is not None and math.isfinite(value)] or [0.0, 1.0]
    low, high = math.floor(20 * min(known) - 0.4), math.ceil(20 * max(known) + 0.4)
    missing = max(0, 4 - (high - low))
    low, high = low - missing // 2, high + missing - missing // 2
    low, high = (0, max(high, 4)) if low < 0 else (low, high)
    low, high = (min(low, 16), 20) if high > 20 else (low, high)
    return low / 20, high / 20


def difference_axis(title: str, values: Iterable[float], *, least: float) -> Json:
    """Around zero, as far to either side as the values go; `least`: how much is shown of a side with values."""
    known = [value for value in values if math.isfinite(value)]
    ends = min(0.0, *known, 0.0), max(0.0, *known, 0.0)
    low, high = (side * max(abs(end), least) if end else 0.0 for side, end in zip((-1, 1), ends, strict=True))
    room = 0.12 * max(high - low, least)
    return plain_axis(title, range=[low - room, high + room], zeroline=True, zerolinecolor=MUTED, tickformat="+.2f")


def names_axis(names: list[str], title: str = "", *, length: int = 14, **more: Any) -> Json:
    """Names at positions 0, 1, ...: as categories, plotly would read '1' as a number and merge equal short forms.

    The page turns them upright where they would run into each other.
    """
    labels = [plot_text(name, length) for name in names]
    ticks = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": labels}
    ends = [-0.6, len(names) - 0.4]
    return plain_axis(title, range=ends, showgrid=False, **ticks) | more


def bare_axis(*, frame: bool) -> Json:
    """For positions without a unit."""
    nothing = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": ""}
    return {**nothing, "showline": frame, "mirror": frame, "linecolor": GRID}


# ---- rows of dots ----------------------------------------------------------------------------------------------------

DOT = 8  # diameter of a dot, in pixels
NARROW = 300  # pixels between the ends of an axis on a phone
MOST_LEVELS = 7  # of dots above and below the middle of their row; more people than that lie on each other


def swarm(values: list[float], ends: Sequence[float]) -> list[int]:
    """How many dots above or below the middle of its row each one lies so that none hides another on a phone: the
    nearest level that is free. ends: of the axis."""
    apart = (DOT + 0.5) * (ends[1] - ends[0]) / NARROW
    levels = sorted(range(-MOST_LEVELS, MOST_LEVELS + 1), key=lambda level: (abs(level), -level))
    taken = dict.fromkeys(levels, -math.inf)  # the last value on each level
    chosen = [0] * len(values)
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        free = [level for level in levels if values[i] - taken[level] >= apart]
        chosen[i] = free[0] if free else min(levels, key=lambda level: taken[level])
        taken[chosen[i]] = values[i]
    return chosen


@dataclass(frozen=True)
class DotRows:
    """Rows of dots below one another, with room for the highest swarm and for a name over it."""

    levels: list[list[int]]  # of each row, as `swarm` has them

    @property
    def _reach(self) -> int:
        """Pixels from the middle of a row to the edge of its outermost dot."""
        return DOT // 2 + DOT * max((abs(level) for row in self.levels for level in row), default=0)

    @property
    def height(self) -> int:
        """Of a row, in pixels."""
        return 2 * self._reach + 26

    def heights(self, row: int) -> list[float]:
        return [row - level * DOT / self.height for level in self.levels[row]]

    def layout(self, across: Json, titles: Sequence[str], numbers: Sequence[str], *more: Json) -> Json:
        """A name over each row and a number beside it; a name in bold stands out."""
        down = bare_axis(frame=False) | {"range": [len(self.levels) - 0.5, -0.5 - 14 / self.height]}
        notes = [
            row_title(text, row, fill=INK if text.startswith("<b>") else MUTED, above=self._reach + 10)
            for row, text in enumerate(titles)
        ]
        notes += [note(text, x=1, y=row, xshift=12) for row, text in enumerate(numbers)]
        return merge_layouts(axes(across, down), {"annotations": notes, "margin": {"l": 14, "r": 62}}, *more)


# ---- marks -----------------------------------------------------------------------------------------------------------


def points(x: list[Any], y: list[Any], name: str, *, fill: Any, symbol: str = "circle", **more: Any) -> Json:
    """Dots that may sit on the very edge of the axes, such as a score of 1; `text` is shown when pointed at."""
    look = {"color": fill, "symbol": symbol, "size": 9, **more.pop("marker", {})}
    shown: Json = {"cliponaxis": False, "hovertemplate": "%{text}<extra></extra>", **more, "marker": look}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": name, **shown}


def path(x: list[Any], y: list[Any], name: str, *, fill: str, width: float = 2, **more: Any) -> Json:
    """Dots joined by a line."""
    return {**points(x, y, name, fill=fill, **more), "mode": "lines+markers", "line": {"color": fill, "width": width}}


def line(x: list[Any], y: list[Any], name: str, *, stroke: str, width: float = 2, **more: Any) -> Json:
    """A line without hover text, unless a hovertemplate is given."""
    look = {"color": stroke, "width": width, **more.pop("line", {})}
    silent = {} if "hovertemplate" in more else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": look, **silent, **more}


def note(text: str, *, x: float, y: float, fill: str = INK, size: int = 12, panel: int = 0, **more: Any) -> Json:
    """Text in a panel: x as a share of its width unless xref says otherwise, y on its axis."""
    refs = {"xref": f"x{suffix(panel)} domain", "yref": f"y{suffix(panel)}"}
    font = {"color": fill, "size": size}
    return {"text": text, "showarrow": False, "x": x, "y": y, "xanchor": "left", "font": font, **refs, **more}


def panel_title(text: str, panel: int, *, fill: str = INK) -> Json:
    above = {"yref": f"y{suffix(panel)} domain", "yanchor": "bottom", "yshift": 5}
    return note(text, x=0, y=1, fill=fill, size=13, panel=panel, **above)


def row_title(text: str, position: float, *, fill: str = MUTED, above: int = 16) -> Json:
    """The name of a row above its marks; to their left it would take the room of the numbers on a phone."""
    return note(text, x=0, y=position, fill=fill, yshift=above, bgcolor=BACKGROUND, borderpad=1)


def horizontal_line(value: float | None, text: str = "", *, panel: int = 0) -> Json:
    """Layout entries for a dashed horizontal line, labelled at its right end; nothing for None."""
    if value is None:
        return {}
    label = note(text, x=1, y=value, fill=MUTED, size=11, panel=panel, xanchor="right", yanchor="bottom")
    return {"shapes": [_dashes("x", "y", value, panel)], "annotations": [label] if text else []}


def scores_over(x: Json, title: str, values: Iterable[float | None], chance: float | None) -> Json:
    """Layout of scores above an axis x, with chance as a dashed line."""
    return merge_layouts(axes(x, score_axis(title, values, chance)), horizontal_line(chance, "chance"))


def vertical_line(value: float | None, text: str = "") -> Json:
    """The same for a vertical line, labelled above its top."""
    if value is None:
        return {}
    above: Json = {"xref": "x", "yref": "y domain", "xanchor": "center", "yanchor": "bottom"}
    label = note(text, x=value, y=1, fill=MUTED, size=11, **above)
    return {"shapes": [_dashes("y", "x", value, 0)], "annotations": [label] if text else []}


def _dashes(along: str, across: str, value: float, panel: int) -> Json:
    refs = {f"{along}ref": f"{along}{suffix(panel)} domain", f"{across}ref": f"{across}{suffix(panel)}"}
    ends = {f"{along}0": 0, f"{along}1": 1, f"{across}0": value, f"{across}1": value}
    return {"type": "line", "layer": "below", "line": {"color": MUTED, "width": 1, "dash": "dash"}, **refs, **ends}
