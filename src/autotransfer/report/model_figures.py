"""Figures of the delivered model: its mistakes, its confidence, what a person's own windows add, how it was trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from ..runs.choice import Scores
from . import plot
from .escaping import plot_text
from .findings import describe_losses, describe_session
from .plot import ACCENT, GREY, LOSS, MUTED, Figure, Json
from .summary import Summary
from .wording import score, share, signed

MOST_CELLS = 12  # classes of a matrix whose cells have room for a number
MOST_EPOCHS = 150  # drawn; more cannot be told apart on a screen
LARGEST = 34  # diameter of a dot that stands for all windows, in pixels


def mean_of(values: Mapping[str, float]) -> float:
    """Return the mean over people."""
    return float(np.mean(list(values.values())))


def confusion(summary: Summary) -> Figure | None:
    """Draw which class is taken for which, over all test subjects; rows sum to one."""
    names = list(summary.data.classes)
    known = {} if summary.choice is None else summary.choice.confusions
    tables = {who: np.array(counts, dtype=np.int64) for who, counts in known.items()}
    tables = {who: counts for who, counts in tables.items() if counts.shape == (len(names), len(names))}
    if not tables:
        return None
    whole = np.sum(list(tables.values()), 0)
    totals = whole.sum(1, keepdims=True)
    shares = np.divide(whole, totals, out=np.full(whole.shape, math.nan), where=totals > 0)
    cut = [plot_text(name) for name in names]
    texts = [
        [f"true {cut[i]}<br>predicted {cut[j]}<br>{n} of {totals[i, 0]} windows" for j, n in enumerate(row)]
        for i, row in enumerate(whole.tolist())
    ]
    cells: Json = {"type": "heatmap", "z": shares.tolist(), "zmin": 0, "zmax": 1, "xgap": 2, "ygap": 2}
    cells |= {"colorscale": [[0, plot.BACKGROUND], [1, ACCENT]], "showscale": False}
    cells |= {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}
    if len(names) <= MOST_CELLS:
        cells |= {"texttemplate": "%{z:.2f}", "textfont": {"size": 12}}
    down = plot.names_axis(names, "true", length=12) | {"range": [len(names) - 0.4, -0.6]}
    return Figure(
        key="confusion",
        title="Which class is taken for which",
        caption="The delivered model on held-out people, over all their windows. Rows are the true classes; the "
        "diagonal is the share that is recognized. Numbers has the counts of every person.",
        data=[cells],
        layout={
            "xaxis": plot.names_axis(names, "predicted", length=12) | {"constrain": "domain"},
            "yaxis": down | {"scaleanchor": "x", "constrain": "domain"},
        },
        columns=("subject", "true", "predicted", "count"),
        rows=[
            [who, names[i], names[j], n]
            for who, counts in {"everybody": whole, **tables}.items()
            for i, row in enumerate(counts.tolist())
            for j, n in enumerate(row)
        ],
        height=440,
    )


def reliability(summary: Summary) -> Figure | None:
    """Draw accuracy against confidence, over all windows and for each person."""
    choice = summary.choice
    if choice is None:
        return None
    people = {who: own for who, own in choice.reliability.items() if math.isfinite(own.overconfidence)}
    bins: list[tuple[float, float, float]] = []
    if (found := choice.calibration) is not None:
        every = zip(found.confidence, found.accuracy, found.share, strict=False)
        bins = [bin_ for bin_ in every if all(map(math.isfinite, bin_)) and bin_[2] > 0]
    rows: list[list[object]] = [[who, own.confidence, own.accuracy, None] for who, own in people.items()]
    rows += [["all windows", *bin_] for bin_ in bins]
    if not rows:
        return None
    data = [plot.line([0, 1], [0, 1], "as claimed", stroke=MUTED, width=1.5, line={"dash": "dot"})]
    if people:
        x, y = [own.confidence for own in people.values()], [own.accuracy for own in people.values()]
        texts = [f"subject {plot_text(who)}<br>confidence {score(a)}, right {score(b)}" for (who, _), a, b in zip(
            people.items(), x, y, strict=True)]  # fmt: skip
        data.append(plot.points(x, y, "one person, mean", fill=GREY, text=texts))
    if bins:
        sizes = [max(6.0, LARGEST * math.sqrt(min(1.0, part))) for *_, part in bins]
        texts = [f"confidence {score(a)}<br>right {score(b)}<br>{share(c)} of the windows" for a, b, c in bins]
        x, y = [a for a, _, _ in bins], [b for _, b, _ in bins]
        data.append(plot.path(x, y, "all windows", fill=ACCENT, width=1.5, text=texts, marker={"size": sizes}))
    worst = max(people, key=lambda who: people[who].overconfidence, default=None)
    words = ""
    if worst is not None and (gap := people[worst].overconfidence) > 0:
        words = f" It claims most too much of subject {worst} ({signed(gap)})."
    if found is not None:
        words += f" Expected calibration error: {score(found.error)}, without the temperature "
        words += f"{score(found.error_before)}."
    both = [value for _, a, b, _ in rows for value in (a, b) if isinstance(value, float)]
    across = plot.score_axis("confidence: probability of the predicted class", [*both, summary.data.chance])
    return Figure(
        key="reliability",
        title="How far confidence can be trusted",
        caption="On the diagonal confidence equals accuracy; below it the model is overconfident." + words,
        data=data,
        layout=plot.scores_over(across, "accuracy", both, summary.data.chance),
        columns=("of", "confidence", "accuracy", "share_of_windows"),
        rows=rows,
        height=440,
        legend=True,
    )


def labels(summary: Summary) -> Figure | None:
    """Draw the score against the number of labeled windows of each class."""
    played = None if summary.choice is None else summary.choice.replay
    if played is None or not played.calibrated:
        return None
    lines: dict[str, tuple[dict[str, Scores], str, str]] = {
        "calibrated with the labels": (played.calibrated, ACCENT, "circle"),
        "as delivered": (played.before_calibration, MUTED, "diamond"),
        "a classifier of the labels alone": (played.personal, LOSS, "square"),
    }
    data: list[Json] = []
    rows: list[list[Any]] = []
    for name, (tables, fill, symbol) in lines.items():
        means = [mean_of(by_person) for by_person in tables.values()]
        texts = [f"{name}<br>{n} of each class: {score(mean)}" for n, mean in zip(tables, means, strict=True)]
        if tables:
            data.append(plot.path([*tables], means, name, fill=fill, symbol=symbol, text=texts))
        rows += [[name, int(n), mean, len(tables[n])] for n, mean in zip(tables, means, strict=True)]
    across = plot.plain_axis("labeled windows of each class", type="category")
    return Figure(
        key="labels",
        title="What a few labels are worth",
        caption=f"Mean {summary.metric} over held-out people on all windows that are not labeled. "
        f"{describe_losses(played)}",
        data=data,
        layout=plot.scores_over(across, summary.metric, [row[2] for row in rows], summary.chance),
        columns=("model", "labels_of_each_class", "mean", "subjects"),
        rows=rows,
        height=360,
        legend=True,
    )


def adaptation(summary: Summary) -> Figure | None:
    """Draw what people gain in an online session, by the order in which their windows come."""
    played = None if summary.choice is None else summary.choice.replay
    if played is None:
        return None
    orders = {
        order: {who: played.adapted[order][who] - value for who, value in before.items()}
        for order, before in played.zero_shot.items()
    }
    gains, means = [list(own.values()) for own in orders.values()], [mean_of(own) for own in orders.values()]
    across = plot.difference_axis("online session minus as delivered", chain(*gains), least=0.01)
    titles = [f"{plot_text(order)}: {score(mean_of(played.adapted[order]))}" for order in orders]
    heights, layout, height = plot.dot_rows(gains, across, titles, [signed(mean) for mean in means])
    data = []
    for i, own in enumerate(orders.values()):
        texts = [f"subject {plot_text(who)}: {signed(gain)}" for who, gain in own.items()]
        look = {"size": plot.DOT, "opacity": 0.6}
        data.append(plot.points(gains[i], heights[i], "people", fill=GREY, text=texts, marker=look))
        text, size = [signed(means[i])], {"size": 12}
        data.append(plot.points([means[i]], [i], "mean", fill=plot.gain_color(means[i]), text=text, marker=size))
    return Figure(
        key="adaptation",
        title="What unlabeled windows are worth",
        caption="Windows of held-out people are replayed one by one, without labels, in several orders. A dot is a "
        f"person's {summary.metric} in an online session minus that of the delivered model, over all of their windows; "
        "the large dot is the mean. "
        f"In the delivered model, {describe_session(played)}.",
        data=data,
        layout=layout,
        columns=("order", "subject", "gain"),
        rows=[[order, who, gain] for order, own in orders.items() for who, gain in own.items()],
        height=height,
    )


def curves(summary: Summary) -> Figure | None:
    """Draw the median losses over folds by epoch, up to the epoch that half of the folds reached."""
    data: list[Json] = []
    rows: list[list[object]] = []
    for role, setting in summary.networks.items():
        if role == "uncensored":
            continue
        histories = [training.record.history for training in summary.fits if training.setting == setting]
        for key, dash in (("train_loss", "dot"), ("validation_loss", "solid")):
            known = [np.array(history[key]) for history in histories if np.isfinite(history[key]).any()]
            length = int(np.median([len(history) for history in known])) if known else 0
            epochs = np.unique(np.linspace(0, length - 1, MOST_EPOCHS).astype(int))[:length]
            losses = [[own[e] for own in known if e < len(own) and math.isfinite(own[e])] for e in epochs]
            drawn = [(int(e) + 1, float(np.median(own))) for e, own in zip(epochs, losses, strict=True) if own]
            if not drawn:
                continue
            name = f"{plot_text(summary.network_labels[role])}, {'training' if key == 'train_loss' else 'validation'}"
            fill, x, y = ACCENT if role == "chosen" else GREY, [x for x, _ in drawn], [y for _, y in drawn]
            data.append(plot.line(x, y, name, stroke=fill, line={"dash": dash}))
            rows += [[name, epoch, loss] for epoch, loss in drawn]
    if not rows:
        return None
    return Figure(
        key="curves",
        title="Learning curves",
        caption="Median loss over folds. If the validation loss still falls at the end, train longer; if it rises "
        "early, the network is too large for the data.",
        data=data,
        layout={"xaxis": plot.plain_axis("epoch", rangemode="tozero"), "yaxis": plot.plain_axis("loss")},
        columns=("model", "epoch", "loss"),
        rows=rows,
        legend=True,
    )


def leakage(summary: Summary) -> Figure | None:
    """Draw how well a fresh probe reads the subject from z, for each network and fold."""
    fills = {"paper_network": GREY, "uncensored": LOSS, "chosen": ACCENT}
    leaks = summary.leakage
    folds = list(dict.fromkeys(leak.test_subject for found in leaks.values() for leak in found))
    if not folds:
        return None
    data = []
    for role, found in leaks.items():
        name, x = plot_text(summary.network_labels[role]), [folds.index(leak.test_subject) for leak in found]
        texts = [f"test subject {plot_text(leak.test_subject)}<br>{name}: {score(leak.accuracy)}" for leak in found]
        y = [leak.accuracy for leak in found]
        data.append(plot.points(x, y, name, fill=fills[role], text=texts, marker={"size": 10}))
    every = [leak for found in leaks.values() for leak in found]
    chance = float(np.mean([leak.chance for leak in every]))
    across = plot.names_axis(folds, "fold, by its test subject")
    return Figure(
        key="leakage",
        title="Can the subject be read from the representation?",
        caption="Accuracy of a new classifier that predicts the training subject of a window from the network's latent "
        "features. The effect of a penalty is the difference to the same network without it; the paper's network may "
        "have other preprocessing.",
        data=data,
        layout=plot.scores_over(across, "accuracy of reading the subject", [k.accuracy for k in every], chance),
        columns=("test_subject", "model", "accuracy", "chance", "bits"),
        rows=[
            [leak.test_subject, role, leak.accuracy, leak.chance, leak.bits]
            for role, found in leaks.items()
            for leak in found
        ],
        height=320,
        legend=True,
    )
