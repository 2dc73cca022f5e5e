"""Folds: windows for training, for validation and for testing, split by subject."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .errors import UserError, shown
from .recordings import Recordings
from .recordings.container import check_recordings
from .recordings.units import Units
from .words import count, printable

Rows = NDArray[np.int64]


MIN_FOLDS = 3  # smallest number of folds: one each for testing, validation and training
MANY_SUBJECTS = 20  # number of subjects above which DEFAULT_FOLDS replace one fold per subject
DEFAULT_FOLDS = 10
MIN_SCORABLE = 2  # smallest number of subjects that can be scored; a model is selected on one and tested on the other
NO_WINDOWS: Rows = np.empty(0, dtype=np.int64)
SUBJECT = "subject"
SESSION = "session"
MAX_NAMES = 5  # largest number of names in a message


def name_of(subject: Hashable) -> str:
    """Return the name of a subject, or the names of a tuple of subjects."""
    return ", ".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)


@dataclass(frozen=True, eq=False)
class Fold:
    """Disjoint positions of windows for training, validation and testing.

    Parameters
    ----------
    train, validation, test : array of int
        Positions of windows. Without validation windows, the weights of the last epoch are kept.
    validation_subject, test_subject : label, optional
        Names of the held-out subjects, for messages.
    """

    train: Rows
    validation: Rows = field(default_factory=NO_WINDOWS.copy)
    test: Rows = field(default_factory=NO_WINDOWS.copy)
    validation_subject: Hashable = None
    test_subject: Hashable = None

    @property
    def held_out(self) -> tuple[Rows, Rows]:
        """Return validation and test windows in the order of their first windows, equal for the swapped fold."""
        sets = (self.validation, self.test)
        first, second = sorted(sets, key=lambda rows: (len(rows) == 0, rows[0] if len(rows) else 0))
        return first, second

    @property
    def held_out_rows(self) -> Rows:
        """Return validation and test windows in the order of the recordings."""
        return np.union1d(self.validation, self.test).astype(np.int64)

    def swapped(self) -> Fold:
        """Return the fold with validation and test windows swapped."""
        return Fold(self.train, self.test, self.validation, self.test_subject, self.validation_subject)

    @cached_property
    def training_key(self) -> str:
        """Return a digest of the training windows, which is equal for the fold and the swapped fold."""
        return hashlib.blake2b(self.train.tobytes(), digest_size=8).hexdigest()

    @cached_property
    def key(self) -> str:
        """Return a digest of the windows of all three sets."""
        digest = hashlib.blake2b(digest_size=8)
        for rows in (self.train, self.validation, self.test):
            digest.update(len(rows).to_bytes(8, "little"))
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def __str__(self) -> str:
        test, validation = (printable(name_of(subject)) for subject in (self.test_subject, self.validation_subject))
        return (
            f"test {test} ({len(self.test)} windows), "
            f"validation {validation} ({len(self.validation)}), training {len(self.train)}"
        )

    __repr__ = __str__


def make_fold(recordings: Recordings, validation: int | Sequence[int], test: int | Sequence[int]) -> Fold:
    """Return the fold of two subjects, or groups of subjects, given as positions in recordings.subjects."""
    validation_subjects, test_subjects = (sorted({s} if isinstance(s, int) else set(s)) for s in (validation, test))
    if shared := set(validation_subjects) & set(test_subjects):
        name = recordings.subjects[min(shared)]
        raise UserError(f"subject {name!r} cannot be both the validation and the test subject")
    subject = recordings.subject.numpy()
    is_validation, is_test = np.isin(subject, validation_subjects), np.isin(subject, test_subjects)
    return Fold(
        train=np.flatnonzero(~is_validation & ~is_test).astype(np.int64),
        validation=np.flatnonzero(is_validation).astype(np.int64),
        test=np.flatnonzero(is_test).astype(np.int64),
        validation_subject=_find_names(recordings, validation_subjects),
        test_subject=_find_names(recordings, test_subjects),
    )


def _find_names(recordings: Recordings, positions: Sequence[int]) -> Hashable:
    """Return the name of one subject, or the names of several subjects."""
    names = tuple(recordings.subjects[position] for position in positions)
    return names[0] if len(names) == 1 else names


def divide_subjects(n_subjects: int, folds: int | None = None) -> list[list[int]]:
    """Return groups of positions of subjects: one group per subject or, if `folds` is given, that many groups.

    Group k has every folds-th subject from k on, because neighbors in a list may share a laboratory or a device.
    """
    folds = n_subjects if folds is None else min(folds, n_subjects)
    return [list(range(first, n_subjects, folds)) for first in range(folds)]


def held_out_groups(n_subjects: int, units: Units | None, folds: int | None = None) -> list[list[int]]:
    """Return groups of positions in recordings.subjects that are held out together. Each group is tested once.

    If sessions are held out, a fold holds out one session of each subject: of half the subjects for validation, of half
    for testing. The model is trained on the remaining sessions of all subjects.
    """
    if units is None:
        return divide_subjects(n_subjects, folds)
    index = {subject: position for position, subject in enumerate(units.unique_subjects)}
    groups = []
    for parts in divide_subjects(units.n_parts, folds):
        group = [unit for unit in range(n_subjects) if units.parts[unit] in parts]
        if units.hold_out == SESSION:
            groups += [[unit for unit in group if index[units.people[unit]] % 2 == half] for half in (0, 1)]
        else:
            groups.append(group)
    return groups


def groups_of(recordings: Recordings, folds: int | None = None) -> list[list[int]]:
    """Return groups of positions in recordings.subjects that are held out together."""
    return held_out_groups(recordings.n_subjects, recordings.units, folds)


def use_units(recordings: Recordings, hold_out: str) -> Recordings:
    """Return recordings whose `subject` is the held-out unit: a session of a subject, or a value of a column.

    Preprocessing, folds and scores by subject then apply to units. If subjects are held out, the recordings are
    returned unchanged.
    """
    if hold_out == SUBJECT or recordings.units is not None:
        return recordings
    values, labels = _find_sessions(recordings) if hold_out == SESSION else _find_values(recordings, hold_out)
    pairs, unit = np.unique(np.stack([recordings.subject.numpy(), values]), axis=1, return_inverse=True)
    people, codes = pairs.tolist()
    parts = _number_sessions(recordings, pairs[0]) if hold_out == SESSION else codes
    units = Units(
        hold_out=hold_out,
        names=tuple(f"{recordings.subjects[p]}, {hold_out} {labels[v]}" for p, v in zip(people, codes, strict=True)),
        people=tuple(str(recordings.subjects[person]) for person in people),
        parts=tuple(parts),
    )
    return _with_subjects(recordings, torch.from_numpy(unit.reshape(-1).astype(np.int64)), units.names, units)


def use_whole_subjects(recordings: Recordings) -> Recordings:
    """Return recordings whose `subject` is the subject, not the held-out unit."""
    units = recordings.units
    if units is None:
        return recordings
    index = {name: position for position, name in enumerate(units.unique_subjects)}
    subject = torch.tensor([index[name] for name in units.people])[recordings.subject]
    return _with_subjects(recordings, subject, units.unique_subjects, None)


def _with_subjects(recordings: Recordings, subject: Tensor, names: tuple[str, ...], units: Units | None) -> Recordings:
    result = copy.copy(recordings)
    for name, value in {"subject": subject, "subjects": names, "units": units, "derived": {}}.items():
        object.__setattr__(result, name, value)
    return result


def _find_sessions(recordings: Recordings) -> tuple[Rows, list[str]]:
    """Return the session (N,) of each window as 0, 1, …, and the labels of the sessions."""
    if recordings.session is None:
        raise UserError(
            "hold_out is 'session', but the recordings have no sessions; "
            "give the session of every window, or leave hold_out out"
        )
    labels, values = np.unique(recordings.session.numpy(), return_inverse=True)
    return values.astype(np.int64), [str(label) for label in labels]


def _number_sessions(recordings: Recordings, subjects: Rows) -> list[int]:
    """Return the part of each unit from its subject (n,): the position of the session among the subject's sessions."""
    counts = np.bincount(subjects, minlength=recordings.n_subjects)
    single = [str(recordings.subjects[position]) for position in np.flatnonzero(counts < 2).tolist()]
    if single:
        suffix = f" and {len(single) - MAX_NAMES} more" if len(single) > MAX_NAMES else ""
        raise UserError(
            f"{len(single)} of {recordings.n_subjects} subjects have only one session "
            f"({', '.join(map(shown, single[:MAX_NAMES]))}{suffix}); hold out subjects, or record two sessions of each"
        )
    return [rank % int(counts.min()) for n in counts.tolist() for rank in range(n)]


