"""Groups of members that train on the same rows in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import Job
from ..randomness import as_keys, fold_in, key_of
from ..recordings import Recordings
from .batches import BALANCES, BalancedBatches, n_batches, permutations

MAX_DRAWN_ROWS = 2**24  # rows that are drawn at once; their keys need 400 MB
MIN_GROUPS_ON_DEVICE = 64  # number of groups from which batches are drawn on the device


class MemberGroups:
    """G groups of members that share minibatches.

    Members of a group have equal training rows, held-out rows, seeds, and options `batches` and `shuffle_subjects`.
    """

    def __init__(self, recordings: Recordings, jobs: Sequence[Job], batch_size: int, device: torch.device) -> None:
        first_jobs: dict[tuple[object, ...], Job] = {}
        for job in jobs:
            first_jobs.setdefault(self._identity(job), job)
        index = {identity: group for group, identity in enumerate(first_jobs)}
        self.jobs = list(first_jobs.values())
        self.group_of_member = torch.tensor([index[self._identity(job)] for job in jobs], device=device)
        self._is_one_to_one = len(first_jobs) == len(jobs)
        self.batch_size = batch_size
        self.y = recordings.y.numpy()
        self.subjects = [_index_training_subjects(recordings, job) for job in self.jobs]
        self.n_subjects = [int(subjects.max()) + 1 for subjects in self.subjects]
        self.steps_per_epoch = [n_batches(len(job.fold.train), batch_size) for job in self.jobs]
        self.steps = torch.tensor(self.steps_per_epoch, device=device)  # (G,)
        self.keys = as_keys([key_of("dropout", job.fold.training_key, job.seed) for job in self.jobs], device)
        # (G, N): subjects of training rows, counted from 0; −1 in other rows, which penalties leave out
        self.subject_index = torch.from_numpy(np.stack(self.subjects)).to(device)
        counts = [np.bincount(self.y[job.fold.train], minlength=recordings.n_classes) for job in self.jobs]
        self.class_counts = torch.tensor(np.stack(counts), device=device)
        self._collect_batches()

    @staticmethod
    def _identity(job: Job) -> tuple[object, ...]:
        penalty = job.setting.penalty
        is_shuffled = penalty is not None and penalty.shuffle_subjects
        return (*job.fit_key[1:], job.setting.training.batches, is_shuffled)

    @property
    def shared_group(self) -> Tensor | None:
        """Return `group_of_member` (P,), or None if every group has one member."""
        return None if self._is_one_to_one else self.group_of_member

    def draw_rows(self, epoch: int) -> Tensor:
        """Draw the rows of every step of an epoch (steps, G, B); rows are 0 after the last step of a group."""
        shape = (len(self.jobs), max(self.steps_per_epoch), self.batch_size)
        drawn = torch.zeros(shape, dtype=torch.long, device=self.draw_device)
        for shuffled in self._shuffled:
            keys = fold_in(shuffled.keys, epoch)
            size = max(1, MAX_DRAWN_ROWS // shuffled.rows.shape[1])
            for chunk in (slice(start, start + size) for start in range(0, len(keys), size)):
                drawn[shuffled.groups[chunk], : shuffled.steps] = shuffled.batches(keys, chunk, self.batch_size)
        for groups, keys, batches in self._balanced:
            rows = torch.from_numpy(batches.batches(fold_in(keys, epoch)))
            drawn[groups, : rows.shape[1]] = rows
        return drawn.transpose(0, 1).contiguous()

    def _collect_batches(self) -> None:
        """Collect groups whose batches are drawn together."""
        # Batches of many shuffled groups are drawn on the device, other batches on the host while the device is busy.
        groups_by_key: dict[str | int, list[int]] = {}  # key: a name in BALANCES, or a number of rows to shuffle
        for g, job in enumerate(self.jobs):
            batches = job.setting.training.batches
            groups_by_key.setdefault(batches if batches in BALANCES else len(job.fold.train), []).append(g)
        is_on_device = len(self.jobs) >= MIN_GROUPS_ON_DEVICE and not any(key in BALANCES for key in groups_by_key)
        self.draw_device = device = self.keys.device if is_on_device else torch.device("cpu")
        self._shuffled, self._balanced = list[_ShuffledGroups](), list[tuple[Tensor, Tensor, BalancedBatches]]()
        for key, groups in groups_by_key.items():
            if isinstance(key, int):
                self._shuffled.append(_ShuffledGroups.build(self.jobs, groups, self.batch_size, device))
                continue
            size = max(1, MAX_DRAWN_ROWS // 8 // max(len(self.jobs[g].fold.train) for g in groups))
            for chunk in (groups[start : start + size] for start in range(0, len(groups), size)):
                rows, subjects = [self.jobs[g].fold.train for g in chunk], [self.subjects[g] for g in chunk]
                balanced_batches = BalancedBatches(rows, self.y, subjects, self.batch_size, BALANCES[key])
                keys = _make_keys([self.jobs[g] for g in chunk])
                self._balanced.append((torch.tensor(chunk), keys, balanced_batches))

    def select(self, members: Tensor) -> Tensor:
        """Keep only these members and their groups, and return the indices of these groups."""
        groups, group_of_member = self.group_of_member[members].unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
        self.group_of_member = group_of_member
        self._is_one_to_one = group_of_member.tolist() == list(range(len(groups)))
        indices = groups.tolist()
        self.jobs = [self.jobs[g] for g in indices]
        self.subjects, self.n_subjects = [self.subjects[g] for g in indices], [self.n_subjects[g] for g in indices]
        self.steps_per_epoch, self.steps = [self.steps_per_epoch[g] for g in indices], self.steps[groups]
        self.keys, self.subject_index = self.keys[groups], self.subject_index[groups]
        self.class_counts = self.class_counts[groups]
        self._collect_batches()
        return torch.tensor(indices, dtype=torch.long, device=members.device)


class _ShuffledGroups(NamedTuple):
    """Groups with equal numbers of training rows, which are shuffled together."""

    groups: Tensor  # (g,) indices of the groups
    keys: Tensor  # (g,)
    rows: Tensor  # (F, n) distinct sets of training rows
    row_set: Tensor  # (g,) index of the set of each group
    steps: int

    @classmethod
    def build(cls, jobs: Sequence[Job], groups: list[int], batch_size: int, device: torch.device) -> Self:
        """Collect groups with equal numbers of training rows."""
        group_jobs = [jobs[g] for g in groups]
        sets = {job.fold.training_key: job.fold.train for job in group_jobs}
        index = {key: row_set for row_set, key in enumerate(sets)}
        return cls(
            torch.tensor(groups, device=device),
            _make_keys(group_jobs).to(device),
            torch.from_numpy(np.stack(list(sets.values()))).to(device),
            torch.tensor([index[job.fold.training_key] for job in group_jobs], device=device),
            n_batches(len(group_jobs[0].fold.train), batch_size),
        )

    def batches(self, keys: Tensor, chunk: slice, batch_size: int) -> Tensor:
        """Draw rows (g, steps, B) of a chunk of groups in full batches; remaining rows are left out of this epoch."""
        order = permutations(keys[chunk], self.rows.shape[1])[:, : self.steps * batch_size]
        return self.rows[self.row_set[chunk][:, None], order].view(len(order), self.steps, batch_size)


def _make_keys(jobs: Sequence[Job]) -> Tensor:
    """Return keys (g,) of the jobs' minibatches."""
    return as_keys([key_of("batches", job.fold.training_key, job.seed) for job in jobs])


def _index_training_subjects(recordings: Recordings, job: Job) -> NDArray[np.int64]:
    """Return subjects (N,) as 0, 1, … in training rows and −1 elsewhere; shuffled in classes if `shuffle_subjects`."""
    rows = job.fold.train
    labels = np.full(recordings.n_windows, -1, dtype=np.int64)
    labels[rows] = np.unique(recordings.subject.numpy()[rows], return_inverse=True)[1]
    if job.setting.penalty is None or not job.setting.penalty.shuffle_subjects:
        return labels
    y = recordings.y.numpy()
    generator = np.random.default_rng([key_of("control", job.fold.training_key), job.seed])
    for label in range(recordings.n_classes):
        class_rows = rows[y[rows] == label]
        labels[class_rows] = generator.permutation(labels[class_rows])
    return labels
