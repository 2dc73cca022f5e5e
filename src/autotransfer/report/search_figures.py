"""What was tried in stage one, and how the candidates of stage two did on validation."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import NamedTuple

import numpy as np

from ..censoring import CENSORS, MODES
from . import plot
from .comparison import Candidate, ranking
from .escaping import distinct_labels, plot_text
from .outcomes import Scores, finite_scores, has_stage_one, one_split_trainings, scores_on_validation, shortlist_names
from .plot import ACCENT, GREY, INK, MUTED, Figure, Json
from .result_words import NO_BETTER
from .summary import Summary
from .wording import method_label, score, setting_names

MOST_TICKS = 9
SAME = 1e-6  # means that differ by no more are the same, rounded
RULE = "The highest lower quartile (diamond) is chosen, because a mean can be carried by a few easy subjects."
AVERAGE_RULE = (
    "For the best single candidate, the mean over people (cross) decides, the lower quartile (diamond) breaks "
    "near-ties; what is delivered is an average of several."
)


class TriedSetting(NamedTuple):
    """A censored setting of stage one."""

    name: str
    method: str
    mode: str
    strength: float
    score: float  # on validation


def tried_settings(summary: Summary) -> Figure | None:
    """Validation score of every setting of stage one: a panel per mode, strength along it."""
    once = one_split_trainings(summary)
    censored = [
        TriedSetting(training.name, penalty.method, penalty.mode, penalty.strength, training.record.validation_score)
        for training in once
        if (penalty := training.setting.penalty) is not None
    ]
    if not censored:
        return None
    listed, used, staged = shortlist_names(summary), {setting.mode for setting in censored}, has_stage_one(summary)
    modes = [mode for mode in dict.fromkeys([*MODES, *sorted(used)]) if mode in used]
    plain = [training.record.validation_score for training in once if training.setting == summary.plain]
    baseline = float(np.mean(plain)) if plain else None
    along = _strength_axis([setting.strength for setting in censored])
    parts: list[Json] = []
    for panel, mode in enumerate(modes):
        title = "" if panel else "validation score"
        up = plot.score_axis(title, [*(setting.score for setting in censored), baseline])
        parts.append(plot.axes(along, up, panel))
        parts.append(plot.horizontal_line(baseline, panel=panel))
        parts.append({"annotations": [plot.panel_title(f"<b>{plot_text(mode)}</b>", panel)]})
    return Figure(
        key="tried",
        title="Settings tried in stage one" if staged else "Settings on one split",
        caption="Each mark is one setting, trained once on the same split"
        + ("; a ring marks those that went on to stage two, at most three of each method" if staged else "")
        + ". Methods are moved apart a little sideways.",
        data=_all_marks(censored, modes, listed if staged else set(), _labels(summary, 80))
        + _legend_only(rings=staged, baseline=baseline is not None),
        layout=plot.merge_layouts(*parts),
        columns=("setting", "method", "mode", "strength", "validation_score", "shortlisted"),
        rows=[
            [
                training.name, training.setting.method or "none", training.setting.mode or "none",
                training.setting.strength, training.record.validation_score, training.name in listed,
            ]
            for training in once
        ],
        panels=len(modes),
        height=300,
    )  # fmt: skip


def _all_marks(censored: list[TriedSetting], modes: list[str], listed: set[str], words: dict[str, str]) -> list[Json]:
    """One trace per mode and method, and one more for its name in the legend, which hides it in every panel."""
    traces: list[Json] = []
    used = {setting.method for setting in censored}
    shown = [method for method in dict.fromkeys([*CENSORS, *sorted(used)]) if method in used]
    apart = min(0.05, 0.2 / max(len(shown) - 1, 1))  # in decades: however many there are, strengths stay apart
    for place, method in enumerate(shown):
        of_method = [setting for setting in censored if setting.method == method]
        label = plot_text(method_label(method))
        fill, symbol = plot.colour_and_mark(method)
        traces.append(plot.points([None], [None], label, fill=fill, symbol=symbol, legendgroup=method))
        for panel, mode in enumerate(modes):
            # the shortlisted last, on top of the others
            rows = [setting for setting in of_method if setting.mode == mode]
            rows.sort(key=lambda setting: setting.name in listed)
            if rows:
                ringed = [setting.name in listed for setting in rows]
                x, y, look = _marks(rows, apart * (place - (len(shown) - 1) / 2), ringed)
                texts = [f"{words[setting.name]}<br>{score(setting.score)}" for setting in rows]
                trace = plot.points(x, y, label, fill=fill, symbol=symbol, text=texts, marker=look)
                traces.append(trace | {"legendgroup": method, "showlegend": False, **plot.on_panel(panel)})
    return traces


def _marks(rows: list[TriedSetting], aside: float, on: list[bool]) -> tuple[list[float], list[float], Json]:
    """Positions and look; settings of equal strength are spread sideways so that none hides another."""
    crowd = len(rows) / len({setting.strength for setting in rows})
    spread = min(0.2, 0.015 * crowd) if crowd > 1 else 0.0
    size = 8 if crowd < 4 else 6
    look = {
        "size": [size + 3 if flag else size for flag in on],
        "opacity": [1 if flag else 0.6 for flag in on],
        "line": {"color": INK, "width": [2 if flag else 0 for flag in on]},
    }
    x = [setting.strength * 10 ** (aside + spread * ((0.618 * i) % 1 - 0.5)) for i, setting in enumerate(rows)]
    return x, [setting.score for setting in rows], look


def _strength_axis(strengths: list[float]) -> Json:
    """Logarithmic and the same in every panel; a grid's own values are its ticks."""
    values = sorted(set(strengths))
    ends = [math.log10(values[0]) - 0.35, math.log10(values[-1]) + 0.35]
    axis = plot.plain_axis("strength λ", type="log", range=ends)
    if len(values) > MOST_TICKS:
        return axis | {"dtick": 1}
    return axis | {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:g}" for value in values]}


