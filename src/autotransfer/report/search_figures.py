"""What was tried in stage one, and how the candidates of stage two did on validation."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from ..settings import METHODS, MODES
from .comparison import chance, succeeded, validation_table
from .escaping import plain, plot_text
from .plot import (
    ACCENT,
    BACKGROUND,
    GREY,
    INK,
    MUTED,
    Figure,
    Json,
    axis_name,
    bare_axis,
    colour,
    level_line,
    mark,
    on_panel,
    panel_title,
    plain_axis,
    points,
    score_axis,
    stacked,
)
from .summary import Summary
from .wording import METHOD_NAMES, score, setting_words


MOST_TICKS = 9


def shortlist(summary: Summary) -> set[str]:
    """Names of the settings that went on to stage two."""
    given = (summary.choice or {}).get("shortlist")
    return {plain(name) for name in given} if given else set(succeeded(summary.results, "folds")["setting"])


def tried(summary: Summary) -> Figure | None:
    """Validation score of every setting of stage one: a panel per mode, strength along it."""
    table = succeeded(summary.results, "search").dropna(subset=["validation_score"])
    censored = table[(table["method"] != "none") & (table["strength"] > 0)]
    if censored.empty:
        return None
    listed = shortlist(summary)
    modes = [mode for mode in (*MODES, *sorted(set(censored["mode"]) - set(MODES))) if mode in set(censored["mode"])]
    plain_score = table[table["method"] == "none"]["validation_score"].mean()
    baseline = None if pd.isna(plain_score) else float(plain_score)
    along = strength_axis(censored["strength"].tolist())
    data: list[Json] = []
    parts: list[Json] = []
    seen: set[str] = set()
    for panel, mode in enumerate(modes):
        here = censored[censored["mode"] == mode]
        for method in dict.fromkeys([*METHODS, *here["method"]]):
            rows = here[here["method"] == method]
            if len(rows):
                data.append({**_settings(rows, method, listed), **on_panel(panel), "showlegend": method not in seen})
                seen.add(method)
        parts += [
            {axis_name("x", panel): along, axis_name("y", panel): score_axis("" if panel else "validation score")},
            level_line(baseline, "", horizontal=True, panel=panel),
            {"annotations": [panel_title(plot_text(mode), panel)]},
        ]
    data += _legend_only(baseline is not None)
    return Figure(
        key="tried",
        title="Settings tried in stage one",
        caption="Each mark is one setting, trained once on the same split; a ring marks those that went on to stage "
        "two, the best three of each method. Marks of different methods are moved apart a little sideways.",
        data=data,
        layout=stacked(*parts),
        columns=("setting", "method", "mode", "strength", "validation_score", "shortlisted"),
        rows=[[r["setting"], r["method"], r["mode"], r["strength"], r["validation_score"], r["setting"] in listed]
              for _, r in table.iterrows()],
        panels=len(modes),
        height=300,
    )  # fmt: skip


def strength_axis(strengths: list[float]) -> Json:
    """Logarithmic and the same in every panel; a grid's own values are its ticks."""
    values = sorted(set(strengths))
    ends = [math.log10(values[0]) - 0.35, math.log10(values[-1]) + 0.35]
    if len(values) > MOST_TICKS:
        return plain_axis("strength λ", type="log", dtick=1, range=ends)
    return plain_axis("strength λ", type="log", range=ends, tickmode="array", tickvals=values,
                      ticktext=[f"{value:g}" for value in values])  # fmt: skip


def _legend_only(baseline: bool) -> list[Json]:
    """What a ring and the dashed line mean."""
    ring = {"size": 11, "line": {"color": INK, "width": 2}}
    items = [points([None], [None], "on the shortlist", fill="rgba(0,0,0,0)", marker=ring, text=[""])]
    if baseline:
        items.append({"type": "scatter", "mode": "lines", "x": [None], "y": [None], "name": "baseline",
                      "line": {"color": MUTED, "width": 1, "dash": "dash"}})  # fmt: skip
    return items


