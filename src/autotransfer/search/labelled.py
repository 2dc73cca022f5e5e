"""Which windows of a held-out person are labelled, and which are scored: never two of one group.

Windows of a group (a column `group`: a run, a trial, a repetition) overlap or follow each other, and a model that knows
the label of one knows much of the next. A group is wholly labelled or wholly scored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..recordings import Recordings

Rows = NDArray[np.int64]
GROUP = "group"  # the column


def groups_of(recordings: Recordings, rows: Rows) -> Rows:
    """(n,): a number for the group of each of these windows of one person, in its session; every window that nobody
    says a group of is one by itself."""
    column = recordings.columns.get(GROUP)
    alone = np.arange(len(rows))
    if column is None or column.continuous:
        return alone
    group = np.asarray(column.values)[rows]
    session = np.zeros_like(alone) if recordings.session is None else recordings.session.numpy()[rows]
    apart = np.where(group < 0, alone, -1)
    return np.unique(np.stack([session, group, apart], 1), axis=0, return_inverse=True)[1].reshape(-1)


def labelled_and_scored(y: Rows, groups: Rows, labels: int, most: int) -> tuple[Rows, Rows]:
    """Places of the first `labels` windows of each class, and of the first ones of each class in groups of which none
    is labelled: in all, at most `most` of a class. y, groups: (n,) of one person in the order of recording."""
    everything = np.arange(len(y))
    known = first_of_each(y, everything, labels)
    left = everything[~np.isin(groups, groups[known])]
    return known, first_of_each(y, left, most - labels) if len(left) else left


def first_of_each(y: Rows, rows: Rows, most: int) -> Rows:
    """The first rows of each class, as many as `most`, in the order of recording."""
    return np.sort(np.concatenate([rows[y[rows] == label][:most] for label in np.unique(y[rows])]))
