"""The numbers of the page as tables. Every cell is escaped on its way in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple

import numpy as np

from ..folds import name_of
from ..runs.choice import GroupScore
from ..runs.ledger import stage_name
from ..settings import SUBJECT
from ..training.nuisance import QUANTILES
from ..training.scoring import METRICS, chance_words
from ..words import range_words
from .comparison import contenders, find, ranking, subject_order
from .escaping import Html, join_html, tag
from .outcomes import has_stage_one, one_split_trainings, scores_on_test, shortlist_names
from .statistics import holm, paired, spread
from .summary import Leak, Summary
from .wording import capital, count, duration, interval, probability, score, setting_names, signed, significance

MOST_FAILURES = 50
CONCERNS = {"worse": "clearly worse", "few": "too few people to say", "": ""}  # of groups


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
    body = join_html(*(tag("tr", *(cell("td", i, value) for i, value in enumerate(row))) for row in rows))
    inside = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", body))
    return tag("div", inside, class_="table", tabindex="0", role="region", aria_label=caption)


def details(summary_line: str, *content: Html | None) -> Html:
    return tag("details", tag("summary", summary_line), *content)


def estimates(summary: Summary) -> Html | None:
    """Baseline, estimates of AutoTransfer and every method, each compared with the baseline."""
    rows = contenders(summary)
    base = find(rows, "none")
    if base is None or not summary.complete:
        return None
    pairs = {row.key: paired(row.scores, base.scores) for row in rows if row.key != "none"}
    methods = {row.key: pair.p for row in rows if row.is_method and (pair := pairs.get(row.key))}
    corrected = holm(methods)
    lines = []
    for row in sorted(rows, key=lambda row: (row.key != "none", not row.is_autotransfer, row.key == "published")):
        described = spread(list(row.scores.values()))
        cells = [row.label, score(described.mean), score(described.lower_quartile), score(described.minimum)]
        pair = pairs.get(row.key)
        if pair is None:
            lines.append([*cells, "–", "–", "–", "–"])
        else:
            p = corrected.get(row.key, pair.p)
            against = f"{pair.wins} / {pair.ties} / {pair.losses}"
            lines.append([*cells, signed(pair.mean), interval(pair), against, probability(p)])
    heads = ("", "mean", "lower quartile", "worst subject", "difference", "95 % interval", "gain / tie / loss", "p")
    caption = (
        f"{_metric(summary)} on the test subjects, and its difference to the baseline. p: Wilcoxon signed-rank test, "
        "for the methods corrected for their number after Holm"
    )
    shown = table(caption, heads, lines, numeric=1, less="2 3 6 7")
    gains = {key: pair.mean for key, pair in pairs.items() if pair is not None}
    return join_html(shown, tag("p", significance(corrected, gains), class_="caption") if corrected else None)


def subjects(summary: Summary) -> Html | None:
    """Score of every subject, and the setting of the nested choice."""
    rows = contenders(summary)
    keys = ("none", "published", "choosing", "equal", "nested")
    shown = [row for row in (find(rows, key) for key in keys) if row]
    shown[1:1] = [row for row in rows if row.is_peer]
    order = subject_order(shown)
    if not order or len(shown) < 2:
        return None
    choice, names = summary.choice, setting_names(summary)
    picks = {} if choice is None else choice.nested_choices
    metrics = {} if choice is None else choice.other_metrics
    others = {name: values for name, values in metrics.items() if values and name in METRICS}
    tests = [*(row.scores for row in shown), *others.values()]
    lines = [
        [s, names.get(picks.get(s, ""), picks.get(s, "–")), *(score(scores.get(s)) for scores in tests)] for s in order
    ]
    alone = summary.average is None
    pick = "reselected without the person" if alone else "best single candidate without the person"
    heads = ("subject", pick, *(row.label.replace("AutoTransfer, ", "") for row in shown))
    labels = tuple(METRICS[name].label for name in others)
    besides = f"; {', '.join(labels)}: of the delivered model, nested" if labels else ""
    return details(
        f"Score of every subject and {'the setting chosen' if alone else 'the best single candidate'} for it",
        table(f"{_metric(summary)} of every test subject{besides}", heads + labels, lines, numeric=2, less="1"),
    )


def _metric(summary: Summary) -> str:
    """'Balanced accuracy (chance .50)'."""
    return f"{capital(summary.metric)} ({chance_words(summary.chance)})"


def settings(summary: Summary) -> Html | None:
    """Every setting tried: its score on the first split and, if it got there, on every fold."""
    if not summary.settings:
        return None
    first: dict[str, list[float]] = {}
    for training in one_split_trainings(summary):
        first.setdefault(training.name, []).append(training.record.validation_score)
    seconds = dict.fromkeys(summary.settings, 0.0)
    for training in summary.trainings:
        seconds[training.name] += training.record.seconds
    second = {candidate.name: candidate for candidate in ranking(summary)}
    tests, names, listed = scores_on_test(summary), setting_names(summary), shortlist_names(summary)

    best = summary.role_names["chosen"].lower()

    def line(name: str) -> list[object]:
        words = tag("strong", f"{names[name]} · {best}") if name == summary.chosen else names[name]
        validated = second.get(name)
        validation = (validated.q25, validated.mean) if validated else (None, None)
        scores = _mean(first.get(name, [])), *validation, _mean(list(tests.get(name, {}).values()))
        return [words, "yes" if name in listed else "", *map(score, scores), duration(seconds[name])]

    rank = {name: place for place, name in enumerate(second)}

    def place(name: str) -> tuple[bool, int, float]:
        return name not in listed, rank.get(name, len(rank)), -(_mean(first.get(name, [])) or 0.0)

    heads = ("setting", "shortlist", "one split", "every fold, lower quartile", "every fold, mean", "test mean", "time")
    caption = (
        f"{_metric(summary)} of every setting on validation; the test mean is shown for completeness and chose nothing"
    )
    return details(
        f"Table of all {len(summary.settings)} settings",
        table(caption, heads, [line(name) for name in sorted(summary.settings, key=place)], numeric=2, less="1 4 5 6"),
    )


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def leakages(summary: Summary) -> Html | None:
    """What a fresh probe reads from z, by column; the subject alone has a figure."""
    by_column: dict[tuple[str, str], list[Leak]] = {}
    for side, leaks in summary.weights.leakage.items():
        for leak in leaks:
            by_column.setdefault((leak.nuisance, side), []).append(leak)
    if all(name == SUBJECT for name, _ in by_column):
        return None
    order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in by_column))}
    lines = []
    for (name, side), leaks in sorted(by_column.items(), key=lambda item: order[item[0][0]]):
        means = [_mean([getattr(leak, field) for leak in leaks]) for field in ("accuracy", "chance", "bits")]
        where = "within each person" if leaks[0].within else "among all trials"
        lines.append([name, where, summary.role_names[side], *map(score, means)])
    caption = (
        "How well a fresh classifier reads each column from the representation: balanced accuracy, mean over folds. "
        f"Continuous columns are read as {QUANTILES} groups of equal size"
    )
    return table(
        caption, ("column", "read", "model", "accuracy", "chance", "bits, at least"), lines, numeric=3, less="5"
    )


def groups(summary: Summary) -> Html | None:
    """For whom the delivered model works: scores by group of the columns beside the data, and a sentence that names
    groups which are much worse."""
    scores = [] if summary.choice is None else summary.choice.groups
    if not scores:
        return None
    worse = [f"{row.column} {row.group}" for row in scores if row.concern == "worse"]
    sentence = (
        f"Clearly worse than the others: {', '.join(worse)}."
        if worse
        else "No group is clearly worse than the others. That says little of groups of few people."
    )
    heads = ("column", "group", "people", summary.metric, "95 % interval", "minus the others", "")
    caption = (
        "Each person is scored by what was decided without them. The last interval is of the difference to other "
        "people, or to the same people's other windows where a column varies within people"
    )
    return join_html(tag("p", sentence), table(caption, heads, map(_group, scores), numeric=2, less="4 5"))


def _group(row: GroupScore) -> list[object]:
    limits = f"{score(row.interval[0])} to {score(row.interval[1])}" if row.interval else "–"
    difference = range_words(tuple(row.difference)) if row.difference else "–"
    return [row.column, row.group, row.people, score(row.mean), limits, difference, CONCERNS.get(row.concern, "")]


def splits(summary: Summary) -> Html | None:
    if not summary.splits:
        return None
    heads = ("fold", "test subject", "validation subject", "training trials", "validation trials", "test trials")
    lines = list(map(astuple, summary.splits))
    shown = table("Who trains, validates and tests", heads, lines, numeric=3, less="4")
    return details(f"Splits ({len(lines)} folds)", shown)


def failures(summary: Summary) -> Html | None:
    """Jobs that failed, and why."""
    failed = [training for training in summary.trainings if training.failed]
    if not failed:
        return None
    names, staged = setting_names(summary), has_stage_one(summary)
    lines = [
        [
            names[training.name], stage_name(training.stage, staged=staged), name_of(training.test_subject),
            training.seed, (training.record.failure or "")[:300],
        ]
        for training in failed[:MOST_FAILURES]
    ]  # fmt: skip
    rest = len(failed) - len(lines)
    heads = ("setting", "stage", "test subject", "seed", "what happened")
    note = tag("p", f"{rest} more are in results.csv.", class_="caption") if rest else None
    title = tag("h3", f"{count(len(failed), 'job')} failed", id="failures")
    return join_html(title, table("Failed jobs", heads, lines, numeric=9, less="1 3"), note)


def facts(caption: str, values: Mapping[str, object]) -> Html | None:
    """A list of names and values, side by side."""
    if not values:
        return None
    texts = {key: str(value) for key, value in values.items()}
    pairs = [tag("div", tag("dt", k), tag("dd", v), class_="wide" if len(v) > 40 else None) for k, v in texts.items()]
    return join_html(tag("h3", caption), tag("dl", *pairs, class_="facts"))
