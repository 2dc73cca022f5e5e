"""Folds: rows to train on, to choose the snapshot by, and to test on."""

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


FEWEST_FOLDS = 3  # one group of people tests, one validates, the rest train
MANY_SUBJECTS = 20  # above this many, leaving out one at a time costs more than it tells
DEFAULT_FOLDS = 10  # for more than MANY_SUBJECTS
MIN_SCORABLE = 2  # people: one is measured, and decided about without themselves
NOBODY: Rows = np.empty(0, dtype=np.int64)
SUBJECT = "subject"
SESSION = "session"
MOST_NAMES = 5  # in a message


def name_of(subject: Hashable) -> str:
    """Write the name of one subject, or of several."""
    return ", ".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)


@dataclass(frozen=True, eq=False)
class Fold:
    """Disjoint sets of rows: those to train on, and up to two held-out sets, one to validate on and one to test on.

    Without validation rows the weights of the last epoch are kept. Without test rows there is no test score.
    """

    train: Rows
    validation: Rows = field(default_factory=NOBODY.copy)
    test: Rows = field(default_factory=NOBODY.copy)
    validation_subject: Hashable = None
    test_subject: Hashable = None

    @property
    def held_out(self) -> tuple[Rows, Rows]:
        """Return the held-out sets in an order that is the same for the swapped fold: by first row, empty ones last."""
        sets = (self.validation, self.test)
        first, second = sorted(sets, key=lambda rows: (len(rows) == 0, rows[0] if len(rows) else 0))
        return first, second

    @property
    def held_out_rows(self) -> Rows:
        """Return the rows of both held-out sets, in the order of the data."""
        return np.union1d(self.validation, self.test).astype(np.int64)

    def swapped(self) -> Fold:
        """Return the fold with the validation and the test subject exchanged."""
        return Fold(self.train, self.test, self.validation, self.test_subject, self.validation_subject)

    @cached_property
    def trajectory(self) -> str:
        """Return a digest of the training rows, which are all that weights and minibatches may depend on.

        A fold and its swapped twin agree in it, so that one fit serves both.
        """
        return hashlib.blake2b(self.train.tobytes(), digest_size=8).hexdigest()

    @cached_property
    def key(self) -> str:
        """Return a digest of all three sets of rows."""
        digest = hashlib.blake2b(digest_size=8)
        for rows in (self.train, self.validation, self.test):
            digest.update(len(rows).to_bytes(8, "little"))
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def __str__(self) -> str:
        test, validation = (printable(name_of(who)) for who in (self.test_subject, self.validation_subject))
        return (
            f"test {test} ({len(self.test)} trials), "
            f"validation {validation} ({len(self.validation)}), training {len(self.train)}"
        )

    __repr__ = __str__


def make_fold(recordings: Recordings, validation: int | Sequence[int], test: int | Sequence[int]) -> Fold:
    """Leave two subjects out, or two groups of them, given as positions in recordings.subjects."""
    validates, tests = (sorted({held} if isinstance(held, int) else set(held)) for held in (validation, test))
    if both := set(validates) & set(tests):
        name = recordings.subjects[min(both)]
        raise UserError(f"subject {name!r} cannot be both the validation and the test subject")
    subject = recordings.subject.numpy()
    chosen, measured = np.isin(subject, validates), np.isin(subject, tests)
    return Fold(
        train=np.flatnonzero(~chosen & ~measured).astype(np.int64),
        validation=np.flatnonzero(chosen).astype(np.int64),
        test=np.flatnonzero(measured).astype(np.int64),
        validation_subject=_named(recordings, validates),
        test_subject=_named(recordings, tests),
    )


def _named(recordings: Recordings, people: Sequence[int]) -> Hashable:
    """Return the name of a subject, or those of several."""
    names = tuple(recordings.subjects[person] for person in people)
    return names[0] if len(names) == 1 else names


def divide_subjects(n_subjects: int, folds: int | None = None) -> list[list[int]]:
    """Return positions of people in groups that are held out together: everybody alone or, with `folds`, every
    folds-th one. So neighbors in a list of people, who may share a place or a device, are in different groups."""
    folds = n_subjects if folds is None else min(folds, n_subjects)
    return [list(range(first, n_subjects, folds)) for first in range(folds)]


def held_out_groups(n_subjects: int, units: Units | None, folds: int | None = None) -> list[list[int]]:
    """Return positions in recordings.subjects of those that are held out together: each group tests once, and the group
    before it validates.

    Sessions: those of one part, once of every second person and once of the others. So a fold leaves out one session of
    everybody, half of them to validate and half to test, and trains on everybody's other sessions.
    """
    if units is None:
        return divide_subjects(n_subjects, folds)
    place = {person: number for number, person in enumerate(units.everybody)}
    groups = []
    for parts in divide_subjects(units.n_parts, folds):
        group = [unit for unit in range(n_subjects) if units.parts[unit] in parts]
        if units.hold_out == SESSION:
            groups += [[unit for unit in group if place[units.people[unit]] % 2 == half] for half in (0, 1)]
        else:
            groups.append(group)
    return groups


def groups_of(recordings: Recordings, folds: int | None = None) -> list[list[int]]:
    return held_out_groups(recordings.n_subjects, recordings.units, folds)


