"""A whole run of the quick grid over all folds: as populations, one at a time, and as a plain loop would take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

import autotransfer as at

from .options import Options
from .steps import member_steps, plain_step
from .tables import Table
from .timing import fresh_process, here, measure, synchronise

EPOCHS = {"full": {"cpu": 5, "cuda": 50}, "quick": {"cpu": 1, "cuda": 5}, "tiny": {"cpu": 1, "cuda": 1}}


class Work(NamedTuple):
    """What is to be trained; can be sent to another process."""

    data: Path | None
    size: str
    device: str
    epochs: int

    def recordings(self) -> at.Recordings:
        """The user's, or synthetic ones with a subject shift: small, but every part of a real run takes place."""
        if self.data is not None:
            return at.load(self.data)
        if self.size == "tiny":
            return at.synthetic(n_subjects=3, trials_per_class=4, n_channels=2, n_times=32, subject_shift=0.5)
        trials, subjects = (16, 4) if self.size == "quick" else (24, 8)
        return at.synthetic(subjects, 4, trials, n_channels=16, n_times=128, subject_shift=0.5)

    def jobs(self, recordings: at.Recordings) -> list[list[at.Job]]:
        """Every setting of the quick grid, by fold."""
        settings = [setting.replace(max_epochs=self.epochs, patience=None) for setting in at.grid("quick")]
        settings = settings[:: 6 if self.size == "tiny" else 1]
        return [[at.Job(setting, fold) for setting in settings] for fold in at.leave_one_subject_out(recordings)]


def stacked_seconds(work: Work) -> tuple[float, int]:
    """All jobs through at.train: seconds, and the largest population. Compiling counts."""
    recordings = work.recordings()
    jobs = [job for own in work.jobs(recordings) for job in own]
    torch.zeros(1, device=work.device)  # starting the device does not count
    start = time.perf_counter()
    outcomes = at.train(recordings, jobs, device=work.device, progress=False)
    synchronise(work.device)
    return time.perf_counter() - start, max(outcome.population for outcome in outcomes)


def alone_seconds(work: Work) -> tuple[float, float]:
    """Jobs of the first and of the second fold one at a time: the first pays what is paid once."""
    recordings = work.recordings()
    torch.zeros(1, device=work.device)
    seconds = []
    for jobs in work.jobs(recordings)[:2]:
        start = time.perf_counter()
        at.train(recordings, jobs, device=work.device, population=1, progress=False)
        synchronise(work.device)
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def tables(options: Options) -> Iterator[Table]:
    device = options.device
    work = Work(options.data, options.size, device, options.epochs or EPOCHS[options.size][device])
    recordings = work.recordings()
    by_fold = work.jobs(recordings)
    jobs = list({job.trajectory: job for own in by_fold for job in own}.values())
    steps = sum(member_steps(job) for job in jobs) * work.epochs

    apart = here if options.size == "tiny" else fresh_process
    together, largest = apart(stacked_seconds, work)
    first, second = apart(alone_seconds, work)
    one_by_one = first + second * (len(by_fold) - 1)
    batch = min(jobs[0].setting.training.batch_size, len(jobs[0].fold.train))
    plain = plain_step(recordings.n_channels, recordings.n_times, batch, device, recordings.n_classes)
    bare = measure({"": plain}, rounds=3, device=device, limit_s=10.0)[""].median * steps

    shape = f"{recordings.n_subjects} subjects, {recordings.n_channels} channels × {recordings.n_times} samples"
    table = Table(f"the quick grid on every fold, {shape}, {work.epochs} epochs, {device}")
    for name, seconds in (
        (f"populations of up to {largest}", together),
        (f"one at a time (projected from 2 of {len(by_fold)} folds)", one_by_one),
        ("plain Conv2d loop (projected: step × steps)", bare),
    ):
        table.add({
            "all jobs": name, "trainings": len(jobs), "steps": steps, "seconds": seconds,
            "ms per step": seconds / steps * 1e3, "speed-up": seconds / together,
        })  # fmt: skip
    table.notes.append(
        "Ours with censors, evaluation after every epoch and snapshots, in fresh processes, compiling included. "
        "The plain loop is its uncensored training step alone."
    )
    yield table
