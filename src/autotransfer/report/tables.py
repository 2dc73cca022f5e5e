"""The numbers of the page as tables. Every cell is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from ..settings import LATER, PREPARED
from .comparison import Contender, find, subject_order, validation_table
from .escaping import Html, joined, plain, tag
from .outcomes import chosen_name, records, scores_on_test, shortlist, tried_once
from .statistics import holm, paired, spread
from .summary import Summary
from .wording import duration, interval, probability, score, setting_words, signed, significance

MOST_FAILURES = 50


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: int, less: str = ""
) -> Html:
    """A table whose columns from `numeric` on are numbers; `less` lists the columns that a phone leaves out."""
    hidden = less.split()

    def cell(kind: str, position: int, content: object) -> Html:
        names = ["n"] if position >= numeric else []
        names += ["less"] if str(position) in hidden else []
        head = kind == "th" or position == 0
        scope = None if not head else "col" if kind == "th" else "row"
        return tag("th" if head else "td", content, class_=" ".join(names) or None, scope=scope)

    top = tag("tr", *(cell("th", i, head) for i, head in enumerate(heads)))
    body = joined(*(tag("tr", *(cell("td", i, value) for i, value in enumerate(row))) for row in rows))
    inside = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", body))
    return tag("div", inside, class_="table", tabindex="0", role="region", aria_label=caption)


def folded(summary_line: str, *content: Html, opened: bool = False) -> Html:
    return tag("details", tag("summary", summary_line), *content, open=opened)


def estimates(rows: list[Contender]) -> Html | None:
    """Baseline, AutoTransfer in its estimates and every method, each against the baseline."""
    base = find(rows, "none")
    if base is None:
        return None
    pairs = {row.key: paired(row.scores, base.scores) for row in rows if row.key != "none"}
    methods = {row.key: pair.p for row in rows if not row.is_autotransfer and (pair := pairs.get(row.key))}
    corrected = holm(methods)
    lines = []
    for row in sorted(rows, key=lambda row: (row.key != "none", not row.is_autotransfer, row.key == "published")):
        described = spread(list(row.scores.values()))
        own = [row.label, score(described.mean), score(described.lower_quartile), score(described.minimum)]
        pair = pairs.get(row.key)
        if pair is None:
            lines.append([*own, "–", "–", "–", "–"])
        else:
            p = corrected.get(row.key, pair.p)
            against = f"{pair.wins} / {pair.ties} / {pair.losses}"
            lines.append([*own, signed(pair.mean), interval(pair), against, probability(p)])
    heads = ("", "mean", "lower quartile", "worst subject", "difference", "95 % interval", "gain / tie / loss", "p")
    caption = (
        "Test scores and their difference to the baseline. p: Wilcoxon signed-rank test, for the methods corrected "
        "for their number after Holm"
    )
    shown = table(caption, heads, lines, numeric=1, less="2 3 6 7")
    gains = {key: pair.mean for key, pair in pairs.items() if pair is not None}
    return joined(shown, tag("p", significance(corrected, gains), class_="caption") if corrected else None)


def subjects(summary: Summary, rows: list[Contender]) -> Html | None:
    """Score of every subject, and which setting the nested choice took for it."""
    shown = [row for row in (find(rows, key) for key in ("none", "published", "nested", "nested_full")) if row]
    order = subject_order(shown)
    if not order or len(shown) < 2:
        return None
    choice = summary.choice or {}
    picks = choice.get("nested_full_choices") or choice.get("nested_choices") or {}
    picked = {plain(key): plain(value) for key, value in picks.items()}
    names = setting_names(summary)
    lines = [
        [s, names.get(picked.get(s, ""), picked.get(s, "–")), *(score(row.scores.get(s)) for row in shown)]
        for s in order
    ]
    heads = ("subject", "chosen without it", *(row.label.replace("AutoTransfer, ", "") for row in shown))
    return folded(
        "Score of every subject and the setting chosen for it",
        table("Test score by subject", heads, lines, numeric=2, less="1"),
    )


def setting_names(summary: Summary) -> dict[str, str]:
    """Setting's name -> in words."""
    return {r["setting"]: setting_words(r) for r in records(summary.results.drop_duplicates("setting"))}


