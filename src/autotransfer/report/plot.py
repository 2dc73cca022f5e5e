"""What the figures share: their type, colours, axes and marks.

A figure is plotly's own JSON. Colours are names of CSS variables, which the page puts in for light, dark and print;
panels are laid out by the page too, side by side where there is room and below one another on a phone.
"""

from __future__ import annotations

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
# Of AutoTransfer's own rows and the baselines. Methods have theirs by their place in the registry.
COLOURS = {"none": GREY, "uncensored": GREY} | dict.fromkeys(
    ("published", "choosing", "equal", "nested", "nested_full"), ACCENT
)
MARKS = {"none": "circle", "uncensored": "circle-open", "published": "circle-open", "nested": "circle"}
MARKS |= {"choosing": "diamond-open", "equal": "square-open"}
METHOD_MARKS = (
    "triangle-up",
    "square",
    "diamond",
    "triangle-down",
    "pentagon",
    "hexagon",
    "star",
    "hourglass",
    "bowtie",
    "triangle-left",
    "hexagram",
    "cross",
    "diamond-tall",
    "star-triangle-down",
    "octagon",
    "x",
)


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


def colour(method: str) -> str:
    """Five colours for methods; a sixth method has the first one's again. Marks are of their own for 16."""
    if method in CENSORS:
        return PALETTE[1 + list(CENSORS).index(method) % 5]
    return COLOURS.get(method, INK)


def mark(method: str) -> str:
    if method in CENSORS:
        return METHOD_MARKS[list(CENSORS).index(method) % len(METHOD_MARKS)]
    return MARKS.get(method, "circle" if method in COLOURS else "asterisk-open")


def nth(index: int) -> tuple[str, str]:
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


def stacked(*parts: Json) -> Json:
    """Layouts put together: shapes and annotations are appended, the rest is taken over."""
    whole: Json = {"shapes": [], "annotations": []}
    for part in parts:
        for key, value in part.items():
            whole[key] = whole[key] + value if key in ("shapes", "annotations") else value
    return whole


# ---- axes ------------------------------------------------------------------------------------------------------------


def plain_axis(title: str = "", **more: Any) -> Json:
    return {"title": {"text": title, "standoff": 8}, "gridcolor": GRID, "zeroline": False, **more}


def score_axis(title: str) -> Json:
    """Balanced accuracy is always drawn from 0 to 1: a zoomed axis makes small gains look large."""
    return plain_axis(title, range=[0, 1], dtick=0.2)


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
    return {
        "showgrid": False,
        "zeroline": False,
        "showticklabels": False,
        "ticks": "",
        "showline": frame,
        "mirror": frame,
        "linecolor": GRID,
    }


# ---- marks -----------------------------------------------------------------------------------------------------------


def points(x: list[Any], y: list[Any], name: str, *, fill: Any, symbol: str = "circle", **more: Any) -> Json:
    """Dots that may sit on the very edge of the axes, such as a score of 1; `text` is shown when pointed at."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "name": name,
        "cliponaxis": False,
        "hovertemplate": "%{text}<extra></extra>",
        **more,
        "marker": {"color": fill, "symbol": symbol, "size": 9, **more.get("marker", {})},
    }


def line(x: list[Any], y: list[Any], name: str, *, stroke: str, width: float = 2, **more: Any) -> Json:
    """A line that says nothing when pointed at, unless given a hovertemplate."""
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


def row_title(text: str, position: float, *, fill: str = MUTED) -> Json:
    """The name of a row over its marks: beside them it would leave a phone no room for the numbers."""
    return note(text, x=0, y=position, fill=fill, yshift=15, bgcolor=BACKGROUND, borderpad=1)


def level(value: float | None, text: str = "", *, panel: int = 0) -> Json:
    """Layout entries for a dashed horizontal line, labelled at its right end; nothing for None."""
    if value is None:
        return {}
    label = note(text, x=1, y=value, fill=MUTED, size=11, panel=panel, xanchor="right", yanchor="bottom")
    return {"shapes": [_dashes("x", "y", value, panel)], "annotations": [label] if text else []}


def upright(value: float | None, text: str = "") -> Json:
    """The same for a vertical line, labelled at its top."""
    if value is None:
        return {}
    label = note(text, x=value, y=1, fill=MUTED, size=11, xref="x", yref="y domain", yanchor="top")
    return {"shapes": [_dashes("y", "x", value, 0)], "annotations": [label] if text else []}


def _dashes(along: str, across: str, value: float, panel: int) -> Json:
    refs = {f"{along}ref": f"{along}{suffix(panel)} domain", f"{across}ref": f"{across}{suffix(panel)}"}
    ends = {f"{along}0": 0, f"{along}1": 1, f"{across}0": value, f"{across}1": value}
    return {"type": "line", "layer": "below", "line": {"color": MUTED, "width": 1, "dash": "dash"}, **refs, **ends}