def _find_values(recordings: Recordings, name: str) -> tuple[Rows, list[str]]:
    """Return the value (N,) of a column in each window as 0, 1, …, and the labels of the values."""
    if name not in recordings.columns:
        choices = [SUBJECT, *([SESSION] if recordings.session is not None else []), *recordings.columns]
        raise UserError(f"hold_out is {shown(name)}, which is not a column; choose from {', '.join(choices)}")
    column = recordings.columns[name]
    if column.labels is None:
        raise UserError(f"hold_out is {shown(name)}, which is a continuous column; give whole numbers or text in it")
    if n_missing := int((column.values < 0).sum()):
        raise UserError(
            f"the column {shown(name)} has no value for {n_missing} of {recordings.n_windows} windows; "
            "add the values, or remove these windows"
        )
    codes, values = np.unique(column.values, return_inverse=True)
    if len(codes) < MIN_FOLDS:
        raise UserError(
            f"the column {shown(name)} has {count(len(codes), 'value')}; "
            f"hold_out needs at least {MIN_FOLDS}: for testing, validation and training"
        )
    return values.astype(np.int64), [str(column.labels[value]) for value in codes.tolist()]


def leave_groups_out(recordings: Recordings, folds: int | None = None) -> list[Fold]:
    """Return one fold per group of subjects, which tests on the group and validates on the previous group."""
    groups = groups_of(recordings, folds)
    return [make_fold(recordings, groups[index - 1], group) for index, group in enumerate(groups)]


