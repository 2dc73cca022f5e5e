"""How far a run is, read from its ledger while another process may be writing it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..training.evaluation import MEASURED
from ..training.progress import Progress, clock, jobs_words
from ..training.trainer import Trainer
from ..words import printable
from .checks import check_entries
from .ledger import FINISHED, Entry, Ledger
from .lock import in_use

MOST_CURVES, MOST_POINTS = 40, 60  # of a pulse


@dataclass(frozen=True)
class Pulse:
    """What the population in work has come to. A process that trains notes it every few seconds."""

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
        every = max(1, population.epoch // MOST_POINTS)
        history = population.snapshots.history[:, : population.epoch : every].float().cpu().numpy()
        own: dict[str, list[int]] = {}
        for member, job in enumerate(population.jobs):
            own.setdefault(job.setting.key, []).append(member)
        scores = {
            key: np.mean([history[m, :, MEASURED.index(f"score_{population.side(m)}")] for m in members], axis=0)
            for key, members in list(own.items())[:MOST_CURVES]
        }
        curves = {key: values.round(4).tolist() for key, values in scores.items() if np.isfinite(values).all()}
        epochs = population.epoch * len(population.jobs)
        return cls(
            number, time.time(), population.epoch, epochs, bar.left if np.isfinite(bar.left) else None, curves, every
        )


@dataclass(frozen=True)
class Standing:
    """A run in numbers: what `status` says and the live page shows."""

    folder: Path
    complete: bool
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
    def of(cls, folder: Path, ledger: Ledger, entries: Sequence[Entry]) -> Standing:
        working = in_use(folder)
        counts = ledger.counts()
        known = ledger.recall("pulse", Pulse)
        at_work = {population.number for population in ledger.open_populations()} if working else set()
        pulse = known if known is not None and known.population in at_work else None
        spent = sum(entry.record.seconds for entry in entries if entry.record)
        epochs = sum(entry.record.epochs for entry in entries if entry.record)
        total = sum(entry.setting.max_epochs for entry in entries)
        ahead = sum(entry.setting.max_epochs for entry in entries if entry.status not in FINISHED)
        begun = 0 if pulse is None else min(pulse.epochs, ahead)
        left = spent / epochs * (ahead - begun) if epochs else None
        planned = 0.0 if ledger.recall("complete", bool) else ledger.recall("ahead", float) or 0.0  # later stages
        return cls(
            folder=folder,
            complete=bool(ledger.recall("complete", bool)),
            working=working,
            stage=ledger.stage_words(),
            counts=counts,
            share=1 - (ahead - begun) / total if total else 0.0,
            spent=spent,
            left=_plus(left if pulse is None or pulse.left is None else _later(pulse.left, pulse.time), planned),
            answers=ledger.recall("answered", int) or 0,
            started=ledger.recall("started", str) or "",
            failures=[
                printable(f"{e.setting.name}: {e.record.failure}") for e in entries if e.status == "failed" and e.record
            ],
            pulse=pulse,
        )

    @property
    def state(self) -> str:
        if self.complete:
            return "finished"
        ready = f"; {self.answers} stage{'s' * (self.answers != 1)} done, predict can be used" if self.answers else ""
        if self.working:
            return f"at work, {self.stage or 'models and report'}{ready}"
        return f"interrupted{ready}; continue with: autotransfer resume {self.folder}"

    @property
    def jobs(self) -> str:
        """'8 of 120 known jobs done, 4 running, 108 waiting, 0 failed'."""
        done = jobs_words(self.counts.get("done", 0), sum(self.counts.values()), known=True)
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


def standing(folder: Path) -> list[str]:
    """Lines that say what is done, running, waiting and failed, and how long the rest may take."""
    with closing(Ledger(folder / "ledger.sqlite", read_only=True)) as ledger:
        entries = ledger.entries()
        check_entries(ledger, entries)
        return Standing.of(folder, ledger, entries).lines()


def _plus(left: float | None, planned: float) -> float | None:
    return left if left is None or not planned else left + planned


def _later(left: float, told: float) -> float:
    """Seconds left now, of those that were left then. Clocks may have been set back."""
    return max(0.0, left - max(0.0, time.time() - told))
