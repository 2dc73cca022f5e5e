"""The page that `inspect --html` writes: the overview of recordings, self-contained."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from ..recordings.overview import Overview, Picture

MOST_CHANNELS = 16  # traces of a picture
MOST_POINTS = 600  # of a trace
WIDTH, ROW, MARGIN = 380, 26, 64  # of a picture, of one channel in it, and of its name, in pixels
LETTERS = 10  # of a name that fit there
STYLE = """
:root { color-scheme: light dark; --ink: #1b2733; --paper: #fff; --line: #d5dbe1; --trace: #1f5f8b; --mark: #b3541e }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dde4ea; --paper: #14191e; --line: #37424c; --trace: #74b3dd; --mark: #e59a6b }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } .wide { overflow-x: auto }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); text-align: left; font-weight: normal }
th { white-space: nowrap }
td.n { text-align: right } .none { color: var(--mark) }
ul.concerns { border-left: 4px solid var(--mark); padding: .2rem 0 .2rem 1.6rem }
.pictures { display: flex; flex-wrap: wrap; gap: 1.2rem }
figure { margin: 0; max-width: 100% } svg { max-width: 100%; height: auto }
polyline { fill: none; stroke: var(--trace); stroke-width: 1 }
text { font: 10px system-ui, sans-serif; fill: var(--ink) }
"""


def write_preview(overview: Overview, path: Path) -> None:
    write_atomically(path, page(overview))


def page(overview: Overview) -> str:
    title = escape(overview.name)
    facts = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in overview.facts())
    wrong = [*overview.missing, *overview.concerns]
    items = "".join(f"<li>{escape(line)}</li>" for line in wrong)
    concerns = f"<ul class='concerns'>{items}</ul>" if wrong else "<p>Nothing looks wrong.</p>"
    pictures = "".join(
        _figure(picture, overview.channels, _heights(overview.pictures)) for picture in overview.pictures
    )
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{STYLE}</style></head><body>"
        f"<h1>{title}</h1><table>{facts}</table><h2>Before you train</h2>{concerns}"
        f"<h2>One window of each class</h2><div class='pictures'>{pictures}</div>{_counts(overview)}</body></html>\n"
    )


def _counts(overview: Overview) -> str:
    if not overview.people or not overview.classes:
        return ""
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("person", *overview.classes))
    heads += "<th>sessions</th>" if overview.sessions else ""
    rows = ""
    for s, name in enumerate(overview.people):
        cells = [int(count) for count in overview.counts[s]] + ([overview.sessions[s]] if overview.sessions else [])
        rows += f"<tr><th>{escape(name)}</th>" + "".join(
            f"<td class='n{'' if cell else ' none'}'>{cell}</td>" for cell in cells
        )
        rows += "</tr>"
    return f"<h2>Trials of each person</h2><div class='wide'><table><tr>{heads}</tr>{rows}</table></div>"


def _heights(pictures: tuple[Picture, ...]) -> NDArray[np.float64]:
    """(C,) the range of each channel over all pictures, so that they can be compared."""
    spans = [np.ptp(np.nan_to_num(picture.window), axis=1) for picture in pictures]
    tallest: NDArray[np.float64] = np.max(spans, axis=0)
    return tallest


def _figure(picture: Picture, channels: tuple[str, ...], heights: NDArray[np.float64]) -> str:
    shown = picture.window[:MOST_CHANNELS]
    traces = "".join(
        f"<polyline points='{_points(signal, heights[c], ROW * c)}'/>"
        f"<text x='0' y='{ROW * c + ROW // 2 + 3}'>{escape(channels[c][:LETTERS])}</text>"
        for c, signal in enumerate(shown)
    )
    more = f", the first {MOST_CHANNELS} of {len(channels)} channels" if len(channels) > MOST_CHANNELS else ""
    box = f"viewBox='0 0 {WIDTH} {ROW * len(shown)}' width='{WIDTH}' height='{ROW * len(shown)}'"
    return (
        f"<figure><figcaption><b>{escape(picture.label)}</b>, person {escape(picture.person)}{more}</figcaption>"
        f"<svg {box} role='img'>{traces}</svg></figure>"
    )


def _points(signal: NDArray[np.float64], height: float, top: float) -> str:
    """A trace within ROW pixels below `top`, around its middle."""
    step = max(1, len(signal) // MOST_POINTS)
    values = np.nan_to_num(signal[::step], posinf=0.0, neginf=0.0)
    middle = (values.max() + values.min()) / 2
    y = top + ROW / 2 - (values - middle) / (height or 1.0) * 0.9 * ROW
    x = np.linspace(MARGIN, WIDTH, len(values))
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
