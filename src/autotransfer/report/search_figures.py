"""What was tried in stage one, and how the candidates of stage two did on validation."""

from __future__ import annotations

import math

import pandas as pd

from ..settings import METHODS, MODES
from . import plot
from .comparison import validation_table
from .escaping import plot_text
from .outcomes import (
    Scores,
    chance,
    chosen_name,
    numbers,
    records,
    scores_on_validation,
    shortlist,
    tried_everywhere,
    tried_once,
)
from .plot import ACCENT, GREY, INK, MUTED, Figure, Json
from .summary import Summary
from .wording import METHOD_NAMES, score, setting_words

MOST_TICKS = 9
RULE = "The highest lower quartile (diamond) is chosen, because a mean can be carried by a few easy subjects"
# after windows were prepared
CAREFUL_RULE = (
    "The plain network is chosen, unless others have a mean (cross) above its own by more than two standard errors; "
    "then the highest lower quartile (diamond) among these and itself"
)
WHOSE = "subjects whose own nested choice prepares windows, or trains, in another way"


def tried(summary: Summary) -> Figure | None:
    """Validation score of every setting of stage one: a panel per mode, strength along it."""
    table = tried_once(summary.results)
    censored = table[(table["method"] != "none") & (table["strength"] > 0)]
    if censored.empty:
        return None
    listed = shortlist(summary)
    modes = [mode for mode in dict.fromkeys([*MODES, *censored["mode"]]) if mode in set(censored["mode"])]
    plain = table["setting"] == "baseline"  # where others are uncensored too, the plain network alone
    uncensored = table[plain if plain.any() else table["method"] == "none"]["validation_score"]
    baseline = float(uncensored.mean()) if len(uncensored) else None
    along = _strength_axis(censored["strength"].tolist())
    parts: list[Json] = []
    for panel, mode in enumerate(modes):
        parts.append(plot.axes(along, plot.score_axis("" if panel else "validation score"), panel))
        parts.append(plot.level(baseline, panel=panel))
        parts.append({"annotations": [plot.panel_title(f"<b>{plot_text(mode)}</b>", panel)]})
    return Figure(
        key="tried",
        title="Settings tried in stage one",
        caption="Each mark is one setting, trained once on the same split; a ring marks those that went on to stage "
        "two, at most three of each method. Methods are moved apart a little sideways.",
        data=_all_marks(censored, modes, listed) + _legend_only(baseline is not None),
        layout=plot.stacked(*parts),
        columns=("setting", "method", "mode", "strength", "validation_score", "shortlisted"),
        rows=[
            [r["setting"], r["method"], r["mode"], r["strength"], r["validation_score"], r["setting"] in listed]
            for r in records(table)
        ],
        panels=len(modes),
        height=300,
    )


def _all_marks(censored: pd.DataFrame, modes: list[str], listed: set[str]) -> list[Json]:
    """One trace per mode and method, and one more for its name in the legend, which hides it in every panel."""
    traces: list[Json] = []
    for method in dict.fromkeys([*METHODS, *censored["method"]]):
        own = censored[censored["method"] == method]
        if len(own):
            label = plot_text(METHOD_NAMES.get(method, method))
            look = {"fill": plot.colour(method), "symbol": plot.mark(method)}
            traces.append({**plot.points([None], [None], label, **look), "legendgroup": method})
        for panel, mode in enumerate(modes):
            rows = own[own["mode"] == mode]
            if len(rows):
                shared = {"legendgroup": method, "showlegend": False, **plot.on_panel(panel)}
                traces.append(_marks(rows, method, listed) | shared)
    return traces


def _marks(rows: pd.DataFrame, method: str, listed: set[str]) -> Json:
    """The shortlisted last, on top of the others; those of equal strength are spread so that they can be told apart."""
    rows = rows.assign(on=rows["setting"].isin(listed)).sort_values("on", kind="stable")
    crowd = len(rows) / rows["strength"].nunique()
    aside = 0.05 * (METHODS.index(method) - 2 if method in METHODS else 3)
    spread = min(0.2, 0.015 * crowd) if crowd > 1 else 0.0
    moved = [aside + spread * ((0.618 * i) % 1 - 0.5) for i in range(len(rows))]
    on = rows["on"].tolist()
    size = 8 if crowd < 4 else 6
    look = {
        "size": [size + 3 if flag else size for flag in on],
        "opacity": [1 if flag else 0.6 for flag in on],
        "line": {"color": INK, "width": [2 if flag else 0 for flag in on]},
    }
    return plot.points(
        [float(strength) * 10**shift for strength, shift in zip(rows["strength"], moved, strict=True)],
        rows["validation_score"].tolist(),
        plot_text(METHOD_NAMES.get(method, method)),
        fill=plot.colour(method),
        symbol=plot.mark(method),
        text=[f"{plot_text(setting_words(r), 80)}<br>{score(r['validation_score'])}" for r in records(rows)],
        marker=look,
    )


