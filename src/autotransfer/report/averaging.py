"""The delivered average: who has how much weight, what each kind of candidates is worth in it, and how far its
confidence can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..runs.choice import Average
from . import plot
from .escaping import Html, distinct_labels, join_html, plot_text, tag
from .outcomes import finite_scores
from .plot import ACCENT, BACKGROUND, MUTED, Figure, Json
from .result_words import average_words, metric_words
from .statistics import Paired, paired, spread
from .summary import Summary
from .tables import table
from .wording import count, interval, kind_label, kind_words, score, setting_names, share, signed

ROW = 44  # height of a row, in pixels
LARGEST = 34  # of a dot, in pixels: all windows in one bin


@dataclass(frozen=True)
class AveragedKind:
    """A kind of candidates in the average."""

    kind: str
    share: float
    between: tuple[float, float] | None  # the smallest and largest share where one person at a time is left out
    candidates: int  # with any weight
    members: int
    pair: Paired | None  # the average minus the average without the kind, subject by subject

    @property
    def idle(self) -> bool:
        """Whether the average scores the same or better without it, to three digits."""
        return self.pair is not None and round(self.pair.mean, 3) <= 0


def averaged_kinds(summary: Summary) -> list[AveragedKind]:
    """By kind, the heaviest first; none without an average."""
    average = summary.average
    if summary.choice is None or average is None:
        return []
    scores, nested = summary.choice.nested_test_scores, nested_shares(average)
    kinds = []
    for kind in dict.fromkeys([*average.kinds, *average.without_kind]):
        used = [candidate for candidate in average.weights if candidate.kind == kind and candidate.share > 0]
        values = [shares.get(kind, 0.0) for shares in nested.values()]
        between = (min(values), max(values)) if values else None
        pair = paired(scores, average.without_kind.get(kind, {}))
        members = sum(candidate.members for candidate in used)
        kinds.append(AveragedKind(kind, average.kinds.get(kind, 0.0), between, len(used), members, pair))
    return kinds


def nested_shares(average: Average) -> dict[str, dict[str, float]]:
    """Subject -> kind -> share of the weights that were found without the subject."""
    kinds = {candidate.name: candidate.kind for candidate in average.weights}
    by_subject: dict[str, dict[str, float]] = {}
    for subject, shares in average.nested_weights.items():
        by_kind = by_subject.setdefault(subject, {})
        for name, value in shares.items():
            kind = kinds.get(name, name)
            by_kind[kind] = by_kind.get(kind, 0.0) + value
    return by_subject


def moved_weight(average: Average) -> list[float]:
    """For each subject: the share of the weights that moves to other candidates when the subject is left out."""
    delivered = {candidate.name: candidate.share for candidate in average.weights}
    return [
        sum(abs(nested.get(name, 0.0) - delivered.get(name, 0.0)) for name in {*nested, *delivered}) / 2
        for nested in average.nested_weights.values()
        if nested
    ]


def gains_over_alternatives(summary: Summary) -> dict[str, Paired | None]:
    """The average minus its alternatives, by label: the best single candidate, and equal weights."""
    average = summary.average
    if summary.choice is None or average is None:
        return {}
    nested = summary.choice.nested_test_scores
    tables = {"Choosing alone": average.choosing_test_scores, "Equal weights": average.equal_test_scores}
    return {label: paired(nested, scores) for label, scores in tables.items()}


def kinds(summary: Summary) -> Html | None:
    """Share and contribution of every kind, and a sentence on those that contribute nothing."""
    shown = averaged_kinds(summary)
    if not shown:
        return None
    lines = [
        [
            kind_label(part.kind), part.candidates, part.members, share(part.share), _between(part.between),
            *_worth(part.pair),
        ]
        for part in shown
    ]  # fmt: skip
    heads = (
        "kind", "candidates", "members", "share of the weights", "without one person", "average without the kind",
        "what the kind adds", "95 % interval", "gain / tie / loss",
    )  # fmt: skip
    caption = (
        f"Kinds of candidates in the average. Scores: {_metric(summary)}. What a kind adds is the average minus the "
        "average without it, the mean over subjects"
    )
    idle = [f"Without {kind_words(part.kind)} the average scores the same or better." for part in shown if part.idle]
    return join_html(
        table(caption, heads, lines, numeric=1, less="1 2 4 5 8"),
        tag("p", " ".join(idle), class_="caption") if idle else None,
    )


def alternatives(summary: Summary) -> Html | None:
    """Scores of the best single candidate, and of equal weights."""
    pairs = {label: pair for label, pair in gains_over_alternatives(summary).items() if pair is not None}
    if summary.choice is None or not pairs:
        return None
    nested = spread(list(finite_scores(summary.choice.nested_test_scores).values()))
    lines = [["Average, nested", score(nested.mean), score(nested.lower_quartile), "–", "–", "–"]]
    for label, pair in pairs.items():
        mean, *against = _worth(pair)
        lines.append([label, mean, score(pair.second.lower_quartile), *against])
    heads = ("", "mean", "lower quartile", "average minus it", "95 % interval", "gain / tie / loss")
    caption = f"The average beside the best single candidate and beside equal weights: {_metric(summary)}, all nested"
    return table(caption, heads, lines, numeric=1, less="2 5")


def _metric(summary: Summary) -> str:
    assert summary.choice is not None
    return metric_words(summary.choice, summary.data.chance)


def _between(ends: tuple[float, float] | None) -> str:
    if ends is None or not all(map(math.isfinite, ends)):
        return "–"
    low, high = np.round(np.multiply(ends, 100)).astype(int).tolist()
    return share(ends[0]) if low == high else f"{low} to {high}\u00a0%"


def _worth(pair: Paired | None) -> list[str]:
    """Score of the alternative, the average's difference to it, interval and signs."""
    if pair is None:
        return ["–"] * 4
    return [score(pair.second.mean), signed(pair.mean), interval(pair), f"{pair.wins} / {pair.ties} / {pair.losses}"]