def use_units(recordings: Recordings, hold_out: str) -> Recordings:
    """Return recordings whose `subject` is the unit that is held out: each person's sessions, or their windows of each
    value of a column. To hold out people, they stay as they are.

    Everything that is fitted to a person, or must not know who is tested, then works on units without a change.
    """
    if hold_out == SUBJECT or recordings.units is not None:
        return recordings
    who = recordings.subject.numpy()
    values, labels = _sessions(recordings) if hold_out == SESSION else _values(recordings, hold_out)
    pairs, subject = np.unique(np.stack([who, values]), axis=1, return_inverse=True)
    people, of_unit = pairs.tolist()
    parts = _session_parts(recordings, pairs[0]) if hold_out == SESSION else of_unit
    units = Units(
        hold_out=hold_out,
        names=tuple(f"{recordings.subjects[p]}, {hold_out} {labels[v]}" for p, v in zip(people, of_unit, strict=True)),
        people=tuple(str(recordings.subjects[person]) for person in people),
        parts=tuple(parts),
    )
    return _with_subjects(recordings, torch.from_numpy(subject.reshape(-1).astype(np.int64)), units.names, units)


def use_whole_subjects(recordings: Recordings) -> Recordings:
    """Return the recordings with people in `subject` again."""
    units = recordings.units
    if units is None:
        return recordings
    place = {person: number for number, person in enumerate(units.everybody)}
    subject = torch.tensor([place[person] for person in units.people])[recordings.subject]
    return _with_subjects(recordings, subject, units.everybody, None)


def _with_subjects(recordings: Recordings, subject: Tensor, names: tuple[str, ...], units: Units | None) -> Recordings:
    fresh = copy.copy(recordings)
    for name, value in {"subject": subject, "subjects": names, "units": units, "derived": {}}.items():
        object.__setattr__(fresh, name, value)
    return fresh


def _sessions(recordings: Recordings) -> tuple[Rows, list[str]]:
    if recordings.session is None:
        raise UserError(
            "the recordings have no sessions to hold out; give the session of every window as session, or leave "
            "--hold-out out"
        )
    labels, values = np.unique(recordings.session.numpy(), return_inverse=True)
    return values.astype(np.int64), [str(label) for label in labels]


def _session_parts(recordings: Recordings, people: Rows) -> list[int]:
    """Return the part of each unit, in the order of people (n,) and their sessions: everybody's first sessions are one
    part, and so on; people with more sessions than others have several in a part."""
    counts = np.bincount(people, minlength=recordings.n_subjects)
    single = [str(recordings.subjects[person]) for person in np.flatnonzero(counts < 2).tolist()]
    if single:
        more = f" and {len(single) - MOST_NAMES} more" if len(single) > MOST_NAMES else ""
        raise UserError(
            f"{len(single)} of {recordings.n_subjects} subjects have one session only "
            f"({', '.join(map(shown, single[:MOST_NAMES]))}{more}); to hold out sessions, everybody must have two"
        )
    return [rank % int(counts.min()) for n in counts.tolist() for rank in range(n)]


def _values(recordings: Recordings, name: str) -> tuple[Rows, list[str]]:
    if name not in recordings.columns:
        known = [SUBJECT, *([SESSION] if recordings.session is not None else []), *recordings.columns]
        raise UserError(f"the recordings have no column {shown(name)} to hold out; choose from {', '.join(known)}")
    column = recordings.columns[name]
    if column.labels is None:
        raise UserError(f"the column {shown(name)} is continuous; to hold out its values, give whole numbers or text")
    if missing := int((column.values < 0).sum()):
        raise UserError(
            f"the column {shown(name)} has no value for {missing} of {recordings.n_windows} windows; fill it in, or "
            "leave these windows out"
        )
    present, values = np.unique(column.values, return_inverse=True)
    if len(present) < FEWEST_FOLDS:
        raise UserError(
            f"the column {shown(name)} has {count(len(present), 'value')}; at least {FEWEST_FOLDS} are needed: one "
            "tests, one validates, the rest train"
        )
    return values.astype(np.int64), [str(column.labels[value]) for value in present.tolist()]


def leave_groups_out(recordings: Recordings, folds: int | None = None) -> list[Fold]:
    """Make one fold per group of people: each group tests once, and the group before it validates."""
    groups = groups_of(recordings, folds)
    return [make_fold(recordings, groups[place - 1], group) for place, group in enumerate(groups)]


def leave_one_subject_out(recordings: Recordings) -> list[Fold]:
    """Make one fold per subject, in order of the test subject; the subject before it, in a circle, validates."""
    check_recordings(recordings, "leave_one_subject_out")
    return [make_fold(recordings, (test or recordings.n_subjects) - 1, test) for test in range(recordings.n_subjects)]


def scorable_subjects(recordings: Recordings) -> list[int]:
    """Return positions of the people who can have a score: with trials of two classes, or different numbers."""
    subject, y = recordings.subject.numpy(), recordings.truth.numpy()
    return [person for person in range(recordings.n_subjects) if len(np.unique(y[subject == person])) > 1]


def unscored_subjects(recordings: Recordings) -> list[str]:
    """Return names of the people who cannot have a score."""
    known = set(scorable_subjects(recordings))
    return [str(name) for person, name in enumerate(recordings.subjects) if person not in known]


def check_scorable(recordings: Recordings) -> None:
    """Raise where too few people can have a score for anything to be decided."""
    if recordings.n_subjects == recordings.n_windows:
        raise UserError(
            f"every trial has a subject of its own ({recordings.n_windows} of them); subject must name the person of "
            "each trial"
        )
    left_out = unscored_subjects(recordings)
    if recordings.n_subjects - len(left_out) < MIN_SCORABLE:
        needed = "trials of two classes" if recordings.targets is None else "a target that changes"
        raise UserError(
            f"only {recordings.n_subjects - len(left_out)} of {recordings.n_subjects} subjects have {needed}; at least "
            f"{MIN_SCORABLE} are needed, on whom candidates are measured"
        )


def describe(folds: list[Fold]) -> str:
    """Describe each fold in a line."""
    return "\n".join(f"fold {index}: {fold}" for index, fold in enumerate(folds))
