"""Minibatches: the order of training rows as a function of (fold, seed, epoch) alone."""

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

# The default is a number of steps, because an epoch of 600 windows has 4 steps and one of 16,000 more than 100.
STEPS = 2500  # optimizer steps if the number of epochs is not given
EPOCHS = (10, 500)  # smallest and largest default number of epochs


class BatchBalance(NamedTuple):
    """Blocks of rows of one subject, so that the groups that a penalty compares have several rows in a batch."""

    by_class: bool  # whether all rows of a block have one class
    block: int  # rows per block


# A batch should have as many subjects as possible. Conditional penalties compare the subjects of a class, so each class
# of each subject needs at least two rows. Other penalties ignore the class: with blocks of one class they would mistake
# a difference between classes for one between subjects, so they get a subject's rows at random.
BALANCES = {"balanced": BatchBalance(by_class=True, block=2), "people": BatchBalance(by_class=False, block=4)}


def n_batches(n_rows: int, batch_size: int) -> int:
    """Return the number of full batches in an epoch, at least one."""
    return max(n_rows // batch_size, 1)


def epochs_for(rows: int, batch_size: int, steps: int = STEPS) -> int:
    """Return the number of epochs with about `steps` steps for this number of training rows."""
    fewest, most = (max(1, round(bound * steps / STEPS)) for bound in EPOCHS)
    return min(max(math.ceil(steps / n_batches(rows, batch_size)), fewest), most)


def n_subjects_per_batch(balance: BatchBalance, batch_size: int, n_classes: int, n_subjects: int) -> int:
    """Return the largest number of subjects with a block (of every class) in a batch, at least 2."""
    blocks = -(-batch_size // balance.block)
    present = batch_size // (balance.block * (n_classes if balance.by_class else 1))
    return min(max(present, 2), n_subjects, blocks)


def permutations(keys: Tensor, n: int) -> Tensor:
    """Return a random permutation of 0, …, n − 1 for every key: (G,) int32 -> (G, n)."""
    drawn = bits(keys, n).long() << 32 | torch.arange(n, device=keys.device)
    return drawn.sort(-1).values & 0xFFFFFFFF


class BalancedBatches:
    """Subject-balanced batches of G groups for censoring.

    A batch holds `n_subjects_per_batch` subjects with the same number of blocks (up to one block) each, and all
    subjects appear equally often. A subject's rows keep their natural class proportions, which the class weights of
    the loss assume, and all of them are used before one repeats.
    """

    def __init__(self, rows: Sequence[Ints], y: Ints, subject: Sequence[Ints], batch_size: int, balance: BatchBalance):
        """Prepare batches from training rows of every group, labels y (N,) and subjects (N,) of every group."""
        self.batch_size, self.balance = batch_size, balance
        self.sizes = np.array(list(map(len, rows)))
        self.rows, self.group = np.concatenate(rows), np.repeat(np.arange(len(rows)), self.sizes)
        self.place = np.concatenate([np.arange(size) for size in self.sizes])  # place of a row in its group
        label, who = y[self.rows], np.concatenate([s[chosen] for s, chosen in zip(subject, rows, strict=True)])
        subjects, first, self.owner = np.unique(
            self.group * (who.max() + 2) + who, return_index=True, return_inverse=True
        )
        self.label = label if balance.by_class else np.zeros_like(label)
        self.subjects = np.bincount(self.group[first])  # (G,)
        self.first = np.cumsum(self.subjects) - self.subjects
        self.n_subjects = len(subjects)
        classes = np.bincount(np.unique(self.group * (label.max() + 1) + label) // (label.max() + 1))
        counts = zip(classes.tolist(), self.subjects.tolist(), strict=True)
        self.present = np.array([n_subjects_per_batch(balance, batch_size, n_classes, n) for n_classes, n in counts])
        self.steps = np.array([n_batches(size, batch_size) for size in self.sizes.tolist()])

    def batches(self, keys: Tensor) -> Ints:
        """Draw rows (G, steps, batch_size) by keys (G,) on the host; 0 if a group has fewer steps.

        The batches of a group are a function of its rows and its key alone.
        """
        keys = fold_in(keys[:, None], torch.arange(5))
        chance = uniform(keys[:, :3], int(self.sizes.max())).numpy()[self.group, :, self.place].T
        blocks, starts, counts = _blocks(self.rows, self.label, self.owner, self.balance.block, chance)
        steps, per_batch = int(self.steps.max()), -(-self.batch_size // self.balance.block)
        for_turns, for_shares = fold_in(keys[:, 3:, None], torch.arange(steps)).unbind(1)
        turns = _turns(self.subjects, self.present, uniform(for_turns, int(self.subjects.max())).numpy())
        share = _shares(per_batch, self.present, uniform(for_shares, int(self.present.max())).numpy())
        owner = np.repeat((self.first[:, None, None] + turns).ravel(), share.ravel())  # subject of every block
        order = np.argsort(owner, kind="stable")
        taken = np.empty(owner.size, dtype=np.int64)  # number of earlier blocks of this subject
        taken[order] = np.arange(owner.size) - np.searchsorted(owner[order], np.arange(self.n_subjects))[owner[order]]
        chosen = blocks[starts[owner] + taken % counts[owner]]
        batches = chosen.reshape(len(keys), steps, per_batch * self.balance.block)[..., : self.batch_size]
        return np.where((np.arange(steps) < self.steps[:, None])[..., None], batches, 0)


def _turns(subjects: Ints, present: Ints, lots: NDArray[np.float32]) -> Ints:
    """Return the least used subjects (G, steps, most) in every step, of which `present` (G,) count; ties by lots."""
    groups, steps, most = lots.shape
    used = np.where(np.arange(most) < subjects[:, None], 0.0, np.inf)
    turns = np.empty((groups, steps, present.max()), dtype=np.int64)
    group, which = np.nonzero(np.arange(present.max()) < present[:, None])
    for step in range(steps):
        turns[:, step] = np.argsort(used + lots[:, step], axis=1)[:, : present.max()]
        used[group, turns[group, step, which]] += 1
    return turns


def _shares(blocks: int, present: Ints, lots: NDArray[np.float32]) -> Ints:
    """Return the number of blocks of each present subject (G, steps, most), as equal as possible; rest by lots."""
    counts = (np.arange(lots.shape[-1]) < present[:, None])[:, None]
    rank = np.argsort(np.argsort(np.where(counts, lots, np.inf)))
    share, more = (number[:, None, None] for number in divmod(blocks, present))
    return np.where(counts, share + (rank < more), 0)


def _blocks(rows: Ints, y: Ints, subject: Ints, size: int, chance: NDArray[np.float32]) -> tuple[Ints, Ints, Ints]:
    """Return blocks (n, size) of each subject's shuffled rows, and each subject's first block and number of blocks."""
    # A block has rows of one class, and a subject's classes alternate evenly. Rows that do not fill a block are left
    # out of this epoch. Classes with less than a block share mixed blocks. chance (3, N) holds random numbers in
    # [0, 1): the place of a row, of its class if the row comes first, and of a mixed block that begins with the row.
    order = np.lexsort((chance[0], y, subject))
    rows, y, subject = rows[order], y[order], subject[order]
    _, first, cell, in_cell = np.unique(
        subject * (y.max() + 1) + y, return_index=True, return_inverse=True, return_counts=True
    )
    phase = chance[1][order[first]]
    rank = np.arange(len(rows)) - first[cell]  # place of a row inside its cell
    per_cell = in_cell // size
    pure = rank < (per_cell * size)[cell]
    head = np.flatnonzero(pure)[::size]  # the first row of every block of one class
    # Even spacing with a random phase per cell: C consecutive blocks of balanced data contain every class.
    even = (rank[head] // size + phase[cell[head]]) / per_cell[cell[head]]

    rare = per_cell[cell] == 0
    left = np.flatnonzero(~pure)
    left = left[np.lexsort((phase[cell[left]], ~rare[left], subject[left]))]  # rare classes first
    # As many mixed blocks as rare rows need. A subject's rows are repeated to fill the last one.
    poor, needed = np.unique(subject[rare], return_counts=True)
    needed = -(-needed // size)
    begin, end = np.searchsorted(subject[left], [poor, poor + 1])
    turn = np.arange(needed.sum() * size) - np.repeat((np.cumsum(needed) - needed) * size, needed * size)
    mixed = left[np.repeat(begin, needed * size) + turn % np.repeat(end - begin, needed * size)].reshape(-1, size)
    owner = np.concatenate([subject[head], np.repeat(poor, needed)])
    place = np.concatenate([even, chance[2][order[mixed[:, 0]]]])
    sequence = np.lexsort((place, owner))
    counts = np.bincount(owner)
    members = np.concatenate([np.flatnonzero(pure).reshape(-1, size), mixed])
    return rows[members[sequence]], np.cumsum(counts) - counts, counts
