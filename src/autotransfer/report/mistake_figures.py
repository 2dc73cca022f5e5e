"""Which mistakes the delivered model makes on people it has not seen, and how far its confidence can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..training.mistake_costs import PREFIX, parse
from . import plot
from .escaping import Html, plot_text, tag
from .plot import ACCENT, LOSS, MUTED, Figure, Json
from .result_words import on_unseen_people, unseen_person_words
from .summary import Summary
from .tables import details, table
from .wording import count, score, share, signed

MOST_CELLS = 12  # classes of a matrix whose cells have room for a number
EVERYBODY = "everybody"


def confusion(summary: Summary) -> Figure | None:
    """Which class is taken for which, over all test subjects; rows sum to one."""
    names, tables = list(summary.data.classes), _counts(summary)
    if not tables:
        return None
    whole = np.sum(list(tables.values()), 0, dtype=float)
    x = plot.names_axis(names, "predicted", length=12, ticks="")
    y = plot.names_axis(names, "true", length=12, ticks="")
    y["range"] = [len(names) - 0.4, -0.6]
    return Figure(
        key="confusion",
        title="Which class is taken for which",
        caption=f"The delivered model {on_unseen_people(summary)}, each predicted with weights that were found without "
        "them. Rows are the true classes and sum to one over all of them; the diagonal is what is recognised. Counts "
        "appear when you point at a cell; the CSV has them for every person.",
        data=[_heatmap(whole, names)],
        layout=plot.merge_layouts(plot.axes(x, y)),
        columns=("subject", "true", "predicted", "count"),
        rows=[
            [who, names[i], names[j], n]
            for who, counts in {EVERYBODY: whole, **tables}.items()
            for i, row in enumerate(np.asarray(counts).astype(int).tolist())
            for j, n in enumerate(row)
        ],
        height=400,
        square=True,
        legend=False,
    )


def _counts(summary: Summary) -> dict[str, NDArray[np.int64]]:
    """By subject: counts (C, C) of the delivered model, where the run kept them."""
    size = len(summary.data.classes)
    known = {} if summary.choice is None else summary.choice.confusions
    tables = {who: np.array(counts, dtype=np.int64) for who, counts in known.items()}
    return {who: counts for who, counts in tables.items() if counts.shape == (size, size)}


def mistakes_by_person(summary: Summary) -> Html | None:
    """The same of each person, folded, the worst first: what is recognised of each class, and the commonest mistake."""
    tables, names = _counts(summary), list(summary.data.classes)
    if not tables or summary.choice is None:
        return None
    worst = sorted(tables, key=lambda who: summary.choice.estimate.get(who, math.inf) if summary.choice else 0.0)
    heads = ("subject", "commonest mistake", *names[:MOST_CELLS])
    lines = [[who, _mistake(tables[who], names), *_recalls(tables[who])[:MOST_CELLS]] for who in worst]
    more = f"; the first {MOST_CELLS} of {len(names)}" if len(names) > MOST_CELLS else ""
    caption = f"Share of each class that is recognised, by person, the worst person first{more}"
    return details("Mistakes of every person", table(caption, heads, lines, numeric=2), _matrices(worst, tables, names))


def recall_by_class(summary: Summary) -> Html | None:
    """What is recognised of each class, how far its name can be trusted, and what its windows cost."""
    tables, names = _counts(summary), list(summary.data.classes)
    if not tables or summary.choice is None:
        return None
    whole = np.sum(list(tables.values()), 0)
    lines = class_rows(whole, names, summary.choice.metric)
    costs = summary.choice.metric.startswith(PREFIX)
    heads = ("class", "commonest mistake", "windows", "recall", "precision", *(["share of what was paid"] * costs))
    caption = (
        f"Each class, over all windows of everybody {on_unseen_people(summary)}. Recall: the share of its windows that "
        "is recognised. Precision: how often it is right to say the class"
    )
    return details("Recall and precision of each class", table(caption, heads, lines, numeric=2, less="1"))


def class_rows(counts: NDArray[np.int64], names: list[str], metric: str) -> list[list[str]]:
    """For each class of counts (C, C): its name, commonest mistake, windows, recall, precision and, where costs decide,
    the share of all costs that its windows have."""
    predicted, recalls, rows = counts.sum(0), _recalls(counts), []
    paid = None
    if metric.startswith(PREFIX):
        costs = parse(metric)[1]
        paid = (counts * costs).sum(1) if costs.shape == counts.shape else None
    for k, name in enumerate(names):
        precision = share(counts[k, k] / predicted[k]) if predicted[k] else "–"
        of_class = np.zeros_like(counts)
        of_class[k] = counts[k]
        row = [name, _mistake(of_class, names), f"{counts[k].sum():,}", recalls[k], precision]
        if paid is not None:
            row.append(share(paid[k] / paid.sum()) if paid.sum() else "–")
        rows.append(row)
    return rows


def _matrices(worst: Sequence[str], tables: dict[str, NDArray[np.int64]], names: list[str]) -> Html | None:
    """Every person's own matrix of counts, each folded, where classes are few enough to be read."""
    if len(names) > MOST_CELLS:
        return None
    boxes = [
        details(f"Counts of {who}", table("True classes down, predicted ones across", ("", *names),
               [[name, *row] for name, row in zip(names, tables[who].tolist(), strict=True)], numeric=1))
        for who in worst
    ]  # fmt: skip
    return tag("div", *boxes)


