"""How far a run is, read from its ledger while another process may be writing it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..words import clock, printable, trainings_words
from .ending import longer_words
from .ledger import FINISHED, STATUSES, Entry, Ledger
from .lock import in_use

if TYPE_CHECKING:  # `status` answers at once, without torch
    from ..training.progress import Progress
    from ..training.trainer import Trainer

MOST_CURVES, MOST_POINTS = 40, 60  # of a pulse


@dataclass(frozen=True)
class Pulse:
    """Progress of the population in training, noted every few seconds."""

    population: int  # its number in the ledger
    time: float  # seconds since 1970
    epoch: int
    epochs: int  # of all its members together
    left: float | None  # seconds, as its progress bar says; None: nobody can tell yet
    curves: dict[str, list[float]]  # by the key of a setting: validation score by epoch, mean over members
    every: int  # epochs between points of a curve

    def __post_init__(self) -> None:
        if min(self.epoch, self.epochs, self.every - 1) < 0:
            raise UserError("a number of epochs is negative")

    @classmethod
    def of(cls, number: int, population: Trainer, bar: Progress) -> Pulse:
        from ..training.evaluation import MEASURED

        every = max(1, population.epoch // MOST_POINTS)
        history = population.snapshots.history[:, : population.epoch : every].float().cpu().numpy()
        by_setting: dict[str, list[int]] = {}
        for member, job in enumerate(population.jobs):
            by_setting.setdefault(job.setting.key, []).append(member)
        scores = {
            key: np.mean([history[m, :, MEASURED.index(f"score_{population.side(m)}")] for m in members], axis=0)
            for key, members in list(by_setting.items())[:MOST_CURVES]
        }
        curves = {key: values.round(4).tolist() for key, values in scores.items() if np.isfinite(values).all()}
        epochs = population.epoch * len(population.jobs)
        return cls(
            number, time.time(), population.epoch, epochs, bar.left if np.isfinite(bar.left) else None, curves, every
        )


class JobNumbers(NamedTuple):
    """A job in numbers."""

    status: str
    most: int  # epochs
    epochs: int = 0  # that were trained
    seconds: float = 0.0
    failure: str | None = None  # the name of its setting, and why

    @classmethod
    def of(cls, entry: Entry) -> JobNumbers:
        status, setting, record = entry.status, entry.setting, entry.record
        if record is None:
            return cls(status, setting.max_epochs)
        failure = printable(f"{setting.name}: {record.failure}") if status == "failed" else None
        return cls(status, setting.max_epochs, record.epochs, record.seconds, failure)


@dataclass(frozen=True)
class Standing:
    """A run in numbers: what `status` says and the live page shows."""

    folder: Path
    complete: bool
    ended: str  # why it did no more, where it is complete and answered in stages
    working: bool  # whether a living process holds its lock
    stage: str  # what jobs are left of
    counts: dict[str, int]  # jobs by status
    share: float  # of the epochs of all known jobs that are over
    spent: float  # seconds of training in finished jobs
    left: float | None  # seconds, as planned and measured; None: nothing is known yet
    answers: int  # that stand: RUN holds the model of the last of them
    started: str
    failures: list[str]  # names of settings and why
    pulse: Pulse | None  # of what is in work, where anything is

    @classmethod
    def of(cls, folder: Path, ledger: Ledger, jobs: Sequence[JobNumbers]) -> Standing:
        working = in_use(folder)
        counts = ledger.counts()
        known = ledger.recall("pulse", Pulse)
        at_work = {population.number for population in ledger.open_populations()} if working else set()
        pulse = known if known is not None and known.population in at_work else None
        spent, epochs = sum(job.seconds for job in jobs), sum(job.epochs for job in jobs)
        total = sum(job.most for job in jobs)
        ahead = sum(job.most for job in jobs if job.status not in FINISHED)
        begun = 0 if pulse is None else min(pulse.epochs, ahead)
        left = spent / epochs * (ahead - begun) if epochs else None
        if pulse is not None and pulse.left is not None:  # noted a while ago; clocks may have been set back
            left = max(0.0, pulse.left - max(0.0, time.time() - pulse.time))
        limit = ledger.recall("limit", list[float])  # seconds that it left, and when that was noted
        most = limit[0] - max(0.0, time.time() - limit[1]) * working if limit and len(limit) == 2 else np.inf
        planned = 0.0 if ledger.recall("complete", bool) else ledger.recall("ahead", float) or 0.0  # later stages
        return cls(
            folder=folder,
            complete=bool(ledger.recall("complete", bool)),
            ended=ledger.recall("ended", str) or "",
            working=working,
            stage=ledger.stage_words(),
            counts=counts,
            share=1 - (ahead - begun) / total if total else 0.0,
            spent=spent,
            left=None if left is None else max(0.0, min(left + planned, most)),
            answers=ledger.recall("answered", int) or 0,
            started=ledger.recall("started", str) or "",
            failures=[job.failure for job in jobs if job.failure is not None],
            pulse=pulse,
        )

    @property
    def state(self) -> str:
        if self.complete:
            return printable("; ".join(filter(None, ["finished", self.ended]))) + longer_words(self.ended, self.folder)
        ready = f"; {self.answers} stage{'s' * (self.answers != 1)} done, predict can be used" if self.answers else ""
        if self.working:
            return f"at work, {self.stage or 'models and report'}{ready}"
        return f"interrupted{ready}; continue with: autotransfer resume {self.folder}"

    @property
    def jobs(self) -> str:
        """'8 of 120 trainings done, 4 running, 108 waiting, 0 failed'."""
        done = trainings_words(self.counts.get("done", 0), sum(self.counts.values()))
        if self.answers and not self.complete:  # a stage's trainings are counted from its beginning on
            done = f"in the stages so far {done}"
        running = f"{self.counts.get('running', 0)} {'running' if self.working else 'begun'}"
        return f"{done}, {running}, {self.counts.get('waiting', 0)} waiting, {self.counts.get('failed', 0)} failed"

    def lines(self) -> list[str]:
        lines = [f"{self.folder}: {self.state}", self.jobs]
        if self.left is not None:
            left = f", about {clock(self.left)} left" if self.left else ""
            lines.append(f"{clock(self.spent)} of training so far{left}")
        if self.started and self.working:
            lines.append(printable(f"started {self.started}"))
        return lines + [f"failed: {failure}" for failure in self.failures]


def status_lines(folder: Path, name: str = "ledger.sqlite", *, scored: bool = True) -> list[str]:
    """Lines that say what is done, running, waiting and failed, and how long the rest may take. name, scored: of its
    ledger, and whether records in it have scores of classes."""
    with closing(Ledger(folder / name, read_only=True)) as ledger:
        jobs = read_job_numbers(ledger)
        if jobs is None:
            from .checks import check_entries

            entries = ledger.entries()
            check_entries(ledger, entries, scored=scored)
            jobs = [JobNumbers.of(entry) for entry in entries]
        return Standing.of(folder, ledger, jobs).lines()


SCORES = ("validation_score", "test_score", "swapped.validation_score", "swapped.test_score")


def read_job_numbers(ledger: Ledger) -> list[JobNumbers] | None:
    """Every job, from the ledger's text alone: the classes that settings and records become take seconds to import.
    None where anything is unusual, which is for `check_entries` to judge, and where anything has failed."""
    rows = ledger.extracts("epochs", "seconds", *SCORES, "failure")
    try:
        return None if rows is None else [_job_numbers(*row) for row in rows]
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _job_numbers(key: Any, setting: Any, validation: Any, test: Any, seed: Any, status: Any, values: Any) -> JobNumbers:
    numbers = (validation, test, seed)
    digest, most = _digest_and_epochs(setting)
    _expect(all(isinstance(n, int) and 0 <= n < 2**63 for n in numbers) and validation != test)
    _expect(key == f"{digest}-{min(validation, test)}-{max(validation, test)}-{seed}" and status in STATUSES)
    _expect((values is not None) == (status in FINISHED))
    if values is None:
        return JobNumbers(status, most)
    epochs, seconds, *scores, failure = json.loads(values)
    _expect(failure is None and isinstance(epochs, int) and epochs >= 0 and 0 <= seconds < np.inf)
    _expect(all(0 <= score <= 1 for score in scores))
    return JobNumbers(status, most, epochs, float(seconds))


@cache
def _digest_and_epochs(setting: str) -> tuple[str, int]:
    """As `Setting.key` has the digest: text that was changed has another than its job's key says."""
    most = json.loads(setting)["max_epochs"]
    _expect(isinstance(most, int) and most > 0)
    return hashlib.blake2b(setting.encode(), digest_size=8).hexdigest(), most


def _expect(usual: bool) -> None:
    if not usual:
        raise ValueError