def shares(summary: Summary) -> Figure | None:
    """The weights: a bar for each kind, a piece for each candidate."""
    average, kinds = summary.average, averaged_kinds(summary)
    if average is None or not any(part.share > 0 for part in kinds):
        return None
    names = setting_names(summary)
    words = distinct_labels((names.get(candidate.name, candidate.name) for candidate in average.weights), 60)
    rows = {part.kind: i for i, part in enumerate(kinds)}
    used = [candidate for candidate in average.weights if candidate.share > 0]
    pieces: list[Json] = []
    for candidate in used:
        label = words[names.get(candidate.name, candidate.name)]
        hover = f"{label}<br>{share(candidate.share)} of the weights, {count(candidate.members, 'member')}"
        look = {"color": plot.colour_and_shape(rows[candidate.kind])[0], "line": {"color": BACKGROUND, "width": 1.5}}
        piece = {"x": [candidate.share], "y": [rows[candidate.kind]], "name": label, "marker": look}
        shown = {"width": 0.3, "hovertext": [hover], "hovertemplate": "%{hovertext}<extra></extra>"}
        pieces.append({"type": "bar", "orientation": "h", **piece, **shown})
    most = min(1.0, 1.05 * max(part.share for part in kinds))
    across = plot.plain_axis("share of the weights", range=[0, most], nticks=6, tickformat=".0%")
    numbers = [plot.note(share(part.share), x=1, y=i, xshift=12) for i, part in enumerate(kinds)]
    layout = plot.merge_layouts(_rows(across, [kind_label(part.kind) for part in kinds], numbers), {"barmode": "stack"})
    return Figure(
        key="shares",
        title="Who has how much weight",
        caption=f"What is delivered is an {average_words(average)}. Each piece of a bar is one candidate; its name "
        "appears when you point at it.",
        data=pieces,
        layout=layout,
        columns=("kind", "candidate", "share", "members"),
        rows=[[candidate.kind, candidate.name, candidate.share, candidate.members] for candidate in average.weights],
        height=ROW * len(kinds) + 20,
        legend=False,
    )


