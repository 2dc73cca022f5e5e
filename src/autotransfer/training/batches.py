"""Minibatches of training rows, drawn as a function of (fold, seed, epoch) alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..randomness import bits, fold_in, uniform

Ints = NDArray[np.int64]

# The default length of training is given in steps, because epochs differ: 4 steps for 600 windows, 125 for 16,000.
STEPS = 2500  # optimizer steps if the number of epochs is not given
EPOCHS = (10, 500)  # smallest and largest default number of epochs


class BatchBalance(NamedTuple):
    """Composition of balanced batches. Each block of rows in a batch has one subject."""

    by_class: bool  # whether all rows of a block have one class
    block_size: int  # rows per block


# A batch should have as many subjects as possible. Conditional penalties compare the subjects of a class, so each class
# of each subject needs at least two rows. Other penalties ignore classes, so blocks mix the classes of a subject at
# random. Otherwise a difference between two classes would look like a difference between two subjects.
BALANCES = {"balanced": BatchBalance(by_class=True, block_size=2), "people": BatchBalance(by_class=False, block_size=4)}


def n_batches(n_rows: int, batch_size: int) -> int:
    """Return the number of full batches in an epoch, at least one."""
    return max(n_rows // batch_size, 1)


def epochs_for(n_rows: int, batch_size: int, steps: int = STEPS) -> int:
    """Return the number of epochs with about `steps` steps for this number of training rows."""
    min_epochs, max_epochs = (max(1, round(limit * steps / STEPS)) for limit in EPOCHS)
    return min(max(math.ceil(steps / n_batches(n_rows, batch_size)), min_epochs), max_epochs)


def n_subjects_per_batch(balance: BatchBalance, batch_size: int, n_classes: int, n_subjects: int) -> int:
    """Return the number of subjects that fit into a batch with one block each, or one block of every class each."""
    n_blocks = -(-batch_size // balance.block_size)
    capacity = batch_size // (balance.block_size * (n_classes if balance.by_class else 1))
    return min(max(capacity, 2), n_subjects, n_blocks)


def permutations(keys: Tensor, n: int) -> Tensor:
    """Return a random permutation of 0, …, n − 1 for every key: (G,) int32 -> (G, n)."""
    words = bits(keys, n).long() << 32 | torch.arange(n, device=keys.device)
    return words.sort(-1).values & 0xFFFFFFFF


class BalancedBatches:
    """Subject-balanced batches of G groups, for penalties.

    A batch has `n_subjects_per_batch` subjects, whose numbers of blocks differ by at most one. All subjects appear
    equally often. The rows of a subject keep their class proportions, because the class weights of the loss assume
    these proportions. No row repeats before all rows of its subject are used.
    """

    def __init__(self, rows: Sequence[Ints], y: Ints, subject: Sequence[Ints], batch_size: int, balance: BatchBalance):
        """Prepare batches. rows: training rows by group; y: labels (N,); subject: subjects (N,) by group."""
        self.batch_size, self.balance = batch_size, balance
        self.sizes = np.array(list(map(len, rows)))
        self.rows, self.group = np.concatenate(rows), np.repeat(np.arange(len(rows)), self.sizes)
        self.position = np.concatenate([np.arange(size) for size in self.sizes])  # position of a row in its group
        label = y[self.rows]
        group_subject = np.concatenate([s[group_rows] for s, group_rows in zip(subject, rows, strict=True)])
        # One number per subject and group: a subject of two groups has two numbers.
        subjects, first_row, self.subject = np.unique(
            self.group * (group_subject.max() + 2) + group_subject, return_index=True, return_inverse=True
        )
        self.label = label if balance.by_class else np.zeros_like(label)
        self.subjects_per_group = np.bincount(self.group[first_row])  # (G,)
        self.first_subject = np.cumsum(self.subjects_per_group) - self.subjects_per_group  # (G,)
        self.n_subjects = len(subjects)
        classes = np.bincount(np.unique(self.group * (label.max() + 1) + label) // (label.max() + 1))
        counts = zip(classes.tolist(), self.subjects_per_group.tolist(), strict=True)
        self.subjects_per_batch = np.array([n_subjects_per_batch(balance, batch_size, c, n) for c, n in counts])  # (G,)
        self.steps = np.array([n_batches(size, batch_size) for size in self.sizes.tolist()])

    def batches(self, keys: Tensor) -> Ints:
        """Draw rows (G, steps, batch_size) by keys (G,) on the host; 0 in steps beyond the last step of a group.

        The batches of a group are a function of its rows and its key alone.
        """
        keys = fold_in(keys[:, None], torch.arange(5))
        draws = uniform(keys[:, :3], int(self.sizes.max())).numpy()[self.group, :, self.position].T
        blocks, starts, counts = _make_blocks(self.rows, self.label, self.subject, self.balance.block_size, draws)
        steps, per_batch = int(self.steps.max()), -(-self.batch_size // self.balance.block_size)
        subject_keys, count_keys = fold_in(keys[:, 3:, None], torch.arange(steps)).unbind(1)
        subject_draws = uniform(subject_keys, int(self.subjects_per_group.max())).numpy()
        subjects = _draw_subjects(self.subjects_per_group, self.subjects_per_batch, subject_draws)
        count_draws = uniform(count_keys, int(self.subjects_per_batch.max())).numpy()
        n_blocks = _share_blocks(per_batch, self.subjects_per_batch, count_draws)
        # subject of every block
        subject = np.repeat((self.first_subject[:, None, None] + subjects).ravel(), n_blocks.ravel())
        order = np.argsort(subject, kind="stable")
        n_earlier = np.empty(subject.size, dtype=np.int64)  # number of earlier blocks of this subject
        first_block = np.searchsorted(subject[order], np.arange(self.n_subjects))
        n_earlier[order] = np.arange(subject.size) - first_block[subject[order]]
        rows = blocks[starts[subject] + n_earlier % counts[subject]]
        batches = rows.reshape(len(keys), steps, per_batch * self.balance.block_size)[..., : self.batch_size]
        return np.where((np.arange(steps) < self.steps[:, None])[..., None], batches, 0)


def _draw_subjects(per_group: Ints, per_batch: Ints, draws: NDArray[np.float32]) -> Ints:
    """Draw subjects (G, steps, S), least used first, ties at random. A step uses only the first `per_batch` (G,)."""
    groups, steps, max_subjects = draws.shape
    n_used = np.where(np.arange(max_subjects) < per_group[:, None], 0.0, np.inf)
    subjects = np.empty((groups, steps, per_batch.max()), dtype=np.int64)
    group, position = np.nonzero(np.arange(per_batch.max()) < per_batch[:, None])
    for step in range(steps):
        subjects[:, step] = np.argsort(n_used + draws[:, step], axis=1)[:, : per_batch.max()]
        n_used[group, subjects[group, step, position]] += 1
    return subjects


def _share_blocks(n_blocks: int, per_batch: Ints, draws: NDArray[np.float32]) -> Ints:
    """Return numbers of blocks (G, steps, S) of subjects, which differ by at most one; random subjects have more."""
    is_counted = (np.arange(draws.shape[-1]) < per_batch[:, None])[:, None]
    rank = np.argsort(np.argsort(np.where(is_counted, draws, np.inf)))
    quotient, remainder = (number[:, None, None] for number in divmod(n_blocks, per_batch))
    return np.where(is_counted, quotient + (rank < remainder), 0)


def _make_blocks(rows: Ints, y: Ints, subject: Ints, size: int, draws: NDArray[np.float32]) -> tuple[Ints, Ints, Ints]:
    """Return blocks (n, size) of each subject's shuffled rows, and each subject's first block and number of blocks."""
    # A cell is the rows of one class of a subject. A block has rows of one cell, and the cells of a subject alternate
    # evenly. Rows that do not fill a block are left out of this epoch. Cells with fewer rows than a block are rare and
    # share mixed blocks. draws (3, N) in [0, 1): order of rows, phases of cells, and positions of mixed blocks.
    order = np.lexsort((draws[0], y, subject))
    rows, y, subject = rows[order], y[order], subject[order]
    _, first, cell, cell_sizes = np.unique(
        subject * (y.max() + 1) + y, return_index=True, return_inverse=True, return_counts=True
    )
    phase = draws[1][order[first]]
    rank = np.arange(len(rows)) - first[cell]  # position of a row in its cell
    blocks_per_cell = cell_sizes // size
    fills_block = rank < (blocks_per_cell * size)[cell]
    first_rows = np.flatnonzero(fills_block)[::size]  # first row of every block of one cell
    # Blocks of a cell have equal distances and a random phase, so C consecutive blocks of balanced data have C classes.
    position = (rank[first_rows] // size + phase[cell[first_rows]]) / blocks_per_cell[cell[first_rows]]

    is_rare = blocks_per_cell[cell] == 0
    unused = np.flatnonzero(~fills_block)
    unused = unused[np.lexsort((phase[cell[unused]], ~is_rare[unused], subject[unused]))]  # rare cells first
    # Mixed blocks hold all rows of rare cells. Rows of the subject are repeated to fill the last mixed block.
    rare_subjects, n_rare = np.unique(subject[is_rare], return_counts=True)
    n_mixed = -(-n_rare // size)  # number of mixed blocks of each of these subjects
    start, stop = np.searchsorted(subject[unused], [rare_subjects, rare_subjects + 1])
    index = np.arange(n_mixed.sum() * size) - np.repeat((np.cumsum(n_mixed) - n_mixed) * size, n_mixed * size)
    mixed = unused[np.repeat(start, n_mixed * size) + index % np.repeat(stop - start, n_mixed * size)].reshape(-1, size)
    block_subject = np.concatenate([subject[first_rows], np.repeat(rare_subjects, n_mixed)])
    block_position = np.concatenate([position, draws[2][order[mixed[:, 0]]]])
    block_order = np.lexsort((block_position, block_subject))
    counts = np.bincount(block_subject)
    blocks = np.concatenate([np.flatnonzero(fills_block).reshape(-1, size), mixed])
    return rows[blocks[block_order]], np.cumsum(counts) - counts, counts
