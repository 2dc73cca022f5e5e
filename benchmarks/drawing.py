"""Figures as plain SVG: no package needed, the same file every time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from autotransfer.report.statistics import Paired, spread

ROW, LEFT, WIDTH, FOOT = 22, 300, 860, 46  # pixels
BLUE, ORANGE, GREY, PALE = "#0a5ea8", "#c2410c", "#475569", "#cbd5e1"


def figure(folder: Path, name: str, drawing: str, alt: str) -> str:
    """The line of a page that shows a drawing, which is written beside the CSVs."""
    (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
    return f"![{alt}]({folder.name}/{name}.svg)\n"


def forest(rows: Sequence[tuple[str, Paired]], label: str) -> str:
    """A row per comparison: each subject a dot, the mean a bar, its 95 % interval a line, coloured off zero."""
    values = [v for _, pair in rows for v in (*pair.differences.values(), *(pair.interval or ()))]
    reach = 1.05 * float(max(0.02, *(abs(v) for v in values)))

    def x(value: float) -> float:
        return LEFT + (value + reach) / (2 * reach) * (WIDTH - LEFT - 20)

    parts = []
    for place, (name, pair) in enumerate(rows):
        y = ROW * (place + 1)
        low, high = pair.interval or (pair.mean, pair.mean)
        colour = BLUE if low > 0 else ORANGE if high < 0 else GREY
        parts += [_text(LEFT - 10, y + 4, name, "end")]
        parts += [_dot(x(v), y, PALE) for v in pair.differences.values()]
        parts += [_line(x(low), y, x(high), y, colour, 2), _line(x(pair.mean), y - 6, x(pair.mean), y + 6, colour, 3)]
    height = ROW * (len(rows) + 1)
    parts += [_line(x(0), ROW / 2, x(0), height - ROW / 2, GREY, 1)]
    return _drawing(parts + _axis(x, -reach, reach, height, label), height + FOOT)


def strips(panels: Mapping[str, Sequence[tuple[str, Sequence[float]]]], label: str) -> str:
    """A block per data set, a row per pipeline: each subject a dot, the mean a bar, the lower quartile a short one."""

    def x(value: float) -> float:
        return LEFT + value * (WIDTH - LEFT - 20)

    parts, y = [], 0
    for dataset, rows in panels.items():
        y += ROW
        parts.append(_text(LEFT, y + 4, dataset, "start", bold=True))
        for name, scores in rows:
            y += ROW
            people = spread(scores)
            quartile, mean = people.lower_quartile, people.mean
            parts += [_text(LEFT - 10, y + 4, name, "end"), *(_dot(x(v), y, PALE) for v in scores)]
            parts += [_line(x(quartile), y - 4, x(quartile), y + 4, ORANGE, 2.5)]
            parts += [_line(x(mean), y - 7, x(mean), y + 7, BLUE, 3)]
    y += ROW
    return _drawing(parts + _axis(x, 0.0, 1.0, y, label), y + FOOT)


def curves(places: Sequence[float], lines: Mapping[str, Sequence[float]], across: str, up: str) -> str:
    """A line for each name over the same places, which stand at equal distances; named at its right end."""
    height, top, right = 300, 20, WIDTH - 160
    values = [value for line in lines.values() for value in line]
    low, high = min(values) - 0.02, max(values) + 0.02

    def x(place: int) -> float:
        return 80 + place / max(len(places) - 1, 1) * (right - 80)

    def y(value: float) -> float:
        return top + (high - value) / (high - low) * (height - top)

    parts = [_text(x(k), height + 18, f"{place:g}", "middle") for k, place in enumerate(places)]
    step = next(s for s in (0.02, 0.05, 0.1, 0.2) if (high - low) / s <= 8)
    ticks = [step * k for k in range(1, round(1 / step) + 1) if low <= step * k <= high]
    parts += [_text(72, y(tick) + 4, f"{tick:.2f}", "end") for tick in ticks]
    parts += [_line(80, y(tick), right, y(tick), PALE, 0.5) for tick in ticks]
    for colour, (name, line) in zip((BLUE, GREY, ORANGE), lines.items(), strict=False):
        points = [(x(k), y(value)) for k, value in enumerate(line)]
        parts += [_line(*a, *b, colour, 2.5) for a, b in pairwise(points)] + [_dot(*point, colour) for point in points]
        parts.append(_text(right + 10, points[-1][1] + 4, name, "start", bold=True))
    parts += [_text((80 + right) / 2, height + 38, across, "middle"), _text(80, 12, up, "start")]
    return _drawing(parts, height + FOOT)


def arrows(
    panels: Mapping[str, Sequence[tuple[str, tuple[float, float], tuple[float, float]]]], across: str, up: str
) -> str:
    """Side by side, with the same axes: each name an open dot, a filled one (both x, y) and the line between them. A
    number stands at the filled dot, the names below."""
    every = [point for rows in panels.values() for _, *ends in rows for point in (*ends, (0.0, 0.0))]
    (left, low), (far, high) = (tuple(f(v[k] for v in every) for k in (0, 1)) for f in (min, max))
    low, high, left, far = low - 0.004, high + 0.004, left - 0.02, far + 0.02
    top, height, gap = 40, 330, 60
    wide = (WIDTH - 90 - gap * (len(panels) - 1)) / len(panels)
    parts = [_text(20, 14, up, "start")]
    names = [name for name, *_ in next(iter(panels.values()))]
    for place, (panel, rows) in enumerate(panels.items()):
        start = 70 + place * (wide + gap)

        def x(value: float, start: float = start) -> float:
            return start + (value - left) / (far - left) * wide

        def y(value: float) -> float:
            return top + (high - value) / (high - low) * (height - top)

        parts += [_text(start, 32, panel, "start", bold=True), _line(x(left), y(0), x(far), y(0), GREY, 1)]
        parts += [_line(x(0), y(high), x(0), y(low), GREY, 1)]
        step = next(s for s in (0.01, 0.02, 0.05) if (high - low) / s <= 8)
        for k in range(math.ceil(low / step), math.floor(high / step) + 1):
            parts.append(_text(start - 6, y(k * step) + 4, f"{k * step:.2f}".replace("-", "−"), "end"))
        for name, shuffled, true in rows:
            parts += [_line(x(shuffled[0]), y(shuffled[1]), x(true[0]), y(true[1]), PALE, 1.5)]
            parts += [_ring(x(shuffled[0]), y(shuffled[1]), GREY), _dot(x(true[0]), y(true[1]), BLUE)]
            parts += [_text(x(true[0]) - 6, y(true[1]) - 6, str(names.index(name) + 1), "end", bold=True)]
        parts += _axis(x, left, far, height, across)
    key = [f"{k} {name}" for k, name in enumerate(names, 1)]
    for row, first in enumerate(range(0, len(key), 5)):
        parts.append(_text(70, height + 62 + 18 * row, ",   ".join(key[first : first + 5]), "start"))
    return _drawing(parts, height + 62 + 18 * math.ceil(len(key) / 5))


# Legible on light and on dark pages alike: this picture has no background.
MIDDLE, SEA, EMBER = "#6e7781", "#2f7fd1", "#d9622b"


@dataclass(frozen=True)
class Gain:
    """A panel of `gained`: by data set, a score before and after, and perhaps a third for comparison."""

    title: str
    ends: tuple[str, str]  # what before and after are
    before: Mapping[str, float]
    after: Mapping[str, float]
    notes: Sequence[str]  # below, one for each of what `gained` calls them; the first in bold
    third: tuple[str, Mapping[str, float]] | None = None


def gained(panels: Sequence[Gain], names: Mapping[str, str], notes: Sequence[str], head: str) -> str:
    """Side by side, a row for each data set: an open dot before, a filled one after, a bar for the third. names: data
    set -> what its row is called; notes: what the numbers below are."""
    left, gap, top, row = 178, 18, 88, 22
    wide = (WIDTH - left - 12 - gap * (len(panels) - 1)) / len(panels)
    drawn = [
        scores for panel in panels for scores in (panel.before, panel.after, panel.third[1] if panel.third else {})
    ]
    values = [value for scores in drawn for value in scores.values()]
    low, high = math.floor(10 * min(values)) / 10, 1.0
    bottom = top + row * len(names) + 4
    parts = [_text(left, 18, head, "start", bold=True)]
    parts += [_text(left - 14, top + row * (k + 0.5) + 4, name, "end") for k, name in enumerate(names.values())]
    parts += [_text(left - 14, bottom + 40 + 17 * k, note, "end", bold=not k) for k, note in enumerate(notes)]
    for place, panel in enumerate(panels):
        start = left + place * (wide + gap)

        def x(value: float, start: float = start) -> float:
            return start + (value - low) / (high - low) * wide

        parts += [_text(start, 42, panel.title, "start", bold=True, colour=SEA)]
        parts += [_ring(start + 5, 56, MIDDLE, "none"), _text(start + 14, 60, panel.ends[0], "start")]
        parts += [_dot(start + 5, 72, SEA), _text(start + 14, 76, panel.ends[1], "start")]
        for tick in (0.4, 0.6, 0.8, 1.0):
            parts += [_line(x(tick), top, x(tick), bottom, MIDDLE, 0.3)]
            parts += [_text(x(tick), bottom + 15, f"{tick:.1f}", "middle")]
        for k, dataset in enumerate(names):
            y, first, last = top + row * (k + 0.5), panel.before[dataset], panel.after[dataset]
            colour = SEA if last >= first else EMBER
            parts += [_line(x(first), y, x(last), y, colour, 3)]
            parts += [_ring(x(first), y, MIDDLE, "none"), _dot(x(last), y, colour)]
            if panel.third:
                other = panel.third[1][dataset]
                parts += [_line(x(other), y - 6, x(other), y + 6, EMBER, 2)]
        for k, note in enumerate(panel.notes):
            parts.append(_text(start, bottom + 40 + 17 * k, note, "start", bold=not k, colour=MIDDLE if k else SEA))
        if panel.third:
            y = bottom + 40 + 17 * len(panel.notes)
            parts += [_line(start + 4, y - 10, start + 4, y + 2, EMBER, 2)]
            parts += [_text(start + 12, y, panel.third[0], "start")]
    height = bottom + 40 + 17 * (1 + len(notes))
    return _drawing(parts, height, clear=True)


def _axis(x: Callable[[float], float], low: float, high: float, y: float, label: str) -> list[str]:
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s <= 12)
    ticks = [step * k for k in range(round(low / step), round(high / step) + 1) if low <= step * k <= high + 1e-9]
    marks = [_text(x(v), y + 16, f"{v:.2f}".replace("-", "−"), "middle") for v in ticks]
    lines = [_line(x(low), y, x(high), y, GREY, 1), *(_line(x(v), y, x(v), y + 4, GREY, 1) for v in ticks)]
    return [*lines, *marks, _text((x(low) + x(high)) / 2, y + 36, label, "middle")]


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False, colour: str | None = None) -> str:
    weight = (' font-weight="bold"' if bold else "") + (f' fill="{colour}"' if colour else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.75"/>'


def _ring(x: float, y: float, colour: str, inside: str = "white") -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{inside}" stroke="{colour}"/>'


def _line(x0: float, y0: float, x1: float, y1: float, colour: str, width: float) -> str:
    ends = f'x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _drawing(parts: list[str], height: float, *, clear: bool = False) -> str:
    """clear: without a background, in colours that both light and dark pages take."""
    inside = "\n".join(parts)
    ground = "" if clear else '<rect width="100%" height="100%" fill="white"/>\n'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="sans-serif" '
        f'font-size="12" fill="{MIDDLE if clear else "#0f172a"}">\n{ground}{inside}\n</svg>\n'
    )