def contributions(summary: Summary) -> Figure | None:
    """The average minus the same without one kind, minus the best single candidate, minus equal weights."""
    kinds = [(f"Without {kind_words(part.kind)}", part.pair) for part in averaged_kinds(summary)]
    shown = [(label, pair) for label, pair in (*kinds, *gains_over_alternatives(summary).items()) if pair is not None]
    if not shown:
        return None
    ends = [v for _, pair in shown for v in (pair.mean, *(pair.interval or ()))]
    across = plot.difference_axis("average minus the row", ends, least=0.01)
    numbers = [plot.note(signed(pair.mean), x=1, y=i, xshift=12) for i, (_, pair) in enumerate(shown)]
    layout = _rows(across | {"tickformat": "+.3f", "nticks": 6}, [label for label, _ in shown], numbers)
    columns = ("row", "test_score", "average_minus_row", "low", "high")
    return Figure(
        key="contributions",
        title="What the average is worth",
        caption=f"Difference in {summary.metric} between the average and the row, with the 95 % interval of the mean "
        "over test subjects. Right of zero the average is ahead, so the kind that the row leaves out helps; where the "
        "line reaches zero, that may be chance.",
        data=[mark for i, (label, pair) in enumerate(shown) for mark in _range(label, pair, i)],
        layout=layout,
        columns=columns,
        rows=[[n, p.second.mean, p.mean, *(p.interval or (math.nan, math.nan))] for n, p in shown],
        height=ROW * len(shown) + 20,
        legend=False,
    )


def _range(label: str, pair: Paired, position: int) -> list[Json]:
    """A dot on the line of its interval."""
    fill = plot.gain_colour(pair.mean)
    text = f"{plot_text(label, 40)}: {score(pair.second.mean)}<br>average minus it {signed(pair.mean)}"
    text += f"<br>95 % interval {interval(pair)}"
    dot = plot.points([pair.mean], [position], plot_text(label, 40), fill=fill, text=[text], marker={"size": 10})
    if pair.interval is None:
        return [dot]
    return [plot.line(list(pair.interval), [position] * 2, "", stroke=fill, width=3), dot]


def reliability(summary: Summary) -> Figure | None:
    """How often predictions of some confidence are right."""
    average = summary.average
    if average is None:
        return None
    calibration = average.calibration
    every = zip(calibration.confidence, calibration.accuracy, calibration.share, strict=False)
    bins = [bin_ for bin_ in every if all(map(math.isfinite, bin_)) and bin_[2] > 0]
    if not bins:
        return None
    x, y, weights = (list(column) for column in zip(*bins, strict=True))
    texts = [f"confidence {score(a)}<br>right {score(b)}<br>{share(c)} of the windows" for a, b, c in bins]
    sizes = [max(6.0, LARGEST * math.sqrt(min(1.0, weight))) for weight in weights]
    look = {"size": sizes, "opacity": 0.85, "line": {"color": BACKGROUND, "width": 1}}
    both = [*x, *y, summary.data.chance]  # one range, so that the diagonal is one
    across = plot.score_axis("confidence: probability of the predicted class", both)
    return Figure(
        key="reliability",
        title="How far confidence can be trusted",
        caption="Windows of all test subjects, grouped by the confidence of their prediction; the larger a dot, the "
        "more windows. On the diagonal, predictions are right as often as they claim; below it they claim too much. "
        f"Expected calibration error: {score(calibration.error)}, and {score(calibration.error_before)} without the "
        f"temperature. The delivered temperature is {average.temperature:.2f}; each subject was predicted with weights "
        "and a temperature that were found without them.",
        data=[
            plot.line([0, 1], [0, 1], "as claimed", stroke=MUTED, width=1.5, line={"dash": "dot"}),
            plot.path(x, y, "windows of similar confidence", fill=ACCENT, width=1.5, text=texts, marker=look),
        ],
        layout=plot.scores_over(across, "accuracy", both, summary.data.chance),
        columns=("confidence", "accuracy", "share_of_windows"),
        rows=[list(bin_) for bin_ in bins],
        height=400,
        square=True,
    )


def _rows(across: Json, labels: list[str], numbers: list[Json]) -> Json:
    """Layout of rows from top to bottom: a name over each and a number beside it."""
    down = plot.bare_axis(frame=False) | {"range": [len(labels) - 0.5, -0.8]}
    titles = [plot.row_title(plot_text(label, 40), i) for i, label in enumerate(labels)]
    return plot.merge_layouts(plot.axes(across, down), {"annotations": titles + numbers, "margin": {"l": 14, "r": 62}})
