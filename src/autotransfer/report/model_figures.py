"""Figures of the delivered model: mistakes, confidence, labels, online sessions, fits and leakage."""

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

MOST_CELLS = 12  # maximum of classes for which cells show numbers
MOST_EPOCHS = 150  # maximum of drawn epochs
LARGEST = 34  # diameter in pixels of a dot for all windows


def mean_of(values: Mapping[str, float]) -> float:
    """Return the mean over subjects."""
    return float(np.mean(list(values.values())))


def draw_confusion(summary: Summary) -> Figure | None:
    """Draw the confusion matrix over all test subjects; rows sum to one."""
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
        cells |= {"text": [list(map(score, row)) for row in shares.tolist()]}
        cells |= {"texttemplate": "%{text}", "textfont": {"size": 12}}
    down = plot.names_axis(names, "true", length=12) | {"range": [len(names) - 0.4, -0.6]}
    return Figure(
        key="confusion",
        title="Confused classes",
        caption="Predictions of the delivered model for all windows of held-out subjects. Rows are true classes, "
        "columns are predicted classes. The diagonal is the share of correct predictions.",
        data=[cells],
        layout={
            "xaxis": plot.names_axis(names, "predicted", length=12) | {"constrain": "domain"},
            "yaxis": down | {"scaleanchor": "x", "constrain": "domain"},
        },
        columns=("subject", "true", "predicted", "count"),
        rows=[
            [who, names[i], names[j], n]
            for who, counts in {"all subjects": whole, **tables}.items()
            for i, row in enumerate(counts.tolist())
            for j, n in enumerate(row)
        ],
        height=440,
    )


def draw_reliability(summary: Summary) -> Figure | None:
    """Draw accuracy against confidence for all windows and for each subject."""
    choice = summary.choice
    if choice is None:
        return None
    subjects = {who: own for who, own in choice.reliability.items() if math.isfinite(own.overconfidence)}
    bins: list[tuple[float, float, float]] = []
    if (found := choice.calibration) is not None:
        every = zip(found.confidence, found.accuracy, found.share, strict=False)
        bins = [bin_ for bin_ in every if all(map(math.isfinite, bin_)) and bin_[2] > 0]
    rows: list[list[object]] = [[who, own.confidence, own.accuracy, None] for who, own in subjects.items()]
    rows += [["all windows", *bin_] for bin_ in bins]
    if not rows:
        return None
    data = [plot.line([0, 1], [0, 1], "accuracy = confidence", stroke=MUTED, width=1.5, line={"dash": "dot"})]
    if subjects:
        x, y = [own.confidence for own in subjects.values()], [own.accuracy for own in subjects.values()]
        texts = [f"subject {plot_text(who)}<br>confidence {score(a)}, accuracy {score(b)}" for (who, _), a, b in zip(
            subjects.items(), x, y, strict=True)]  # fmt: skip
        data.append(plot.points(x, y, "one subject", fill=GREY, text=texts))
    if bins:
        sizes = [max(6.0, LARGEST * math.sqrt(min(1.0, part))) for *_, part in bins]
        texts = [f"confidence {score(a)}<br>accuracy {score(b)}<br>{share(c)} of the windows" for a, b, c in bins]
        x, y = [a for a, _, _ in bins], [b for _, b, _ in bins]
        data.append(plot.path(x, y, "all windows", fill=ACCENT, width=1.5, text=texts, marker={"size": sizes}))
    worst = max(subjects, key=lambda who: subjects[who].overconfidence, default=None)
    words = ""
    if worst is not None and (gap := subjects[worst].overconfidence) > 0:
        words = f" The model is most overconfident on subject {worst} ({signed(gap)})."
    if found is not None:
        scaled, unscaled = score(found.error), score(found.error_before)
        words += f" The expected calibration error is {scaled}"
        words += f" ({unscaled} before temperature scaling)." if found.error < found.error_before else "."
    both = [value for _, a, b, _ in rows for value in (a, b) if isinstance(value, float)]
    across = plot.score_axis("confidence: probability of the predicted class", [*both, summary.data.chance])
    return Figure(
        key="reliability",
        title="Confidence and accuracy",
        caption="On the diagonal, confidence equals accuracy. Below it, the model is overconfident." + words,
        data=data,
        layout=plot.scores_over(across, "accuracy", both, summary.data.chance),
        columns=("subject", "confidence", "accuracy", "share of windows"),
        rows=rows,
        height=440,
        legend=True,
    )


