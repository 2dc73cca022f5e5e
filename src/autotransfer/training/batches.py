"""Minibatches: which rows a training sees in which order, as a function of (fold, seed, epoch) alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BLOCK = 4  # rows of one class and subject that stay together in a balanced batch


def n_batches(n_rows: int, batch_size: int) -> int:
    """Full batches in an epoch, at least one."""
    return max(n_rows // batch_size, 1)


def shuffled(rows: Ints, batch_size: int, *, generator: np.random.Generator) -> Ints:
    """Plain shuffling: (steps, batch_size); the incomplete last batch is dropped."""
    steps = n_batches(len(rows), batch_size)
    return generator.permutation(rows)[: steps * batch_size].reshape(steps, batch_size)


def balanced(rows: Ints, y: Ints, subject: Ints, batch_size: int, *, generator: np.random.Generator) -> Ints:
    """Subject-balanced batches for censoring: (steps, batch_size). Subjects may be groups of any other nuisance.

    A batch holds few subjects, so that each (class, subject) group in it has at least 4 rows where the data
    allow it: S = B / (4 C) subjects, at least 2. Every subject of a batch gives the same number of blocks of
    4 rows (up to one block), and all subjects appear equally often; a subject's rows keep their natural class
    proportions, which the class weights of the loss assume, and all of them are used before one repeats.

    rows: (N,) the training rows; y, subject: (N,) their labels.
    """
    blocks, starts, counts = _blocks(rows, y, subject, generator)
    subjects, steps = len(counts), n_batches(len(rows), batch_size)
    per_batch = -(-batch_size // BLOCK)
    present = batch_size // (BLOCK * len(np.unique(y)))
    present = min(max(present, 2), subjects, per_batch)

    turns = _turns(subjects, steps, present, generator)
    share = np.full((steps, present), per_batch // present)
    share[:, : per_batch % present] += 1
    owner = np.repeat(turns.ravel(), generator.permuted(share, axis=1).ravel())  # subject of every block
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(subjects))
    taken = np.empty(owner.size, dtype=np.int64)  # how many blocks of this subject came before
    taken[order] = np.arange(owner.size) - first[owner[order]]
    chosen = starts[owner] + taken % counts[owner]
    return blocks[chosen].reshape(steps, per_batch * BLOCK)[:, :batch_size]


def _turns(subjects: int, steps: int, present: int, generator: np.random.Generator) -> Ints:
    """(steps, present) subjects: always the least used so far, ties by lot."""
    used = np.zeros(subjects, dtype=np.int64)
    turns = np.empty((steps, present), dtype=np.int64)
    for step in range(steps):
        turns[step] = np.lexsort((generator.random(subjects), used))[:present]
        used[turns[step]] += 1
    return turns


def _blocks(rows: Ints, y: Ints, subject: Ints, generator: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Each subject's shuffled rows in blocks of 4.

    Blocks are of one class, spread evenly over the subject's sequence; the one to three rows that a class has
    left over wait for another epoch. Classes of which the subject has fewer than 4 rows share mixed blocks.

    Returns blocks (n, 4) of rows ordered by subject, and per subject the first block and their number.
    """
    _, subject = np.unique(subject, return_inverse=True)
    order = np.lexsort((generator.random(len(rows)), y, subject))
    rows, y, subject = rows[order], y[order], subject[order]
    _, cell, size = np.unique(subject * (y.max() + 1) + y, return_inverse=True, return_counts=True)
    phase = generator.random(len(size))
    rank = np.arange(len(rows)) - (np.cumsum(size) - size)[cell]  # place of a row inside its cell
    per_cell = size // BLOCK
    pure = rank < (per_cell * BLOCK)[cell]
    head = np.flatnonzero(pure)[::BLOCK]  # the first row of every block of one class
    # Even spacing with one random phase a cell: C consecutive blocks of balanced data show every class.
    members = [np.flatnonzero(pure).reshape(-1, BLOCK)]
    owners = [subject[head]]
    places = [(rank[head] // BLOCK + phase[cell[head]]) / per_cell[cell[head]]]

    rare = per_cell[cell] == 0
    left = np.flatnonzero(~pure)
    left = left[np.lexsort((phase[cell[left]], ~rare[left], subject[left]))]  # rare classes first, each together
    for poor in np.unique(subject[rare]):
        pool = left[subject[left] == poor]
        blocks = np.resize(pool, (-(-rare[pool].sum() // BLOCK), BLOCK))
        members.append(blocks)
        owners.append(np.full(len(blocks), poor))
        places.append(generator.random(len(blocks)))
    owner = np.concatenate(owners)
    sequence = np.lexsort((np.concatenate(places), owner))
    counts = np.bincount(owner)
    return rows[np.concatenate(members)[sequence]], np.cumsum(counts) - counts, counts
