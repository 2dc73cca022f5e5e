"""Which windows of a held-out person are labelled, and which are scored.

Windows of a group (a column `group`: a run, a trial, a repetition) overlap or follow each other, and the label of one
tells much about the next. So a group is either labelled or scored, never both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..recordings import Recordings

Rows = NDArray[np.int64]
GROUP = "group"  # the column


def groups_of(recordings: Recordings, rows: Rows) -> Rows:
    """(n,): the number of each window's group, within its session, for windows of one person. A window without a group
    is a group by itself."""
    column = recordings.columns.get(GROUP)
    alone = np.arange(len(rows))
    if column is None or column.continuous:
        return alone
    group = np.asarray(column.values)[rows]
    session = np.zeros_like(alone) if recordings.session is None else recordings.session.numpy()[rows]
    apart = np.where(group < 0, alone, -1)
    return np.unique(np.stack([session, group, apart], 1), axis=0, return_inverse=True)[1].reshape(-1)


def labelled_and_scored(y: Rows, groups: Rows, labels: int, most: int) -> tuple[Rows, Rows]:
    """Indices of windows to label, the first `labels` of each class, and to score, the first ones of each class in
    groups without a label; together at most `most` of a class. y, groups: (n,) of one person in the order of
    recording."""
    everything = np.arange(len(y))
    known = first_of_each(y, everything, labels)
    left = everything[~np.isin(groups, groups[known])]
    return known, first_of_each(y, left, most - labels) if len(left) else left


def first_of_each(y: Rows, rows: Rows, most: int) -> Rows:
    """The first `most` rows of each class, in the order of recording."""
    return np.sort(np.concatenate([rows[y[rows] == label][:most] for label in np.unique(y[rows])]))
