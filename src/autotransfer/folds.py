"""Folds: which rows train, which choose the snapshot, which are only ever measured."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .errors import UserError, check_choice
from .recordings import Recordings

Rows = NDArray[np.int64]


FEWEST_FOLDS = 3  # one group of people tests, one validates, the rest train
MANY_PEOPLE = 20  # above this many, leaving out one at a time costs more than it tells
USUAL_FOLDS = 10  # for so many people
MIN_SCORABLE = 2  # people: one is measured, and decided about without themselves
NOBODY: Rows = np.empty(0, dtype=np.int64)


def name_of(subject: Hashable) -> str:
    """Of one subject, or of several."""
    return ", ".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)


@dataclass(frozen=True, eq=False)
class Fold:
    """Disjoint sets of rows: those to train on, and up to two held-out sets, one to validate on and one to test on.

    Without validation rows nothing can choose an epoch, so the last one is kept; without test rows nothing is tested.
    """

    train: Rows
    validation: Rows = field(default_factory=NOBODY.copy)
    test: Rows = field(default_factory=NOBODY.copy)
    validation_subject: Hashable = None
    test_subject: Hashable = None

    @property
    def held_out(self) -> tuple[Rows, Rows]:
        """The held-out sets in an order that a fold shares with its swapped twin: by first row, an empty one last."""
        sets = (self.validation, self.test)
        first, second = sorted(sets, key=lambda rows: (len(rows) == 0, rows[0] if len(rows) else 0))
        return first, second

    def swapped(self) -> Fold:
        """The same training rows, with the validation and the test subject exchanged."""
        return Fold(self.train, self.test, self.validation, self.test_subject, self.validation_subject)

    @cached_property
    def trajectory(self) -> str:
        """Identifies the training rows: all that weights and minibatches may depend on.

        A fold and its swapped twin agree in it, so that one training serves both.
        """
        return hashlib.blake2b(self.train.tobytes(), digest_size=8).hexdigest()

    @cached_property
    def key(self) -> str:
        """Identifies all three sets of rows."""
        digest = hashlib.blake2b(digest_size=8)
        for rows in (self.train, self.validation, self.test):
            digest.update(len(rows).to_bytes(8, "little"))
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def __str__(self) -> str:
        return (
            f"test {name_of(self.test_subject)} ({len(self.test)} trials), "
            f"validation {name_of(self.validation_subject)} ({len(self.validation)}), training {len(self.train)}"
        )

    __repr__ = __str__


def make_fold(recordings: Recordings, validation: int | Sequence[int], test: int | Sequence[int]) -> Fold:
    """Leave two subjects out, or two groups of them, given as positions in recordings.subjects."""
    validates, tests = (sorted({own} if isinstance(own, int) else set(own)) for own in (validation, test))
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
    """The name of a subject, or those of several."""
    names = tuple(recordings.subjects[person] for person in people)
    return names[0] if len(names) == 1 else names


def divide(n_subjects: int, folds: int | None = None) -> list[list[int]]:
    """Positions of people by the group that they are held out with: everybody alone or, in so many folds, every
    folds-th one, so that neighbours in a list of people, who may share a place or a device, are in different groups."""
    folds = n_subjects if folds is None else min(folds, n_subjects)
    return [list(range(first, n_subjects, folds)) for first in range(folds)]


def leave_groups_out(recordings: Recordings, folds: int | None = None) -> list[Fold]:
    """As `leave_one_subject_out`, with groups of people: each tests once, and the group before it validates."""
    groups = divide(recordings.n_subjects, folds)
    return [make_fold(recordings, groups[place - 1], own) for place, own in enumerate(groups)]


def leave_one_subject_out(recordings: Recordings, *, validation: str = "previous", seed: int = 0) -> list[Fold]:
    """One fold per subject, in order of the test subject.

    validation="previous": the subject before the test subject, the last one for the first.
    validation="random": a seeded choice in which every subject validates exactly one fold.
    """
    check_choice("validation", validation, ("previous", "random"))
    n = recordings.n_subjects
    if validation == "previous":
        order = np.arange(n)
    else:
        order = np.random.default_rng(seed).permutation(n)
    before = np.empty(n, dtype=np.int64)
    before[order] = np.roll(order, 1)  # the subject before, in the given or in a shuffled circle
    return [make_fold(recordings, int(before[test]), test) for test in range(n)]


def scorable(recordings: Recordings) -> list[int]:
    """Positions in recordings.subjects of the people whom a score can be given: those with trials of two classes."""
    subject, y = recordings.subject.numpy(), recordings.y.numpy()
    return [person for person in range(recordings.n_subjects) if len(np.unique(y[subject == person])) > 1]


def not_scored(recordings: Recordings) -> list[str]:
    """Names of the others."""
    known = set(scorable(recordings))
    return [str(name) for person, name in enumerate(recordings.subjects) if person not in known]


def check_scorable(recordings: Recordings) -> None:
    """Raise where so few people can be given a score that nothing could be decided."""
    if recordings.n_subjects == recordings.n_trials:
        raise UserError(
            f"every trial has a subject of its own ({recordings.n_trials} of them); subject must name the person of "
            "each trial"
        )
    left_out = not_scored(recordings)
    if recordings.n_subjects - len(left_out) < MIN_SCORABLE:
        raise UserError(
            f"only {recordings.n_subjects - len(left_out)} of {recordings.n_subjects} subjects have trials of two "
            f"classes; at least {MIN_SCORABLE} are needed, on whom candidates are measured"
        )


def describe(folds: list[Fold]) -> str:
    """The split as text, a line per fold."""
    return "\n".join(f"fold {index}: {fold}" for index, fold in enumerate(folds))