def _settings(rows: pd.DataFrame, method: str, listed: set[str]) -> Json:
    on = [name in listed for name in rows["setting"]]
    place = METHODS.index(method) - 2 if method in METHODS else 3
    texts = [f"{plot_text(setting_words(r), 80)}<br>{score(r['validation_score'])}" for _, r in _records(rows)]
    return points(
        [float(s) * 10 ** (0.05 * place) for s in rows["strength"]],
        [float(v) for v in rows["validation_score"]],
        plot_text(METHOD_NAMES.get(method, method)),
        fill=colour(method),
        symbol=mark(method),
        text=texts,
        marker={
            "size": [11 if flag else 8 for flag in on],
            "opacity": [1 if flag else 0.55 for flag in on],
            "line": {"color": INK, "width": [2 if flag else 0 for flag in on]},
        },
    )


def _records(rows: pd.DataFrame) -> list[tuple[int, dict[str, Any]]]:
    return list(enumerate({str(k): v for k, v in record.items()} for record in rows.to_dict("records")))


def candidates(summary: Summary) -> Figure | None:
    """Stage two: lower quartile and mean of each candidate's validation scores, the best first."""
    table = validation_table(summary)
    folds = succeeded(summary.results, "folds").dropna(subset=["validation_score"])
    if table.empty:
        return None
    words = {str(r["setting"]): setting_words(r) for _, r in _records(folds.drop_duplicates("setting"))}
    chosen = plain(((summary.choice or {}).get("chosen") or {}).get("name"))
    names = [str(name) for name in table.index]
    every = {name: folds[folds["setting"] == name]["validation_score"].tolist() for name in names}
    rows = [(i, name, value) for i, name in enumerate(names) for value in every[name]]
    faint = points(
        [v for *_, v in rows], [i for i, *_ in rows], "one fold", fill=GREY, symbol="line-ns",
        text=[f"{plot_text(words[n], 80)}<br>one fold: {score(v)}" for _, n, v in rows],
        marker={"size": 9, "opacity": 0.6, "line": {"color": GREY, "width": 1.5}},
    )  # fmt: skip
    data = [faint]
    for column, label, fill, symbol in (("mean", "mean", INK, "x-thin"), ("q25", "lower quartile", ACCENT, "diamond")):
        texts = [f"{plot_text(words[n], 80)}<br>{label}: {score(v)}" for n, v in table[column].items()]
        data.append(points([float(v) for v in table[column]], list(range(len(names))), label, fill=fill, symbol=symbol,
                           text=texts, marker={"size": 12, "line": {"color": fill, "width": 2}}))  # fmt: skip
    notes = [_above(words[name], i, chosen=name == chosen) for i, name in enumerate(names)]
    layout = stacked(
        level_line(chance(summary), "", horizontal=False),
        {"annotations": notes, "xaxis": score_axis("balanced accuracy on the validation subject")},
        {"yaxis": {**bare_axis(), "showline": False, "range": [len(names) - 0.5, -0.9]}, "margin": {"l": 8}},
    )
    return Figure(
        key="candidates",
        title="How the choice was made",
        caption="Every fold's validation score of each candidate; the highest lower quartile (diamond) is chosen, "
        "because a mean can be carried by a few easy subjects.",
        data=data,
        layout=layout,
        columns=("setting", "validation_q25", "validation_mean", "chosen"),
        rows=[[n, float(r["q25"]), float(r["mean"]), n == chosen] for n, (_, r) in zip(names, table.iterrows(), strict=True)],
        height=42 * len(names) + 30,
    )  # fmt: skip


def _above(words: str, position: int, *, chosen: bool) -> Json:
    """The name of a row over its marks: beside them it would leave a phone no room for the scores."""
    text = plot_text(words, 60)
    return {
        "text": f"<b>{text} · chosen</b>" if chosen else text, "showarrow": False, "xref": "x domain", "x": 0,
        "yref": "y", "y": position, "yshift": 15, "xanchor": "left", "font": {"size": 12, "color": ACCENT if chosen else MUTED},
        "bgcolor": BACKGROUND, "borderpad": 1,
    }  # fmt: skip
