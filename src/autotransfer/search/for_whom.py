"""For whom the delivered model works: scores by group of the recordings' columns, such as age, sex, site or day."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..recordings import Recordings
from ..recordings.columns import Column
from ..runs.choice import GroupScore
from ..training.intervals import FEWEST_TO_TEST, bootstrap_interval
from ..training.scoring import Metric
from .held_out import person_score

MOST_GROUPS = 12  # of a column; one with more is no division into groups
MUCH = 0.05  # of a score: less is not worth a warning

Floats = NDArray[np.floating]


def group_scores(recordings: Recordings, metric: Metric, log_probs: Mapping[int, Floats]) -> list[GroupScore]:
    """Scores of each group of every column. log_probs: by person (n, C), of models that never saw them.

    Where everybody has one value, people of a group are compared with all others. Where a value varies within people,
    each person's windows of the group are compared with their other windows.
    """
    who, y, scores = recordings.subject.numpy(), recordings.y.numpy(), []
    for column, (codes, names) in _columns(recordings).items():
        known = {p: values for p in log_probs if ((values := codes[who == p]) >= 0).any()}
        within = any(len(np.unique(values[values >= 0])) > 1 for values in known.values())
        for group, name in enumerate(names):
            inside: dict[int, float] = {}
            outside: dict[int, float] = {}
            for p, values in known.items():
                labels, probability = y[who == p], np.exp(log_probs[p])
                for rows, table in ((values == group, inside), ((values >= 0) & (values != group), outside)):
                    if len(np.unique(labels[rows])) > 1:
                        table[p] = person_score(metric, labels[rows], probability[rows])
            if inside:
                scores.append(_compared(column, name, inside, outside, within=within))
    return scores


def _compared(
    column: str, name: str, inside: dict[int, float], outside: dict[int, float], *, within: bool
) -> GroupScore:
    values = list(inside.values())
    low, high = _difference(inside, outside, within=within)
    if len(values) < FEWEST_TO_TEST:
        concern = "few"
    elif high < 0 and (low + high) / 2 < -MUCH:
        concern = "worse"
    else:
        concern = ""
    interval = bootstrap_interval(values, seed=0)
    return GroupScore(
        column=column, group=name, people=len(values), mean=float(np.mean(values)),
        interval=[] if interval is None else list(interval),
        difference=[] if math.isnan(low) else [low, high], within=within, concern=concern,
    )  # fmt: skip


def _difference(inside: dict[int, float], outside: dict[int, float], *, within: bool) -> tuple[float, float]:
    """95 % interval of the group minus the others; NaN where there are too few of either."""
    if within:
        gaps = [value - outside[p] for p, value in inside.items() if p in outside]
        return bootstrap_interval(gaps, seed=0) or (math.nan, math.nan)
    a, b = list(inside.values()), list(outside.values())
    if min(len(a), len(b)) < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return math.nan, math.nan
    from scipy import stats  # takes a second to import

    limits = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    return float(limits.low), float(limits.high)


def _columns(recordings: Recordings) -> dict[str, tuple[NDArray[np.int64], list[str]]]:
    """By name: the group of each trial (N,), -1 where it is missing, and the names of the groups."""
    columns = {name: _groups(column) for name, column in recordings.columns.items()}
    if recordings.session is not None:
        values, codes = np.unique(recordings.session.numpy(), return_inverse=True)
        columns["session"] = codes.astype(np.int64), [str(value) for value in values]
    return {name: (codes, groups) for name, (codes, groups) in columns.items() if 2 <= len(groups) <= MOST_GROUPS}


def _groups(column: Column) -> tuple[NDArray[np.int64], list[str]]:
    """A continuous column, or one of many numbers such as an age, is cut at its median."""
    values, labels = column.values, column.labels
    if labels is not None and (len(labels) <= MOST_GROUPS or any(isinstance(label, str) for label in labels)):
        return values, [str(label) for label in labels]
    if labels is not None:
        values = np.where(values < 0, math.nan, np.array([*labels, math.nan], dtype=np.float64)[values])
    known = values[~np.isnan(values)]
    if len(np.unique(known)) < 2:
        return np.full(len(values), -1, dtype=np.int64), []
    middle = float(np.median(known))
    middle = middle if (known > middle).any() else float(np.unique(known)[-2])
    codes = np.where(np.isnan(values), -1, values > middle).astype(np.int64)
    return codes, [f"up to {middle:g}", f"above {middle:g}"]
