"""Scores of predictions by subject, and confusion matrices, for data with labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..models.calibration import encode_labels
from ..models.model import Model
from ..models.overlap import CALIBRATION, describe_overlap, find_overlap, window_digests
from ..recordings import Raw
from ..recordings.labels import label_names
from ..recordings.targets import parse_targets
from ..tasks import Metric, Task
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION_TASK
from ..training.intervals import mean_interval
from ..words import count, score
from .escaping import shorten_label
from .statistics import summarize

MOST_SUBJECTS = 20  # maximum number of subjects in the terminal
MOST_CLASSES = 12  # maximum number of classes of a confusion matrix in the terminal
UNKNOWN = ""  # name of the subject if the data do not name subjects


@dataclass(frozen=True)
class SubjectScores:
    """True and predicted values of windows, from which scores by subject are computed.

    classes: names of the model's classes; none for regression
    y: classes (N,), or targets (N,) with NaN if missing
    predicted: probabilities (N, C), or targets (N,)
    """

    classes: list[str]
    y: NDArray[Any]
    predicted: NDArray[np.float64]
    subject: list[Any] | None
    task: Task = CLASSIFICATION_TASK

    @classmethod
    def from_predictions(cls, model: Model, raw: Raw, predicted: NDArray[np.float64]) -> SubjectScores | None:
        """Return the scores of predictions; None without labels. Raise if a label is not a class of the model."""
        if raw.y is None:
            return None
        card, n = model.card, len(predicted)
        try:
            if card.task.is_numeric:
                y = parse_targets(raw.y, n)
            else:
                y = encode_labels(card.classes, raw.y, n, raw.classes).numpy()
        except UserError as error:
            raise UserError(f"no scores: {error}") from None
        subjects = None if raw.subject is None else label_names(raw.subject, n, "subject", raw.subjects)
        return cls([str(name) for name in card.classes], y, predicted, subjects, card.task)

    def describe_overlap(self, model: Model, X: Tensor, metric: Metric) -> list[str]:
        """Return lines on windows that trained or calibrated the model, and the score on new windows. X: windows."""
        digests_of_card, digests = model.card.seen, window_digests(X)
        lines = describe_overlap(digests_of_card, digests, self.subject)
        new = np.flatnonzero(~find_overlap(digests_of_card, CALIBRATION, digests))
        if 0 < len(new) < len(X):
            value = metric.score(self.y[new], self.predicted[new])
            lines.append(f"{metric.label} on the other {count(len(new), 'window')}: {score(value)}")
        return lines

    def describe_decisions(self, table: pd.DataFrame, metric: Metric) -> list[str]:
        """Return lines on abstention and prediction sets if a table of predictions has these columns."""
        lines = []
        if "answered" in table:
            answered = table["answered"].to_numpy()
            n_unanswered = count(int((~answered).sum()), "window")
            value = metric.score(self.y[answered], self.predicted[answered]) if answered.any() else math.nan
            lines.append(
                f"{n_unanswered} of {len(answered)} left unanswered; {metric.label} on answered windows: {score(value)}"
            )
        names = [f"set_{name}" for name in self.classes]
        if names and names[0] in table:
            sets = table[names].to_numpy()
            coverage, size = sets[np.arange(len(sets)), self.y].mean(), sets.sum(1).mean()
            lines.append(
                f"the sets of {100 * coverage:.0f} % of windows contain the true class; mean size {size:.1f} classes"
            )
        return lines

    @cached_property
    def windows(self) -> dict[Any, NDArray[np.int64]]:
        """Return the indices of the labeled windows of each subject."""
        labeled = np.flatnonzero(np.isfinite(self.y))
        if self.subject is None:
            return {UNKNOWN: labeled}
        rows: dict[Any, list[int]] = {}
        for row in labeled.tolist():
            rows.setdefault(self.subject[row], []).append(row)
        return {subject: np.array(indices) for subject, indices in rows.items()}

    def by_subject(self, metric: Metric) -> dict[Any, float]:
        """Return the score of each subject; NaN if all windows have one class or one target."""
        return {name: metric.score(self.y[rows], self.predicted[rows]) for name, rows in self.windows.items()}

    def confusion(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts (C, C): true class × predicted class."""
        n = len(self.classes)
        cells = self.y[rows] * n + self.predicted[rows].argmax(1)
        return np.bincount(cells, minlength=n * n).reshape(n, n)

    def table(self) -> pd.DataFrame:
        """Return a row for each subject: number of windows, every metric, and counts of true × predicted classes."""
        scores = {name: self.by_subject(metric) for name, metric in self.task.metrics.items()}
        records = []
        for subject, rows in self.windows.items():
            record: dict[str, Any] = {"subject": subject, "windows": len(rows)}
            record |= {name: values[subject] for name, values in scores.items()}
            for k, counts in enumerate(self.confusion(rows) if self.classes else ()):
                record |= {f"{self.classes[k]} as {name}": int(n) for name, n in zip(self.classes, counts, strict=True)}
            records.append(record)
        return pd.DataFrame(records)

    def lines(self, name: str = BALANCED_ACCURACY) -> list[str]:
        """Return lines for a terminal: the mean score, the scores of subjects, and the confusion matrix."""
        metric = self.task.metric(name)
        by_subject = self.by_subject(metric)
        values = [value for value in by_subject.values() if math.isfinite(value)]
        y_by_subject = [self.y[self.windows[name]] for name, value in by_subject.items() if math.isfinite(value)]
        guessing = metric.chance(y_by_subject or [self.y], len(self.classes)) if self.classes else math.nan
        chance = f" ({self.task.chance_words(guessing)})" if math.isfinite(guessing) else ""
        limits = mean_interval(values, metric.limits)
        lines = [f"Not clearly better than {self.task.guess}{chance}"] if limits and limits[0] <= guessing else []
        if len(by_subject) == 1:
            ((subject, value),) = by_subject.items()
            owner = "" if subject == UNKNOWN else f" of subject {shorten_label(subject)}"
            windows = count(len(self.windows[subject]), "window")
            lines.append(f"{metric.label}{owner} on {windows}: {score(value)}{chance}")
        elif not values:
            lines.append(f"{metric.label}{chance}: no subject has a score because {self.task.one_value_reason}")
        else:
            subjects = count(len(values), "subject")
            lines += [f"{metric.label} on {subjects}{chance}: {summarize(values)}", *self._list_subjects(by_subject)]
        return [*lines, *self._list_confusions()]

    def _list_subjects(self, by_subject: dict[Any, float]) -> list[str]:
        listed_scores = list(by_subject.items())[:MOST_SUBJECTS]
        names = [shorten_label(subject) for subject, _ in listed_scores]
        width = max(map(len, names))
        lines = [
            f"  {label:{width}}  {score(value):>5}  {count(len(self.windows[subject]), 'window')}"
            for label, (subject, value) in zip(names, listed_scores, strict=True)
        ]
        n_more = len(by_subject) - len(listed_scores)
        return [*lines, f"  and {n_more} more; --scores FILE lists all subjects"] if n_more else lines

    def _list_confusions(self) -> list[str]:
        """Return lines with the counts of true × predicted classes."""
        if not self.classes:
            return []
        if len(self.classes) > MOST_CLASSES:
            return [f"The confusion matrix of {len(self.classes)} classes is in --scores FILE"]
        counts, names = self.confusion(np.arange(len(self.y))), [shorten_label(name, 14) for name in self.classes]
        first, width = max(map(len, names)), max(*map(len, names), len(str(counts.max())))
        lines = [" " * (first + 2) + "".join(f"  {name:>{width}}" for name in names)]
        for name, row in zip(names, counts, strict=True):
            lines.append(f"  {name:{first}}" + "".join(f"  {n:>{width}}" for n in row))
        return ["windows by true class (rows) and predicted class (columns):", *lines]


def count_predictions(table: pd.DataFrame, task: Task) -> str:
    """Return a line with the number of predictions of each class, or with the mean and range of numbers."""
    predicted, windows = table["prediction"], count(len(table), "window")
    if task.is_numeric:
        mean, low, high = (f"{value:.3g}" for value in (predicted.mean(), predicted.min(), predicted.max()))
        return f"Predicted {windows}: mean {mean}, from {low} to {high}"
    counts = [f"{shorten_label(name)} {n}" for name, n in predicted.value_counts(sort=False).sort_index().items()]
    return f"Predicted {windows}: {', '.join(counts)}"