def _mistake(counts: NDArray[np.int64], names: list[str]) -> str:
    wrong = counts - np.diag(np.diag(counts))
    if not wrong.any():
        return "none"
    true, taken = np.unravel_index(wrong.argmax(), wrong.shape)
    return f"{names[true]} taken for {names[taken]}, {wrong[true, taken]} of {count(int(counts[true].sum()), 'window')}"


def _recalls(counts: NDArray[np.int64]) -> list[str]:
    totals = counts.sum(1)
    return [share(counts[k, k] / n) if n else "–" for k, n in enumerate(totals.tolist())]


def _heatmap(counts: NDArray[np.float64], names: list[str]) -> Json:
    """counts: (C, C). A class without trials has no shares, and its row stays empty."""
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, math.nan), where=totals > 0)
    short = [plot_text(name) for name in names]
    texts = [
        [f"true {short[i]}<br>predicted {short[j]}<br>{n:.0f} of {totals[i, 0]:.0f} trials" for j, n in enumerate(row)]
        for i, row in enumerate(counts)
    ]
    trace: Json = {"type": "heatmap", "z": shares.tolist(), "zmin": 0, "zmax": 1, "xgap": 2, "ygap": 2}
    trace |= {"colorscale": [[0, plot.BACKGROUND], [1, ACCENT]], "showscale": False}
    trace |= {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}
    if len(names) <= MOST_CELLS:
        trace |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 12}}
    return trace


def reliability_by_person(summary: Summary) -> Figure | None:
    """Mean confidence and accuracy of everybody, and who is furthest below what the model claims."""
    known = {} if summary.choice is None else summary.choice.reliability
    people = {who: person for who, person in known.items() if math.isfinite(person.overconfidence)}
    if not people:
        return None
    worst = max(people, key=lambda who: people[who].overconfidence)
    both = [value for person in people.values() for value in (person.confidence, person.accuracy)]
    texts = [
        f"subject {plot_text(who)}<br>confidence {score(person.confidence)}, right {score(person.accuracy)}<br>"
        f"expected calibration error {score(person.error)}"
        for who, person in people.items()
    ]
    fills = [LOSS if who == worst else ACCENT for who in people]
    both.append(summary.data.chance)
    across = plot.score_axis("mean confidence of a person's predictions", both)
    x, y = [person.confidence for person in people.values()], [person.accuracy for person in people.values()]
    gap = people[worst].overconfidence
    verdict = (
        f"The model claims most too much of subject {worst}: {signed(gap)} (confidence "
        f"{score(people[worst].confidence)}, right {score(people[worst].accuracy)})."
        if gap > 0
        else "The model claims too much of nobody."
    )
    return Figure(
        key="reliability-people",
        title="How far confidence can be trusted, person by person",
        caption=f"A dot is {unseen_person_words(summary)}: the mean probability of its predictions, and how often "
        f"they are right. Below the diagonal it claims too much. {verdict}",
        data=[
            plot.line([0, 1], [0, 1], "as claimed", stroke=MUTED, width=1.5, line={"dash": "dot"}),
            plot.points(x, y, "people", fill=fills, text=texts, marker={"size": 10, "opacity": 0.85}),
        ],
        layout=plot.scores_over(across, "accuracy", both, summary.data.chance),
        columns=("subject", "confidence", "accuracy", "expected_calibration_error"),
        rows=[[who, person.confidence, person.accuracy, person.error] for who, person in people.items()],
        height=400,
        square=True,
        legend=False,
    )
