"""Scores of predictions if classes or numbers are known: by person, with the confusion of classes."""

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
from ..folds import SESSION
from ..models.calibration import encode_labels
from ..models.model import Model
from ..models.overlap import CALIBRATION, describe_overlap, find_overlap, window_digests
from ..recordings import Raw
from ..recordings.labels import label_names
from ..recordings.targets import parse_targets
from ..runs.headline import introduce_headline
from ..tasks import Metric, Task
from ..tasks.classification import BALANCED_ACCURACY, CLASSIFICATION_TASK
from ..training.intervals import bootstrap_interval
from .escaping import short
from .statistics import spread
from .wording import count, score

MOST_PEOPLE = 20  # that the terminal lists
MOST_CLASSES = 12  # that a confusion table has room for
NOBODY = ""  # whose windows are nobody's
KNOWN_PEOPLE = (
    "that is of new sessions of people it was trained on; somebody it was not trained on may score lower "
    "(for new people run without --hold-out session)"
)


@dataclass(frozen=True)
class SubjectScores:
    """Predictions of windows, with the subject of each.

    classes: of the model; none if it predicts a number
    y: classes (N,), or numbers, NaN where one is missing
    predicted: probabilities (N, C), or numbers (N,)
    """

    classes: list[str]
    y: NDArray[Any]
    predicted: NDArray[np.float64]
    subject: list[Any] | None
    task: Task = CLASSIFICATION_TASK

    @classmethod
    def of(cls, model: Model, raw: Raw, predicted: NDArray[np.float64]) -> SubjectScores | None:
        """Return the scores of predictions; None if the data have no labels. Raise if these are not the model's."""
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
        people = None if raw.subject is None else label_names(raw.subject, n, "subject", raw.subjects)
        return cls([str(name) for name in card.classes], y, predicted, people, card.task)

    def seen_lines(self, model: Model, X: Tensor, metric: Metric) -> list[str]:
        """Say which of these people and windows are not new to the model, and what the score is without windows that it
        was calibrated with. X: the windows as `model.read` arranges them, as they were in training."""
        seen, digests = model.card.seen, window_digests(X)
        lines = describe_overlap(seen, digests, self.subject)
        rest = np.flatnonzero(~find_overlap(seen, CALIBRATION, digests))
        if 0 < len(rest) < len(X):
            value = metric.score(self.y[rest], self.predicted[rest])
            lines.append(f"{metric.label} of the other {count(len(rest), 'window')}: {score(value)}")
        return lines

    def decision_lines(self, table: pd.DataFrame, metric: Metric) -> list[str]:
        """Describe windows left unanswered and prediction sets, from a table of `predictions` that has them."""
        lines = []
        if "answered" in table:
            answered = table["answered"].to_numpy()
            unanswered = count(int((~answered).sum()), "window")
            value = metric.score(self.y[answered], self.predicted[answered]) if answered.any() else math.nan
            lines.append(
                f"{unanswered} of {len(answered)} left unanswered; {metric.label} of the others: {score(value)}"
            )
        names = [f"set_{name}" for name in self.classes]
        if names and names[0] in table:
            sets = table[names].to_numpy()
            holds, size = sets[np.arange(len(sets)), self.y].mean(), sets.sum(1).mean()
            lines.append(
                f"prediction sets hold the class of {100 * holds:.0f} % of windows, with {size:.1f} classes on average"
            )
        return lines

    @cached_property
    def people(self) -> dict[Any, NDArray[np.int64]]:
        """Return the rows with a label of each person, in the order of their first one."""
        labeled = np.flatnonzero(np.isfinite(self.y))
        if self.subject is None:
            return {NOBODY: labeled}
        rows: dict[Any, list[int]] = {}
        for row in labeled.tolist():
            rows.setdefault(self.subject[row], []).append(row)
        return {person: np.array(numbers) for person, numbers in rows.items()}

    def by_person(self, metric: Metric) -> dict[Any, float]:
        """Return the score of each person; NaN for people with windows of one class, or of one number, only."""
        return {who: metric.score(self.y[rows], self.predicted[rows]) for who, rows in self.people.items()}

    def confusion(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return counts (C, C): true class × predicted class."""
        n = len(self.classes)
        cells = self.y[rows] * n + self.predicted[rows].argmax(1)
        return np.bincount(cells, minlength=n * n).reshape(n, n)

    def table(self) -> pd.DataFrame:
        """Return a row for each person: windows, every metric, and counts of true and predicted classes."""
        scores = {name: self.by_person(metric) for name, metric in self.task.metrics.items()}
        lines = []
        for person, rows in self.people.items():
            line: dict[str, Any] = {"subject": person, "windows": len(rows)}
            line |= {name: values[person] for name, values in scores.items()}
            for k, counts in enumerate(self.confusion(rows) if self.classes else ()):
                line |= {f"{self.classes[k]} as {name}": int(n) for name, n in zip(self.classes, counts, strict=True)}
            lines.append(line)
        return pd.DataFrame(lines)

    def lines(self, name: str = BALANCED_ACCURACY) -> list[str]:
        """Return lines for a terminal, by one metric; the first one says if it is not clearly better than guessing."""
        metric = self.task.metric(name)
        by_person = self.by_person(metric)
        values = [value for value in by_person.values() if math.isfinite(value)]
        whose = [self.y[self.people[who]] for who, value in by_person.items() if math.isfinite(value)] or [self.y]
        guessing = metric.chance(whose, len(self.classes)) if self.classes else math.nan
        chance = f" ({self.task.chance_words(guessing)})" if math.isfinite(guessing) else ""
        limits = bootstrap_interval(values, seed=0)
        lines = [f"Not clearly better than {self.task.guess}{chance}"] if limits and limits[0] <= guessing else []
        if self.subject is None:
            lines.append(f"{metric.label} of {count(len(self.y), 'window')}: {score(by_person[NOBODY])}{chance}")
        elif not values:
            lines.append(f"{metric.label}{chance}: nobody was scored because {self.task.one_value}")
        else:
            people = count(len(values), "person", "people")
            lines += [f"{metric.label} on {people}{chance}: {spread(values)}", *self._listed(by_person)]
        return [*lines, *self._confused()]

    def _listed(self, by_person: dict[Any, float]) -> list[str]:
        shown = list(by_person.items())[:MOST_PEOPLE]
        names = [short(person) for person, _ in shown]
        width = max(map(len, names))
        lines = [
            f"  {label:{width}}  {score(value)}  {count(len(self.people[person]), 'window')}"
            for label, (person, value) in zip(names, shown, strict=True)
        ]
        rest = len(by_person) - len(shown)
        return [*lines, f"  and {rest} more: --scores FILE has them all"] if rest else lines

    def _confused(self) -> list[str]:
        """Return counts of true × predicted class."""
        if not self.classes:
            return []
        if len(self.classes) > MOST_CLASSES:
            return [f"{len(self.classes)} classes: --scores FILE has which was taken for which"]
        counts, names = self.confusion(np.arange(len(self.y))), [short(name, 14) for name in self.classes]
        first, width = max(map(len, names)), max(*map(len, names), len(str(counts.max())))
        lines = [" " * (first + 2) + "".join(f"  {name:>{width}}" for name in names)]
        for name, row in zip(names, counts, strict=True):
            lines.append(f"  {name:{first}}" + "".join(f"  {n:>{width}}" for n in row))
        return ["windows by class (down) and prediction (across):", *lines]


def card_words(model: Model) -> list[str]:
    """Return the headline that the model's card holds, if it was measured on held-out people."""
    sentence = model.card.scores.get("headline")
    if not isinstance(sentence, str) or not sentence:
        return []
    known = [KNOWN_PEOPLE] if model.card.scores.get("hold_out") == SESSION else []
    return [introduce_headline(sentence, calibrated=bool(model.card.seen.get(CALIBRATION))), *known]