def leave_one_subject_out(recordings: Recordings) -> list[Fold]:
    """Return one fold per subject, which tests on the subject and validates on the previous subject.

    Parameters
    ----------
    recordings : Recordings
        Windows of at least three subjects.

    Returns
    -------
    list of Fold
        Positions of windows for training, validation and testing.
    """
    check_recordings(recordings, "leave_one_subject_out")
    return [make_fold(recordings, (test or recordings.n_subjects) - 1, test) for test in range(recordings.n_subjects)]


def scorable_subjects(recordings: Recordings) -> list[int]:
    """Return positions of subjects that can be scored: with windows of two classes, or different target values."""
    subject, y = recordings.subject.numpy(), recordings.truth.numpy()
    return [position for position in range(recordings.n_subjects) if len(np.unique(y[subject == position])) > 1]


def unscored_subjects(recordings: Recordings) -> list[str]:
    """Return names of subjects that cannot be scored."""
    scorable = set(scorable_subjects(recordings))
    return [str(name) for position, name in enumerate(recordings.subjects) if position not in scorable]


def check_subjects(recordings: Recordings) -> None:
    """Raise if every window has a different subject."""
    if recordings.n_subjects == recordings.n_windows:
        raise UserError(
            f"each of the {recordings.n_windows} windows has a different subject; "
            "give the person who was recorded as the subject of each window"
        )


def check_scorable(recordings: Recordings) -> None:
    """Raise if too few subjects can be scored to select a model."""
    check_subjects(recordings)
    n_scored = len(scorable_subjects(recordings))
    if n_scored < MIN_SCORABLE:
        content = "windows of two classes" if recordings.targets is None else "a target that changes"
        raise UserError(
            f"only {n_scored} of {recordings.n_subjects} subjects have {content}; at least {MIN_SCORABLE} are needed"
        )


def describe(folds: list[Fold]) -> str:
    """Return a description of folds with one line per fold."""
    return "\n".join(f"fold {index}: {fold}" for index, fold in enumerate(folds))
