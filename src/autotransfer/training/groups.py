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
from ..settings import SUBJECT
from .batches import BALANCES, balanced, n_batches, shuffled
from .nuisance import groups_of, most_groups


class Groups:
    """Members that train on the same rows in the same order: one minibatch serves them all.

    G groups, one for every (training rows, held-out rows, seed, kind of batches, nuisance labels) among the jobs.
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
        self.nuisance = [_training_labels(recordings, job) for job in self.jobs]
        self.n_labels = [_n_labels(recordings, job) for job in self.jobs]
        self.steps_of = [n_batches(len(job.fold.train), batch_size) for job in self.jobs]
        self.steps = torch.tensor(self.steps_of, device=device)  # (G,) in an epoch
        self.seeds = [_words(key_of("batches", job.fold.trajectory), job.seed, 0) for job in self.jobs]
        self.keys = as_keys([key_of("dropout", job.fold.trajectory, job.seed) for job in self.jobs], device)
        # (G, N): nuisance labels counted from 0 among the training rows, else -1, so that no other row is ever censored
        self.rank = torch.from_numpy(np.stack(self.nuisance)).to(device)
        counts = [np.bincount(self.y[job.fold.train], minlength=recordings.n_classes) for job in self.jobs]
        self.class_counts = torch.tensor(np.stack(counts), device=device)

    @staticmethod
    def _identity(job: Job) -> tuple[object, ...]:
        penalty = job.setting.penalty
        shuffled = penalty is not None and penalty.shuffle_subjects
        return (*job.trajectory[1:], job.setting.training.batches, shuffled, _nuisance(job))

    @property
    def shared(self) -> Tensor | None:
        """`of_member` where members share batches; None where each has its own, in order."""
        return None if self._apart else self.of_member

    def plan(self, epoch: int) -> Tensor:
        """Rows of every step of an epoch, (steps, G, B), in host memory; 0 where a group has no such step."""
        plan = np.zeros((len(self.jobs), max(self.steps_of), self.batch_size), dtype=np.int64)
        for g, job in enumerate(self.jobs):
            self.seeds[g][-1] = epoch
            generator, rows = np.random.default_rng(self.seeds[g]), job.fold.train
            balance = BALANCES.get(job.setting.training.batches)
            if balance is None:
                own = shuffled(rows, self.batch_size, generator=generator)
            else:
                labels = self.y[rows], self.nuisance[g][rows]
                own = balanced(rows, *labels, self.batch_size, balance, generator=generator)
            plan[g, : len(own)] = own
        return torch.from_numpy(plan).transpose(0, 1).contiguous()

    def select(self, keep: Tensor) -> Tensor:
        """Keep these members; groups that nobody reads any more leave. Returns the groups that stay."""
        stay, of_member = self.of_member[keep].unique(return_inverse=True)  # type: ignore[no-untyped-call]  # torch's
        self.of_member, self._apart = of_member, of_member.tolist() == list(range(len(stay)))
        numbers = stay.tolist()
        self.jobs = [self.jobs[g] for g in numbers]
        self.nuisance, self.n_labels = [self.nuisance[g] for g in numbers], [self.n_labels[g] for g in numbers]
        self.seeds = [self.seeds[g] for g in numbers]
        self.steps_of, self.steps = [self.steps_of[g] for g in numbers], self.steps[stay]
        self.keys, self.rank, self.class_counts = self.keys[stay], self.rank[stay], self.class_counts[stay]
        return torch.tensor(numbers, dtype=torch.long, device=keep.device)


def _words(*numbers: int) -> NDArray[np.uint32]:
    """What a generator makes of a list of numbers before it is seeded, which takes it as long as everything else."""
    return np.array(
        [number >> shift & 0xFFFFFFFF for number in numbers for shift in range(0, max(number.bit_length(), 1), 32)],
        dtype=np.uint32,
    )


def _n_labels(recordings: Recordings, job: Job) -> int:
    """How many nuisance labels a critic tells apart. People are counted in the training rows, which folds share; of any
    other nuisance folds may have different numbers, and the most that there can be is a number for all of them."""
    if _nuisance(job) == SUBJECT:
        return len(np.unique(recordings.subject.numpy()[job.fold.train]))
    return most_groups(recordings, _nuisance(job))


def _nuisance(job: Job) -> str:
    return SUBJECT if job.setting.penalty is None else job.setting.penalty.nuisance


def _training_labels(recordings: Recordings, job: Job) -> NDArray[np.int64]:
    """Nuisance labels (N,) as training sees them: for the control, shuffled within class over the training rows."""
    rows = job.fold.train
    labels = groups_of(recordings, _nuisance(job), rows)
    if job.setting.penalty is None or not job.setting.penalty.shuffle_subjects:
        return labels
    y = recordings.y.numpy()
    generator = np.random.default_rng([key_of("control", job.fold.trajectory), job.seed])
    for label in range(recordings.n_classes):
        own = rows[(y[rows] == label) & (labels[rows] >= 0)]
        labels[own] = generator.permutation(labels[own])
    return labels
