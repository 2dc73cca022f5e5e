"""Groups: members of a population that read the same rows in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import Job
from ..randomness import as_keys, key_of
from ..recordings import Recordings
from .batches import BALANCES, balanced, n_batches, shuffled


class Groups:
    """Members that train on the same rows in the same order: one minibatch serves them all.

    G groups, one for every (training rows, held-out rows, seed, kind of batches, subject labels) among the jobs.
    """

    def __init__(self, recordings: Recordings, jobs: Sequence[Job], batch_size: int, device: torch.device) -> None:
        first: dict[tuple[object, ...], Job] = {}
        for job in jobs:
            first.setdefault(self._identity(job), job)
        place = {identity: number for number, identity in enumerate(first)}
        self.jobs = list(first.values())
        self.of_member = torch.tensor([place[self._identity(job)] for job in jobs], device=device)
        self._apart = len(first) == len(jobs)
        self.batch_size = batch_size
        self.y = recordings.y.numpy()
        self.subject = [_training_subjects(recordings, job) for job in self.jobs]
        self.n_subjects = len(np.unique(self.subject[0][self.jobs[0].fold.train]))
        self.steps_of = [n_batches(len(job.fold.train), batch_size) for job in self.jobs]
        self.steps = torch.tensor(self.steps_of, device=device)  # (G,) in an epoch
        self.keys = as_keys([key_of("dropout", job.fold.trajectory, job.seed) for job in self.jobs], device)
        self.rank = torch.stack([_ranks(s, job.fold.train) for s, job in zip(self.subject, self.jobs, strict=True)])
        self.rank = self.rank.to(device)  # (G, N): subject labels counted from 0 among the training rows, else -1
        counts = [np.bincount(self.y[job.fold.train], minlength=recordings.n_classes) for job in self.jobs]
        self.class_counts = torch.tensor(np.stack(counts), device=device)

    @staticmethod
    def _identity(job: Job) -> tuple[object, ...]:
        penalty = job.setting.penalty
        return (*job.trajectory[1:], job.setting.training.batches, penalty is not None and penalty.shuffle_subjects)

    @property
    def shared(self) -> Tensor | None:
        """`of_member` where members share batches; None where each has its own, in order."""
        return None if self._apart else self.of_member

    def plan(self, epoch: int) -> Tensor:
        """Rows of every step of an epoch, (steps, G, B), in host memory; 0 where a group has no such step."""
        steps = max(self.steps_of)
        plan = np.zeros((steps, len(self.jobs), self.batch_size), dtype=np.int64)
        for g, job in enumerate(self.jobs):
            generator = np.random.default_rng([key_of("batches", job.fold.trajectory), job.seed, epoch])
            rows = job.fold.train
            balance = BALANCES.get(job.setting.training.batches)
            if balance is None:
                own = shuffled(rows, self.batch_size, generator=generator)
            else:
                labels = self.y[rows], self.subject[g][rows]
                own = balanced(rows, *labels, self.batch_size, balance, generator=generator)
            plan[: len(own), g] = own
        return torch.from_numpy(plan)

    def select(self, keep: Tensor) -> Tensor:
        """Keep these members; groups that nobody reads any more leave. Returns the groups that stay."""
        stay, of_member = self.of_member[keep].unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
        self.of_member, self._apart = of_member, of_member.tolist() == list(range(len(stay)))
        numbers = stay.tolist()
        self.jobs = [self.jobs[g] for g in numbers]
        self.subject = [self.subject[g] for g in numbers]
        self.steps_of, self.steps = [self.steps_of[g] for g in numbers], self.steps[stay]
        self.keys, self.rank, self.class_counts = self.keys[stay], self.rank[stay], self.class_counts[stay]
        return torch.tensor(numbers, dtype=torch.long, device=keep.device)


def _training_subjects(recordings: Recordings, job: Job) -> NDArray[np.int64]:
    """Subject labels (N,) as training sees them: for the control, shuffled within class over the training rows."""
    subject = recordings.subject.numpy()
    if job.setting.penalty is None or not job.setting.penalty.shuffle_subjects:
        return subject
    subject, y, rows = subject.copy(), recordings.y.numpy(), job.fold.train
    generator = np.random.default_rng([key_of("control", job.fold.trajectory), job.seed])
    for label in range(recordings.n_classes):
        own = rows[y[rows] == label]
        subject[own] = generator.permutation(subject[own])
    return subject


def _ranks(subject: NDArray[np.int64], rows: NDArray[np.int64]) -> Tensor:
    """(N,) labels of the training rows as 0, 1, ...; -1 elsewhere, so that no other row is ever censored."""
    ranks = np.full(len(subject), -1, dtype=np.int64)
    ranks[rows] = np.unique(subject[rows], return_inverse=True)[1]
    return torch.from_numpy(ranks)