def _strength_axis(strengths: list[float]) -> Json:
    """Logarithmic and the same in every panel; a grid's own values are its ticks."""
    values = sorted(set(strengths))
    ends = [math.log10(values[0]) - 0.35, math.log10(values[-1]) + 0.35]
    axis = plot.plain_axis("strength λ", type="log", range=ends)
    if len(values) > MOST_TICKS:
        return axis | {"dtick": 1}
    return axis | {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:g}" for value in values]}


def _legend_only(baseline: bool) -> list[Json]:
    """What a ring and the dashed line mean."""
    ring = {"size": 11, "line": {"color": INK, "width": 2}}
    items = [plot.points([None], [None], "on the shortlist", fill="rgba(0,0,0,0)", marker=ring, text=[""])]
    if baseline:
        items.append(plot.line([None], [None], "baseline", stroke=MUTED, width=1, line={"dash": "dash"}))
    return items


def candidates(summary: Summary) -> Figure | None:
    """Stage two: lower quartile and mean of each candidate's validation scores, the best first."""
    every = validation_table(summary)
    among = numbers((summary.choice or {}).get("validation_q25")) or set(every.index)
    table = every[every.index.isin(among)]
    if table.empty:
        return None
    left_out = len(every) - len(table)
    rule = CAREFUL_RULE if (summary.choice or {}).get("lead") else RULE
    once = tried_everywhere(summary.results).drop_duplicates("setting")
    words = {str(r["setting"]): setting_words(r) for r in records(once)}
    chosen = chosen_name(summary)
    names = [str(name) for name in table.index]
    q25, mean = table["q25"].tolist(), table["mean"].tolist()
    down = plot.bare_axis(frame=False) | {"range": [len(names) - 0.5, -0.9]}
    layout = plot.stacked(
        plot.axes(plot.score_axis("balanced accuracy on validation subjects"), down),
        plot.upright(chance(summary)),
        {"annotations": [_over(words[n], i, n == chosen) for i, n in enumerate(names)], "margin": {"l": 8}},
    )
    return Figure(
        key="candidates",
        title="How the choice was made",
        caption=f"Validation score of each candidate on every subject. {rule}; the dashed line is chance."
        + (f" {left_out} more were trained for {WHOSE}." if left_out else ""),
        data=[
            _subjects(scores_on_validation(summary.results), names, words),
            _summaries(mean, [words[n] for n in names], "mean", INK, "x-thin"),
            _summaries(q25, [words[n] for n in names], "lower quartile", ACCENT, "diamond"),
        ],
        layout=layout,
        columns=("setting", "validation_q25", "validation_mean", "chosen"),
        rows=[[n, q, m, n == chosen] for n, q, m in zip(names, q25, mean, strict=True)],
        height=42 * len(names) + 30,
    )


def _subjects(scores: Scores, names: list[str], words: dict[str, str]) -> Json:
    rows = [(i, name, subject, v) for i, name in enumerate(names) for subject, v in scores[name].items()]
    texts = [f"{plot_text(words[n], 80)}<br>subject {plot_text(s)}: {score(v)}" for _, n, s, v in rows]
    look = {"opacity": 0.6, "line": {"color": GREY, "width": 1.5}}
    x, y = [v for *_, v in rows], [i for i, *_ in rows]
    return plot.points(x, y, "one subject", fill=GREY, symbol="line-ns", text=texts, marker=look)


def _summaries(values: list[float], words: list[str], label: str, fill: str, symbol: str) -> Json:
    texts = [f"{plot_text(w, 80)}<br>{label}: {score(v)}" for w, v in zip(words, values, strict=True)]
    look = {"size": 12, "line": {"color": fill, "width": 2}}
    return plot.points(values, list(range(len(values))), label, fill=fill, symbol=symbol, text=texts, marker=look)


def _over(words: str, position: int, chosen: bool) -> Json:
    """The name of a row over its marks: beside them it would leave a phone no room for the scores."""
    text = f"<b>{plot_text(words, 60)} · chosen</b>" if chosen else plot_text(words, 60)
    fill = ACCENT if chosen else MUTED
    return plot.note(text, x=0, y=position, fill=fill, yshift=15, bgcolor=plot.BACKGROUND, borderpad=1)
