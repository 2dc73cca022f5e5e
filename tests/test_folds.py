"""Folds: disjoint, complete, by subject."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import make_fold


def recordings(n_subjects: int = 5) -> at.Recordings:
    generator = np.random.default_rng(0)
    subject = np.repeat([f"s{i}" for i in range(n_subjects)], 6)
    return at.Recordings(generator.standard_normal((len(subject), 2, 16)), np.tile([0, 1], len(subject) // 2), subject)


def test_every_subject_is_tested_once_and_validated_by_the_one_before() -> None:
    rec = recordings()
    folds = at.leave_one_subject_out(rec)
    assert [fold.test_subject for fold in folds] == list(rec.subjects)
    assert [fold.validation_subject for fold in folds] == ["s4", "s0", "s1", "s2", "s3"]
    labels = np.array([rec.subjects[i] for i in rec.subject])
    for fold in folds:
        together = np.concatenate([fold.train, fold.validation, fold.test])
        assert sorted(together) == list(range(rec.n_windows))
        assert set(labels[fold.test]) == {fold.test_subject}
        assert set(labels[fold.validation]) == {fold.validation_subject}
        assert not {fold.test_subject, fold.validation_subject} & set(labels[fold.train])


def test_a_fold_and_its_twin_share_the_trajectory_but_not_the_key() -> None:
    fold = at.leave_one_subject_out(recordings())[0]
    twin = fold.swapped()
    assert twin.training_key == fold.training_key
    assert twin.key != fold.key
    assert twin.swapped().key == fold.key
    assert (twin.test == fold.validation).all()
    assert twin.test_subject == fold.validation_subject


def test_mistakes() -> None:
    with pytest.raises(UserError, match="cannot be both"):
        make_fold(recordings(), 1, 1)