def _legend_only(*, rings: bool, baseline: bool) -> list[Json]:
    """What a ring and the dashed line mean."""
    items = []
    if rings:
        ring = {"size": 11, "line": {"color": INK, "width": 2}}
        items.append(plot.points([None], [None], "on the shortlist", fill="rgba(0,0,0,0)", marker=ring, text=[""]))
    if baseline:
        items.append(plot.line([None], [None], "baseline", stroke=MUTED, width=1, line={"dash": "dash"}))
    return items


def _labels(summary: Summary, length: int) -> dict[str, str]:
    """Settings by name, as plotly may draw them."""
    validated = [] if summary.choice is None else [*summary.choice.validation_mean]
    words = {name: name for name in validated} | setting_names(summary)
    cut = distinct_labels(words.values(), length)
    return {name: cut[full] for name, full in words.items()}


def candidates(summary: Summary) -> Figure | None:
    """Stage two: lower quartile and mean of each candidate's validation scores, the best first."""
    ranked = _validated(summary)
    if not ranked:
        return None
    words, long = _labels(summary, 60), _labels(summary, 80)
    names, _, q25, mean = (list(column) for column in zip(*map(astuple, ranked), strict=True))
    people = _rested_on(summary, ranked)
    rule = "" if summary.choice is None else f" {RULE if summary.average is None else AVERAGE_RULE}"
    if summary.choice is not None and summary.choice.baseline_won:
        rule += f" {NO_BETTER}."
    best = summary.role_names["chosen"].lower()
    titles = [plot.row_title(words[n], i) for i, n in enumerate(names)]
    for place in (i for i, n in enumerate(names) if n == summary.chosen):
        titles[place] = plot.row_title(f"<b>{words[names[place]]} · {best}</b>", place, fill=ACCENT)
    down = plot.bare_axis(frame=False) | {"range": [len(names) - 0.5, -0.9]}
    single = (value for scores in people.values() for value in scores.values())
    across = plot.score_axis("balanced accuracy on validation subjects", [*q25, *mean, *single], summary.data.chance)
    notes = {"annotations": titles, "margin": {"l": 8}}
    return Figure(
        key="candidates",
        title="How the choice was made",
        caption=f"Validation score of each candidate{' on every subject' if people else ''}.{rule} The dashed line is "
        "chance.",
        data=[
            *([_subjects(people, names, long)] if people else []),
            _summaries(mean, [long[n] for n in names], "mean", INK, "x-thin"),
            _summaries(q25, [long[n] for n in names], "lower quartile", ACCENT, "diamond"),
        ],
        layout=plot.merge_layouts(plot.axes(across, down), plot.vertical_line(summary.data.chance), notes),
        columns=("setting", "validation_q25", "validation_mean", "chosen"),
        rows=[[n, q, m, n == summary.chosen] for n, q, m in zip(names, q25, mean, strict=True)],
        height=46 * len(names) + 30,
    )


def _validated(summary: Summary) -> list[Candidate]:
    """The candidates of the choice, the best first. Of an average, some were never trained by themselves."""
    every, choice = ranking(summary), summary.choice
    if choice is None or choice.average is None:
        return [candidate for candidate in every if choice is None or candidate.name in choice.validation_q25]
    q25, mean = finite_scores(choice.validation_q25), finite_scores(choice.validation_mean)
    known = summary.settings | choice.settings
    methods = {name: known[name].method if name in known else None for name in mean}
    listed = [Candidate(name, methods[name] or "none", q25[name], mean[name]) for name in mean if name in q25]
    return sorted(listed, key=lambda candidate: (-candidate.mean, -candidate.q25))


def _rested_on(summary: Summary, ranked: list[Candidate]) -> Scores:
    """Scores by subject, for candidates whose trainings agree with the mean in the choice."""
    scores = scores_on_validation(summary)
    means = {name: float(np.mean(list(by_person.values()))) for name, by_person in scores.items()}
    stated = {candidate.name: candidate.mean for candidate in ranked}
    return {name: scores[name] for name, mean in stated.items() if abs(means.get(name, math.inf) - mean) < SAME}


def _subjects(scores: Scores, names: list[str], words: dict[str, str]) -> Json:
    rows = [(i, name, subject, v) for i, name in enumerate(names) for subject, v in scores.get(name, {}).items()]
    texts = [f"{words[n]}<br>subject {plot_text(s)}: {score(v)}" for _, n, s, v in rows]
    look = {"opacity": 0.6, "line": {"color": GREY, "width": 1.5}}
    x, y = [v for *_, v in rows], [i for i, *_ in rows]
    return plot.points(x, y, "one subject", fill=GREY, symbol="line-ns", text=texts, marker=look)


def _summaries(values: list[float], words: list[str], label: str, fill: str, symbol: str) -> Json:
    texts = [f"{w}<br>{label}: {score(v)}" for w, v in zip(words, values, strict=True)]
    look = {"size": 12, "line": {"color": fill, "width": 2}}
    return plot.points(values, list(range(len(values))), label, fill=fill, symbol=symbol, text=texts, marker=look)
