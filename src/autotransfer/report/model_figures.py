"""Figures about the delivered model: confusions, confidence, labels, online sessions, training and leakage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from ..runs.choice import Scores
from ..words import score, signed
from . import plot
from .escaping import format_label
from .findings import describe_losses, describe_session
from .plot import ACCENT, GREY, LOSS, MUTED, Figure, Json
from .summary import Summary
from .wording import share

MOST_CELLS = 12  # maximum number of classes for which cells show numbers
MOST_EPOCHS = 150  # maximum number of drawn epochs
LARGEST_DOT = 34  # diameter in pixels of a dot that stands for all windows


def mean_of(values: Mapping[str, float]) -> float:
    """Return the mean over subjects."""
    return float(np.mean(list(values.values())))


def draw_confusion(summary: Summary) -> Figure | None:
    """Draw the confusion matrix over all test subjects; rows sum to one."""
    names = list(summary.data.classes)
    confusions = {} if summary.choice is None else summary.choice.confusions
    tables = {subject: np.array(counts, dtype=np.int64) for subject, counts in confusions.items()}
    tables = {subject: counts for subject, counts in tables.items() if counts.shape == (len(names), len(names))}
    if not tables:
        return None
    summed = np.sum(list(tables.values()), 0)
    totals = summed.sum(1, keepdims=True)
    shares = np.divide(summed, totals, out=np.full(summed.shape, math.nan), where=totals > 0)
    labels = [format_label(name) for name in names]
    texts = [
        [f"true {labels[i]}<br>predicted {labels[j]}<br>{n} of {totals[i, 0]} windows" for j, n in enumerate(row)]
        for i, row in enumerate(summed.tolist())
    ]
    cells: Json = {"type": "heatmap", "z": shares.tolist(), "zmin": 0, "zmax": 1, "xgap": 2, "ygap": 2}
    cells |= {"colorscale": [[0, plot.BACKGROUND], [1, ACCENT]], "showscale": False}
    cells |= {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}
    if len(names) <= MOST_CELLS:
        cells |= {"text": [list(map(score, row)) for row in shares.tolist()]}
        cells |= {"texttemplate": "%{text}", "textfont": {"size": 12}}
    y_axis = plot.names_axis(names, "true", length=12) | {"range": [len(names) - 0.4, -0.6]}
    return Figure(
        key="confusion",
        title="Confused classes",
        caption="Predictions of the delivered model for all windows of held-out subjects. Rows are true classes, "
        "columns are predicted classes. The diagonal is the share of correct predictions.",
        data=[cells],
        layout={
            "xaxis": plot.names_axis(names, "predicted", length=12) | {"constrain": "domain"},
            "yaxis": y_axis | {"scaleanchor": "x", "constrain": "domain"},
        },
        columns=("subject", "true", "predicted", "count"),
        rows=[
            [subject, names[i], names[j], n]
            for subject, counts in {"all subjects": summed, **tables}.items()
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
    subjects = {name: values for name, values in choice.reliability.items() if math.isfinite(values.overconfidence)}
    bins: list[tuple[float, float, float]] = []
    if (calibration := choice.calibration) is not None:
        all_bins = zip(calibration.confidence, calibration.accuracy, calibration.share, strict=False)
        bins = [bin_ for bin_ in all_bins if all(map(math.isfinite, bin_)) and bin_[2] > 0]
    rows: list[list[object]] = [[name, s.confidence, s.accuracy, None] for name, s in subjects.items()]
    rows += [["all windows", *bin_] for bin_ in bins]
    if not rows:
        return None
    data = [plot.line([0, 1], [0, 1], "accuracy = confidence", stroke=MUTED, width=1.5, line={"dash": "dot"})]
    if subjects:
        x, y = [s.confidence for s in subjects.values()], [s.accuracy for s in subjects.values()]
        texts = [f"subject {format_label(name)}<br>confidence {score(a)}, accuracy {score(b)}" for name, a, b in zip(
            subjects, x, y, strict=True)]  # fmt: skip
        data.append(plot.points(x, y, "one subject", fill=GREY, text=texts))
    if bins:
        sizes = [max(6.0, LARGEST_DOT * math.sqrt(min(1.0, part))) for *_, part in bins]
        texts = [f"confidence {score(a)}<br>accuracy {score(b)}<br>{share(c)} of the windows" for a, b, c in bins]
        x, y = [a for a, _, _ in bins], [b for _, b, _ in bins]
        data.append(plot.path(x, y, "all windows", fill=ACCENT, width=1.5, text=texts, marker={"size": sizes}))
    worst = max(subjects, key=lambda name: subjects[name].overconfidence, default=None)
    caption = "On the diagonal, confidence equals accuracy. Below the diagonal, the model is overconfident."
    if worst is not None and (gap := subjects[worst].overconfidence) > 0:
        caption += f" The model is most overconfident on subject {worst} ({signed(gap)})."
    if calibration is not None:
        caption += f" The mean distance from the diagonal (expected calibration error) is {score(calibration.error)}"
        unscaled = f" ({score(calibration.error_before)} before temperature scaling)"
        caption += unscaled * (calibration.error < calibration.error_before) + "."
    values = [value for _, a, b, _ in rows for value in (a, b) if isinstance(value, float)]
    x_axis = plot.score_axis("confidence: probability of the predicted class", [*values, summary.data.chance])
    return Figure(
        key="reliability",
        title="Confidence and accuracy",
        caption=caption,
        data=data,
        layout=plot.scores_layout(x_axis, "accuracy", values, summary.data.chance),
        columns=("subject", "confidence", "accuracy", "share of windows"),
        rows=rows,
        height=440,
        legend=True,
    )


def draw_labels(summary: Summary) -> Figure | None:
    """Draw the score against the number of labeled windows of each class."""
    replay = None if summary.choice is None else summary.choice.replay
    if replay is None or not replay.calibrated:
        return None
    lines: dict[str, tuple[dict[str, Scores], str, str]] = {
        "calibrated with the labels": (replay.calibrated, ACCENT, "circle"),
        "delivered model": (replay.before_calibration, MUTED, "diamond"),
        "trained on these labels alone": (replay.personal, LOSS, "square"),
    }
    data: list[Json] = []
    rows: list[list[Any]] = []
    for name, (tables, fill, symbol) in lines.items():
        means = [mean_of(by_subject) for by_subject in tables.values()]
        texts = [f"{name}<br>{n} labels of each class: {score(mean)}" for n, mean in zip(tables, means, strict=True)]
        if tables:
            data.append(plot.path([*tables], means, name, fill=fill, symbol=symbol, text=texts))
        rows += [[name, int(n), mean, len(tables[n])] for n, mean in zip(tables, means, strict=True)]
    x_axis = plot.plain_axis("labeled windows of each class", type="category")
    return Figure(
        key="labels",
        title="Gain from a few labels",
        caption=f"Mean {summary.metric} over held-out subjects on windows that were not used for calibration. "
        f"{describe_losses(replay)}",
        data=data,
        layout=plot.scores_layout(x_axis, summary.metric, [row[2] for row in rows], summary.chance),
        columns=("model", "labeled windows of each class", "mean", "subjects"),
        rows=rows,
        height=360,
        legend=True,
    )


def draw_adaptation(summary: Summary) -> Figure | None:
    """Draw the gains of subjects in an online session, by the order of their windows."""
    replay = None if summary.choice is None else summary.choice.replay
    if replay is None:
        return None
    gains_by_order = {
        order: {subject: replay.adapted[order][subject] - value for subject, value in scores.items()}
        for order, scores in replay.zero_shot.items()
    }
    gains, means = [list(g.values()) for g in gains_by_order.values()], [mean_of(g) for g in gains_by_order.values()]
    x_axis = plot.difference_axis("gain in an online session", chain(*gains), least=0.01)
    titles = [f"{format_label(order)}: {score(mean_of(replay.adapted[order]))}" for order in gains_by_order]
    heights, layout, height = plot.dot_rows(gains, x_axis, titles, [signed(mean) for mean in means])
    data = []
    for i, by_subject in enumerate(gains_by_order.values()):
        texts = [f"subject {format_label(subject)}: {signed(gain)}" for subject, gain in by_subject.items()]
        look = {"size": plot.DOT, "opacity": 0.6}
        data.append(plot.points(gains[i], heights[i], "subjects", fill=GREY, text=texts, marker=look))
        text, size = [signed(means[i])], {"size": 12}
        data.append(plot.points([means[i]], [i], "mean", fill=plot.gain_color(means[i]), text=text, marker=size))
    return Figure(
        key="adaptation",
        title="Gain from unlabeled windows",
        caption="Windows of held-out subjects are replayed one by one without labels, in several orders: as recorded, "
        "at random (balanced), class after class (one-sided), and with the largest class first. Small dots are "
        f"subjects, large dots means. The gain is the {summary.metric} over all windows in an online session minus "
        f"the {summary.metric} without adaptation. {describe_session(replay)}",
        data=data,
        layout=layout,
        columns=("order", "subject", "gain"),
        rows=[[order, subject, gain] for order, g in gains_by_order.items() for subject, gain in g.items()],
        height=height,
    )


def draw_curves(summary: Summary) -> Figure | None:
    """Draw the median loss over folds by epoch, up to the median number of epochs."""
    data: list[Json] = []
    rows: list[list[object]] = []
    for role, setting in summary.networks.items():
        if role == "uncensored":
            continue
        histories = [fit.record.history for fit in summary.fits if fit.setting == setting]
        for key, dash in (("train_loss", "dot"), ("validation_loss", "solid")):
            curves = [np.array(history[key]) for history in histories if np.isfinite(history[key]).any()]
            length = int(np.median([len(curve) for curve in curves])) if curves else 0
            epochs = np.unique(np.linspace(0, length - 1, MOST_EPOCHS).astype(int))[:length]
            losses = [[curve[e] for curve in curves if e < len(curve) and math.isfinite(curve[e])] for e in epochs]
            points = [(int(e) + 1, float(np.median(fold))) for e, fold in zip(epochs, losses, strict=True) if fold]
            if not points:
                continue
            part = "training" if key == "train_loss" else "validation"
            name, fill = f"{format_label(summary.network_labels[role])}, {part}", ACCENT if role == "chosen" else GREY
            x, y = [x for x, _ in points], [y for _, y in points]
            data.append(plot.line(x, y, name, stroke=fill, line={"dash": dash}))
            rows += [[name, epoch, loss] for epoch, loss in points]
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
    folds = list(dict.fromkeys(probe.test_subject for probes in summary.leakage.values() for probe in probes))
    if not folds:
        return None
    data = []
    for role, probes in summary.leakage.items():
        name, x = format_label(summary.network_labels[role]), [folds.index(probe.test_subject) for probe in probes]
        texts = [f"test subject {format_label(p.test_subject)}<br>{name}: {score(p.accuracy)}" for p in probes]
        y = [probe.accuracy for probe in probes]
        data.append(plot.points(x, y, name, fill=fills[role], text=texts, marker={"size": 10}))
    all_probes = [probe for probes in summary.leakage.values() for probe in probes]
    chance = float(np.mean([probe.chance for probe in all_probes]))
    x_axis = plot.names_axis(folds, "test subject of the fold")
    return Figure(
        key="leakage",
        title="Can a classifier recognize subjects from latent features?",
        caption="Accuracy of a new classifier that predicts the training subject of a window from the latent features "
        "of a network. Compare a network with a penalty with the same network without a penalty. The paper's network "
        "may have other preprocessing.",
        data=data,
        layout=plot.scores_layout(x_axis, "accuracy of the classifier", [p.accuracy for p in all_probes], chance),
        columns=("test subject", "model", "accuracy", "chance", "bits"),
        rows=[
            [probe.test_subject, role, probe.accuracy, probe.chance, probe.bits]
            for role, probes in summary.leakage.items()
            for probe in probes
        ],
        height=320,
        legend=True,
    )
