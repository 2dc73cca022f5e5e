"""Draw figures as SVG without a plotting package, so that every machine writes the same file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH = 860  # pixels
# The figure has no background, so its colors are legible on light and on dark pages.
GREY, BLUE, ORANGE = "#6e7781", "#2f7fd1", "#d9622b"


def write_figure(folder: Path, name: str, drawing: str, alt: str) -> str:
    """Write a drawing into the folder and return its Markdown."""
    (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
    return f"![{alt}]({folder.name}/{name}.svg)\n"


@dataclass(frozen=True)
class Gain:
    """Panel with scores of each data set before and after a step, and optionally a third score for comparison."""

    title: str
    ends: tuple[str, str]  # labels of the scores before and after
    before: Mapping[str, float]
    after: Mapping[str, float]
    notes: Sequence[str]  # numbers below the panel; the first is bold
    third: tuple[str, Mapping[str, float]] | None = None


def draw_gains(panels: Sequence[Gain], names: Mapping[str, str], notes: Sequence[str], head: str) -> str:
    """Draw panels side by side. A row is a data set with an open dot (before), a filled dot (after) and a bar (third).

    names: data set -> label of its row; a key that is in no panel has a heading. notes: labels of the numbers below
    the panels.
    """
    left, gap, top, row = 178, 18, 88, 22
    wide = (WIDTH - left - 12 - gap * (len(panels) - 1)) / len(panels)
    series = [
        scores for panel in panels for scores in (panel.before, panel.after, panel.third[1] if panel.third else {})
    ]
    values = [value for scores in series for value in scores.values()]
    low, high = math.floor(10 * min(values)) / 10, 1.0
    bottom = top + row * len(names) + 4
    parts = [_text(left, 18, head, "start", bold=True)]
    known = {dataset for panel in panels for dataset in panel.after}
    for k, (key, name) in enumerate(names.items()):
        parts.append(_text(left - 14, top + row * (k + 0.5) + 4, name, "end", bold=key not in known))
    parts += [_text(left - 14, bottom + 40 + 17 * k, note, "end", bold=not k) for k, note in enumerate(notes)]
    for column, panel in enumerate(panels):
        start = left + column * (wide + gap)

        def x(value: float, start: float = start) -> float:
            return start + (value - low) / (high - low) * wide

        parts += [_text(start, 42, panel.title, "start", bold=True, color=BLUE)]
        parts += [_ring(start + 5, 56, GREY), _text(start + 14, 60, panel.ends[0], "start")]
        parts += [_dot(start + 5, 72, BLUE), _text(start + 14, 76, panel.ends[1], "start")]
        for tick in (0.4, 0.6, 0.8, 1.0):
            parts += [_line(x(tick), top, x(tick), bottom, GREY, 0.3)]
            parts += [_text(x(tick), bottom + 15, f"{tick:.1f}", "middle")]
        for k, dataset in enumerate(names):
            if dataset not in panel.before or dataset not in panel.after:
                continue
            y, first, last = top + row * (k + 0.5), panel.before[dataset], panel.after[dataset]
            color = BLUE if last >= first else ORANGE
            parts += [_line(x(first), y, x(last), y, color, 3)]
            parts += [_ring(x(first), y, GREY), _dot(x(last), y, color)]
            if panel.third and dataset in panel.third[1]:
                other = panel.third[1][dataset]
                parts += [_line(x(other), y - 6, x(other), y + 6, ORANGE, 2)]
        for k, note in enumerate(panel.notes):
            parts.append(_text(start, bottom + 40 + 17 * k, note, "start", bold=not k, color=GREY if k else BLUE))
        if panel.third:
            y = bottom + 40 + 17 * len(panel.notes)
            parts += [_line(start + 4, y - 10, start + 4, y + 2, ORANGE, 2)]
            parts += [_text(start + 12, y, panel.third[0], "start")]
    height = bottom + 40 + 17 * (1 + len(notes))
    return _drawing(parts, height)


@dataclass(frozen=True)
class Arrow:
    """Arrow with a label, from one point (x, y) to another."""

    label: str
    start: tuple[float, float]
    end: tuple[float, float]


def draw_arrows(panels: Mapping[str, Sequence[Arrow]], x_label: str, y_label: str) -> str:
    """Draw panels side by side, each arrow from an open to a filled dot, all on the same axes."""
    left, top, size, gap = 60, 34, 360, 50
    points = [point for arrows in panels.values() for arrow in arrows for point in (arrow.start, arrow.end)]
    ranges = [(min(values), max(values)) for values in zip(*points, strict=True)]
    parts = [_text(left, top + size + 36, x_label, "start"), _text(left, 14, y_label, "start")]
    for column, (title, arrows) in enumerate(panels.items()):
        origin = left + column * (size + gap)

        def at(point: tuple[float, float], origin: float = origin) -> tuple[float, float]:
            shares = [(v - low) / (high - low) for v, (low, high) in zip(point, ranges, strict=True)]
            return origin + shares[0] * (size - 60), top + (1 - shares[1]) * size

        parts.append(_text(origin + size / 2, 14, title, "middle", bold=True, color=BLUE))
        (low_x, high_x), (low_y, high_y) = ranges
        x0, base = at((0.0, 0.0))[0], top + size + 16
        parts.append(_line(*at((low_x, 0.0)), *at((high_x, 0.0)), GREY, 0.5))
        parts.append(_line(x0, top, x0, top + size, GREY, 0.5))
        parts += [_text(at((low_x, 0.0))[0], base, f"{low_x:+.2f}", "start"), _text(x0, base, "0", "middle")]
        for v in (low_y, 0.0, high_y):
            parts.append(_text(origin - 6, at((0.0, v))[1] + 4, f"{v:+.2f}" if v else "0", "end"))
        for arrow in arrows:
            start, end = at(arrow.start), at(arrow.end)
            parts += [_line(*start, *end, BLUE, 1), _ring(*start, GREY), _dot(*end, BLUE)]
            parts.append(_text(end[0] + 6, end[1] + 4, arrow.label, "start"))
    return _drawing(parts, top + size + 46)


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, color: str | None = None) -> str:
    weight = (' font-weight="bold"' if bold else "") + (f' fill="{color}"' if color else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _dot(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}" fill-opacity="0.75"/>'


def _ring(x: float, y: float, color: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="none" stroke="{color}"/>'


def _line(x0: float, y0: float, x1: float, y1: float, color: str, width: float) -> str:
    ends = f'x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"/>'


def _drawing(parts: list[str], height: float) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" '
        f'font-size="12" fill="{GREY}">\n{inside}\n</svg>\n'
    )