def settings(summary: Summary) -> Html | None:
    """Every setting tried: its stage-one score and, if it got there, what stage two measured."""
    first = _by_setting(tried_once(summary.results).groupby("setting")["validation_score"].mean())
    seconds = _by_setting(summary.results.groupby("setting")["seconds"].sum())
    table_two = validation_table(summary)
    second = {column: _by_setting(table_two[column]) for column in ("q25", "mean")}
    names = setting_names(summary)
    listed = shortlist(summary)

    scores = scores_on_test(summary.results)

    def line(name: str) -> list[object]:
        words = tag("strong", names[name], " · chosen") if name == chosen_name(summary) else names[name]
        tests = list(scores.get(name, {}).values())
        found = [
            first.get(name),
            second["q25"].get(name),
            second["mean"].get(name),
            spread(tests).mean if tests else None,
        ]
        return [words, "yes" if name in listed else "", *map(score, found), duration(seconds.get(name, 0.0))]

    if not names:
        return None
    order = sorted(names, key=lambda n: (n not in listed, -second["q25"].get(n, 0.0), -first.get(n, 0.0)))
    heads = ("setting", "shortlist", "stage one", "stage two, lower quartile", "stage two, mean", "test mean", "time")
    caption = "Validation scores of every setting; the test mean is shown for completeness and chose nothing"
    return folded(
        f"Table of all {len(names)} settings",
        table(caption, heads, [line(name) for name in order], numeric=2, less="1 4 5 6"),
        opened=len(names) <= 16,
    )


def preparations(summary: Summary) -> Html | None:
    """What `--prepare` compared before any censor."""
    found = [row for row in (summary.choice or {}).get("preparations") or [] if isinstance(row, dict)]
    if not found:
        return None

    def number(value: object) -> float | None:
        return float(value) if isinstance(value, (int, float)) else None

    def told(row: dict[str, Any], name: str) -> str:
        value = row.get(name, LATER.get(name))  # a run from before there was such a choice made none
        return plain("none" if value in (None, False) else value)

    heads = (*PREPARED, "went on", "lower quartile", "mean")
    lines = [
        [
            *(told(row, name) for name in PREPARED),
            "yes" if row.get("kept") else "",
            score(number(row.get("validation_q25"))),
            score(number(row.get("validation_mean"))),
        ]
        for row in found
    ]
    caption = "How windows are prepared and learned from: validation scores of the plain network"
    return table(caption, heads, lines, numeric=8, less="9")


def _by_setting(column: pd.Series[Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in column.dropna().items()}


def splits(summary: Summary) -> Html | None:
    if not summary.splits:
        return None
    keys = ("fold", "test_subject", "validation_subject", "n_train", "n_validation", "n_test")
    heads = ("fold", "test subject", "validation subject", "training trials", "validation trials", "test trials")
    lines = [[plain(split.get(key, "–")) for key in keys] for split in summary.splits]
    return folded(
        f"Splits ({len(lines)} folds)", table("Who trains, validates and tests", heads, lines, numeric=3, less="4")
    )


def failures(summary: Summary) -> Html | None:
    """Jobs that failed, and why."""
    failed = summary.results[summary.results["failed"].astype(bool)]
    if failed.empty:
        return None
    names = setting_names(summary)
    lines = [[names[r["setting"]], r["stage"], r["test_subject"], plain(r["seed"]), plain(r["failure"])[:300]]
             for _, r in failed.head(MOST_FAILURES).iterrows()]  # fmt: skip
    rest = len(failed) - len(lines)
    heads = ("setting", "stage", "test subject", "seed", "what happened")
    note = tag("p", f"{rest} more are in results.csv.", class_="caption") if rest else None
    count = "1 job" if len(failed) == 1 else f"{len(failed)} jobs"
    return joined(
        tag("h3", f"{count} failed", id="failures"), table("Failed jobs", heads, lines, numeric=9, less="1 3"), note
    )


def facts(caption: str, values: dict[str, Any]) -> Html | None:
    """A list of names and values, side by side."""
    if not values:
        return None
    texts = {key: fact(value) for key, value in values.items()}
    pairs = [tag("div", tag("dt", k), tag("dd", v), class_="wide" if len(v) > 40 else None) for k, v in texts.items()]
    return joined(tag("h3", caption), tag("dl", *pairs, class_="facts"))


def fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{plain(k)}: {plain(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(v) for v in value)
    return plain(value)