def draw_labels(summary: Summary) -> Figure | None:
    """Draw the score against the number of labeled windows of each class."""
    replayed = None if summary.choice is None else summary.choice.replay
    if replayed is None or not replayed.calibrated:
        return None
    lines: dict[str, tuple[dict[str, Scores], str, str]] = {
        "calibrated with the labels": (replayed.calibrated, ACCENT, "circle"),
        "delivered model": (replayed.before_calibration, MUTED, "diamond"),
        "trained on the labels alone": (replayed.personal, LOSS, "square"),
    }
    data: list[Json] = []
    rows: list[list[Any]] = []
    for name, (tables, fill, symbol) in lines.items():
        means = [mean_of(by_subject) for by_subject in tables.values()]
        texts = [f"{name}<br>{n} of each class: {score(mean)}" for n, mean in zip(tables, means, strict=True)]
        if tables:
            data.append(plot.path([*tables], means, name, fill=fill, symbol=symbol, text=texts))
        rows += [[name, int(n), mean, len(tables[n])] for n, mean in zip(tables, means, strict=True)]
    across = plot.plain_axis("labeled windows of each class", type="category")
    return Figure(
        key="labels",
        title="Gain from a few labels",
        caption=f"Mean {summary.metric} over held-out subjects on the windows without a label. "
        f"{describe_losses(replayed)}",
        data=data,
        layout=plot.scores_over(across, summary.metric, [row[2] for row in rows], summary.chance),
        columns=("model", "labeled windows of each class", "mean", "subjects"),
        rows=rows,
        height=360,
        legend=True,
    )


def draw_adaptation(summary: Summary) -> Figure | None:
    """Draw the gains of subjects in an online session, by the order of their windows."""
    replayed = None if summary.choice is None else summary.choice.replay
    if replayed is None:
        return None
    orders = {
        order: {who: replayed.adapted[order][who] - value for who, value in before.items()}
        for order, before in replayed.zero_shot.items()
    }
    gains, means = [list(own.values()) for own in orders.values()], [mean_of(own) for own in orders.values()]
    across = plot.difference_axis("gain in an online session", chain(*gains), least=0.01)
    titles = [f"{plot_text(order)}: {score(mean_of(replayed.adapted[order]))}" for order in orders]
    heights, layout, height = plot.dot_rows(gains, across, titles, [signed(mean) for mean in means])
    data = []
    for i, own in enumerate(orders.values()):
        texts = [f"subject {plot_text(who)}: {signed(gain)}" for who, gain in own.items()]
        look = {"size": plot.DOT, "opacity": 0.6}
        data.append(plot.points(gains[i], heights[i], "subjects", fill=GREY, text=texts, marker=look))
        text, size = [signed(means[i])], {"size": 12}
        data.append(plot.points([means[i]], [i], "mean", fill=plot.gain_color(means[i]), text=text, marker=size))
    return Figure(
        key="adaptation",
        title="Gain from unlabeled windows",
        caption="Windows of held-out subjects are replayed one by one without labels, in several orders: as recorded, "
        "at random (balanced), class after class (one-sided), and with the largest class first. A dot is the gain of a "
        f"subject, the {summary.metric} in an online session minus that of the delivered model, over all windows. "
        f"Large dots are means. {describe_session(replayed)}",
        data=data,
        layout=layout,
        columns=("order", "subject", "gain"),
        rows=[[order, who, gain] for order, own in orders.items() for who, gain in own.items()],
        height=height,
    )


def draw_curves(summary: Summary) -> Figure | None:
    """Draw the median loss over folds by epoch, up to the epoch that half of the folds reached."""
    data: list[Json] = []
    rows: list[list[object]] = []
    for role, setting in summary.networks.items():
        if role == "uncensored":
            continue
        histories = [fit.record.history for fit in summary.fits if fit.setting == setting]
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


def draw_leakage(summary: Summary) -> Figure | None:
    """Draw the accuracy of predicting the subject from latents, by network and fold."""
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
    across = plot.names_axis(folds, "test subject of the fold")
    return Figure(
        key="leakage",
        title="Can a classifier recognize subjects from latent features?",
        caption="Accuracy of a new classifier that predicts the training subject of a window from the latent features "
        "of a network. The effect of a penalty is the difference to the same network without it. The paper's network "
        "may have other preprocessing.",
        data=data,
        layout=plot.scores_over(across, "accuracy of predicting the subject", [k.accuracy for k in every], chance),
        columns=("test subject", "model", "accuracy", "chance", "bits"),
        rows=[
            [leak.test_subject, role, leak.accuracy, leak.chance, leak.bits]
            for role, found in leaks.items()
            for leak in found
        ],
        height=320,
        legend=True,
    )
