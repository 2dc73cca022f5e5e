"""Minibatches: which rows a training sees in which order, as a function of (fold, seed, epoch) alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..randomness import bits

Ints = NDArray[np.int64]


class Balance(NamedTuple):
    """Rows of a batch stay together in blocks, so that the groups a penalty compares have rows to be compared by."""

    by_class: bool  # a block has rows of one class of a subject; else of one subject, as they come
    block: int  # rows


# The more people a batch holds the better. Conditional penalties compare the subjects of a class, so each class of each
# subject needs the two rows from which a group counts. To the others the class is nothing: blocks of one class would
# show them a difference between classes as one between people, so they get a subject's rows at random.
BALANCES = {"balanced": Balance(by_class=True, block=2), "people": Balance(by_class=False, block=4)}


def n_batches(n_rows: int, batch_size: int) -> int:
    """Full batches in an epoch, at least one."""
    return max(n_rows // batch_size, 1)


def n_people(balance: Balance, batch_size: int, n_classes: int, n_subjects: int) -> int:
    """Subjects in a batch: as many as have a block each, of every class where it matters; at least 2."""
    blocks = -(-batch_size // balance.block)
    present = batch_size // (balance.block * (n_classes if balance.by_class else 1))
    return min(max(present, 2), n_subjects, blocks)


def permutations(keys: Tensor, n: int) -> Tensor:
    """An order of n things for every key: (G,) int32 -> (G, n). They are sorted by random bits, then by number."""
    drawn = bits(keys, n).long() << 32 | torch.arange(n, device=keys.device)
    return drawn.sort(-1).values & 0xFFFFFFFF


def balanced(
    rows: Ints, y: Ints, subject: Ints, batch_size: int, balance: Balance, *, generator: np.random.Generator
) -> Ints:
    """Subject-balanced batches for censoring: (steps, batch_size). Subjects may be groups of any other nuisance.

    A batch holds `n_people` subjects. Each gives the same number of blocks (up to one block), and all subjects appear
    equally often; a subject's rows keep their natural class proportions, which the class weights of the loss assume,
    and all of them are used before one repeats.

    rows: (N,) the training rows; y, subject: (N,) their labels.
    """
    size = balance.block
    cell = y if balance.by_class else np.zeros_like(y)
    blocks, starts, counts = _blocks(rows, cell, subject, size, generator)
    subjects, steps = len(counts), n_batches(len(rows), batch_size)
    per_batch = -(-batch_size // size)
    present = n_people(balance, batch_size, len(np.unique(y)), subjects)

    turns = _turns(subjects, steps, present, generator)
    share = np.full((steps, present), per_batch // present)
    share[:, : per_batch % present] += 1
    owner = np.repeat(turns.ravel(), generator.permuted(share, axis=1).ravel())  # subject of every block
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(subjects))
    taken = np.empty(owner.size, dtype=np.int64)  # how many blocks of this subject came before
    taken[order] = np.arange(owner.size) - first[owner[order]]
    chosen = starts[owner] + taken % counts[owner]
    return blocks[chosen].reshape(steps, per_batch * size)[:, :batch_size]


def _turns(subjects: int, steps: int, present: int, generator: np.random.Generator) -> Ints:
    """(steps, present) subjects: always the least used so far, ties by lot."""
    used = np.zeros(subjects, dtype=np.int64)
    turns = np.empty((steps, present), dtype=np.int64)
    for step in range(steps):
        turns[step] = np.lexsort((generator.random(subjects), used))[:present]
        used[turns[step]] += 1
    return turns


def _blocks(rows: Ints, y: Ints, subject: Ints, size: int, generator: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Each subject's shuffled rows in blocks of `size`.

    Blocks are of one class, spread evenly over the subject's sequence; the rows that a class has left over wait for
    another epoch. Classes of which the subject has less than a block share mixed blocks.

    Returns blocks (n, size) of rows ordered by subject, and per subject the first block and their number.
    """
    _, subject = np.unique(subject, return_inverse=True)
    order = np.lexsort((generator.random(len(rows)), y, subject))
    rows, y, subject = rows[order], y[order], subject[order]
    _, cell, in_cell = np.unique(subject * (y.max() + 1) + y, return_inverse=True, return_counts=True)
    phase = generator.random(len(in_cell))
    rank = np.arange(len(rows)) - (np.cumsum(in_cell) - in_cell)[cell]  # place of a row inside its cell
    per_cell = in_cell // size
    pure = rank < (per_cell * size)[cell]
    head = np.flatnonzero(pure)[::size]  # the first row of every block of one class
    # Even spacing with one random phase a cell: C consecutive blocks of balanced data show every class.
    members = [np.flatnonzero(pure).reshape(-1, size)]
    owners = [subject[head]]
    places = [(rank[head] // size + phase[cell[head]]) / per_cell[cell[head]]]

    rare = per_cell[cell] == 0
    left = np.flatnonzero(~pure)
    left = left[np.lexsort((phase[cell[left]], ~rare[left], subject[left]))]  # rare classes first, each together
    for poor in np.unique(subject[rare]):
        pool = left[subject[left] == poor]
        blocks = np.resize(pool, (-(-rare[pool].sum() // size), size))
        members.append(blocks)
        owners.append(np.full(len(blocks), poor))
        places.append(generator.random(len(blocks)))
    owner = np.concatenate(owners)
    sequence = np.lexsort((np.concatenate(places), owner))
    counts = np.bincount(owner)
    return rows[np.concatenate(members)[sequence]], np.cumsum(counts) - counts, counts
