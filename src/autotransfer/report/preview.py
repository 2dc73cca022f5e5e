"""The page that `inspect --html` writes: the overview of recordings, self-contained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from ..recordings.overview import Overview, Picture
from .escaping import Html, join_html, tag
from .page import bare_page
from .tables import table

MOST_CHANNELS = 16  # traces of a picture
MOST_POINTS = 600  # of a trace
WIDTH, ROW, MARGIN = 380, 26, 64  # of a picture, of one channel in it, and of its name, in pixels
LETTERS = 10  # of a name that fit there


def write_preview(overview: Overview, path: Path) -> None:
    write_atomically(path, render_preview(overview))


def render_preview(overview: Overview) -> str:
    wrong = [tag("li", line) for line in (*overview.missing, *overview.concerns)]
    tallest = np.max([np.ptp(np.nan_to_num(picture.window), axis=1) for picture in overview.pictures], axis=0)
    main = tag(
        "main",
        table("What there is", ("", ""), overview.facts(), numeric=2),
        tag("h2", "Before you train"),
        tag("ul", *wrong, class_="answer worse") if wrong else tag("p", "Nothing looks wrong."),
        tag("h2", "One window of each class"),
        tag("div", *(_figure(picture, overview.channels, tallest) for picture in overview.pictures), class_="pictures"),
        _counts(overview),
    )
    return bare_page(overview.name, tag("header", tag("h1", overview.name)), main)


def _counts(overview: Overview) -> Html | None:
    if not overview.people or not overview.classes:
        return None
    counts = overview.counts.tolist()
    heads = ["person", *overview.classes]
    if overview.sessions:
        heads.append("sessions")
        counts = [[*row, n] for row, n in zip(counts, overview.sessions, strict=True)]
    cells = [[n or tag("mark", 0) for n in row] for row in counts]
    rows = [[name, *row] for name, row in zip(overview.people, cells, strict=True)]
    return join_html(tag("h2", "Trials of each person"), table("How many of each class", heads, rows, numeric=1))


def _figure(picture: Picture, channels: tuple[str, ...], heights: NDArray[np.float64]) -> Html:
    """heights (C,): the range of each channel over all pictures, so that they can be compared."""
    shown = picture.window[:MOST_CHANNELS]
    traces: list[Html] = []
    for c, signal in enumerate(shown):
        traces.append(tag("polyline", points=_points(signal, heights[c], ROW * c)))
        traces.append(tag("text", channels[c][:LETTERS], x=0, y=ROW * c + ROW // 2 + 3))
    more = f", the first {MOST_CHANNELS} of {len(channels)} channels" if len(channels) > MOST_CHANNELS else ""
    caption = tag("figcaption", tag("b", picture.label), f", person {picture.person}{more}")
    size = {"viewBox": f"0 0 {WIDTH} {ROW * len(shown)}", "width": WIDTH, "height": ROW * len(shown)}
    return tag("figure", caption, tag("svg", *traces, role="img", **size))


def _points(signal: NDArray[np.float64], height: float, top: float) -> str:
    """A trace within ROW pixels below `top`, around its middle."""
    step = max(1, len(signal) // MOST_POINTS)
    values = np.nan_to_num(signal[::step], posinf=0.0, neginf=0.0)
    middle = (values.max() + values.min()) / 2
    y = top + ROW / 2 - (values - middle) / (height or 1.0) * 0.9 * ROW
    x = np.linspace(MARGIN, WIDTH, len(values))
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
