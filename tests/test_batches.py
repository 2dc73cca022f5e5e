"""Shuffled and balanced minibatches keep their promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autotransfer as at
from autotransfer.randomness import as_keys, fold_in
from autotransfer.training import groups as groups_module
from autotransfer.training.batches import (
    BALANCES,
    BalancedBatches,
    BatchBalance,
    n_batches,
    n_subjects_per_batch,
    permutations,
)
from autotransfer.training.groups import MemberGroups
from tiny import tiny

CELLS = BALANCES["balanced"]
both = pytest.mark.parametrize("balance", BALANCES.values(), ids=BALANCES)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(
    rows: np.ndarray, y: np.ndarray, subject: np.ndarray, size: int, balance: BatchBalance, *, seed: int
) -> np.ndarray:
    """Of one group: y and subject are of its rows."""
    labels, who = (np.full(rows.max() + 1, -1) for _ in range(2))
    labels[rows], who[rows] = y, subject
    return BalancedBatches([rows], labels, [who], size, balance).batches(as_keys([seed]))[0]


def test_permutations_hold_everything_once_and_every_order_is_as_likely() -> None:
    orders = permutations(fold_in(as_keys(list(range(6000))), 3), 3)
    assert (orders.sort(-1).values == torch.arange(3)).all()
    _, times = np.unique(orders.numpy(), axis=0, return_counts=True)
    assert len(times) == 6
    assert ((times - 1000) ** 2 / 1000).sum() < 30, "χ² with 5 degrees of freedom, one time in 70,000"


def test_shuffled_rows_are_used_at_most_once_in_any_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds of unequal length, two seeds each: every group as it is alone, and other rows in every epoch."""
    rec = tiny(n_subjects=3, per_class=15)
    sizes = [30, 23, 30]
    folds = [replace(fold, train=fold.train[:n]) for fold, n in zip(at.leave_one_subject_out(rec), sizes, strict=True)]
    jobs = [at.Job(at.Setting(batches="shuffled"), fold, seed) for fold in folds for seed in (0, 1)]

    def plan(*jobs: at.Job, epoch: int = 1) -> np.ndarray:
        return MemberGroups(rec, jobs, 7, torch.device("cpu")).draw_rows(epoch).numpy()

    together = plan(*jobs)
    for g, job in enumerate(jobs):
        alone = plan(job)[:, 0]
        np.testing.assert_array_equal(together[: len(alone), g], alone)
        assert len(alone) == len(job.fold.train) // 7
        assert not together[len(alone) :, g].any()
        assert len(set(alone.ravel())) == alone.size
        assert set(alone.ravel()) <= set(job.fold.train)
        assert (plan(job, epoch=2)[:, 0] != alone).any()
    assert (together[:, 0] != together[:, 1]).any(), "seeds differ"
    monkeypatch.setattr(groups_module, "MAX_DRAWN_ROWS", 1)
    np.testing.assert_array_equal(plan(*jobs), together)


def labels(n_subjects: int, n_classes: int, per_cell: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    subject, y = np.divmod(np.arange(n_subjects * n_classes * per_cell) // per_cell, n_classes)
    order = rng(1).permutation(len(y))
    return np.arange(len(y)), y[order], subject[order]


def test_emg_like_data_have_two_rows_in_every_group() -> None:
    """38 subjects, 8 classes, 128 rows: shuffled batches would have 0.4 rows a group."""
    rows, y, subject = labels(38, 8, 13)
    batches = balanced(rows, y, subject, 128, CELLS, seed=0)
    assert batches.shape == (len(rows) // 128, 128)
    for batch in batches:
        cells, count = np.unique(np.stack([subject[batch], y[batch]]), axis=1, return_counts=True)
        assert count.min() >= 2
        present, share = np.unique(subject[batch], return_counts=True)
        assert len(present) == n_subjects_per_batch(CELLS, 128, 8, 38) == 8
        assert (share == 16).all()
        per_class = np.bincount(cells[1], minlength=8)
        assert (per_class >= 2).all()  # every class has subjects to compare
    appearances = np.bincount(subject[batches.ravel()], minlength=38)
    assert appearances.max() - appearances.min() <= 16
    assert np.bincount(batches.ravel()).max() <= 2


@both
def test_class_proportions_are_kept(balance: BatchBalance) -> None:
    """The loss weights classes by their training counts, so batches must not equalize them."""
    generator = rng(3)
    subject = np.repeat(np.arange(10), 200)
    y = (generator.random(2000) < 0.2).astype(np.int64)
    epochs = [balanced(np.arange(2000), y, subject, 64, balance, seed=epoch) for epoch in range(5)]
    assert np.mean([y[batches].mean() for batches in epochs]) == pytest.approx(y.mean(), abs=0.02)


def test_rare_classes_are_seen() -> None:
    subject = np.repeat(np.arange(4), 50)
    y = np.zeros(200, dtype=np.int64)
    y[[3, 60, 61, 62]] = 1  # subject 0 has one row of class 1, subject 1 three
    seen = {row for epoch in range(3) for row in balanced(np.arange(200), y, subject, 32, CELLS, seed=epoch).ravel()}
    assert {3, 60, 61, 62} <= seen


@both
def test_balanced_batches_do_not_depend_on_the_stack(balance: BatchBalance) -> None:
    """Groups with other rows, subjects, classes and lengths; rare classes, and subjects without a label."""
    generator = rng(7)
    y, subject = generator.integers(0, 3, 300), generator.integers(-1, 7, 300)
    y[generator.permutation(300)[:4]] = 3
    groups = [generator.permutation(300)[:n] for n in (300, 150, 77, 40)]
    groups[2] = groups[2][subject[groups[2]] < 3]
    people = [subject, subject, np.minimum(subject, 1), subject]
    keys = as_keys([4, 9, 9, 1])
    together = BalancedBatches(groups, y, people, 24, balance).batches(keys)
    assert together.shape == (4, 12, 24)
    for g, (rows, who) in enumerate(zip(groups, people, strict=True)):
        alone = BalancedBatches([rows], y, [who], 24, balance).batches(keys[g : g + 1])[0]
        assert len(alone) == n_batches(len(rows), 24)
        np.testing.assert_array_equal(together[g, : len(alone)], alone)
        assert not together[g, len(alone) :].any()
        assert set(alone.ravel()) <= set(rows)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=2, max_size=80),
    st.integers(2, 40),
    st.sampled_from([*BALANCES.values()]),
)
def test_any_labels_give_full_batches_of_known_rows(
    cells: list[tuple[int, int]], size: int, balance: BatchBalance
) -> None:
    subject, y = (np.array(column) for column in zip(*cells, strict=True))
    rows = np.arange(len(y)) * 3
    size = min(size, len(rows))
    batches = balanced(rows, y, subject, size, balance, seed=0)
    assert batches.shape == (n_batches(len(rows), size), size)
    assert set(batches.ravel()) <= set(rows)
