"""How far a run is, read from its run database while another process may be writing it."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ..errors import one_line
from ..words import clock, printable, trainings_words
from .ledger import FINISHED, DamagedLedger, Ledger
from .lock import in_use

OVER = "there was no time for the next stage"  # why a run ended that `resume --time` continues


def longer_words(ended: str | None, folder: Path) -> str:
    """Return how a run that was out of time continues, after the sentence that says why it ended."""
    return f"; autotransfer resume {folder} --time 10m gives it longer" if ended == OVER else ""


class JobNumbers(NamedTuple):
    """A job in numbers."""

    status: str
    most: int  # epochs
    epochs: int  # that were trained
    seconds: float
    failure: str | None  # the name of its setting, and why it failed

    @classmethod
    def of(cls, setting: str, status: str, values: str | None) -> JobNumbers:
        """setting: as JSON; values: [epochs, seconds, failure] of a finished job as JSON."""
        fields = json.loads(setting)
        epochs, seconds, failure = (0, 0.0, None) if values is None else json.loads(values)
        if not all(isinstance(number, int | float) for number in (fields["max_epochs"], epochs, seconds)):
            raise ValueError("a job has no number of epochs or seconds")
        if failure is not None:
            from ..settings import Setting  # which takes seconds to import, with torch

            failure = printable(f"{Setting.from_dict(fields).name}: {failure}")
        return cls(status, fields["max_epochs"], epochs, seconds, failure)


def status_lines(folder: Path) -> list[str]:
    """Return lines that say what is done, running, waiting and failed, and how long the rest may take."""
    with closing(Ledger(folder / "ledger.sqlite", read_only=True)) as ledger:
        try:
            jobs = [JobNumbers.of(*row) for row in ledger.job_numbers()]
        except (sqlite3.OperationalError, ValueError, LookupError, TypeError) as error:
            raise DamagedLedger(ledger.path, one_line(error)) from None
        return _lines(folder, ledger, jobs)


def _lines(folder: Path, ledger: Ledger, jobs: list[JobNumbers]) -> list[str]:
    working, complete = in_use(folder), bool(ledger.recall("complete", bool))
    answers = ledger.recall("answered", int) or 0
    done = f"{answers} stage{'s' * (answers != 1)} done, predict can be used" if answers else ""
    if complete:
        ended = ledger.recall("ended", str) or ""
        state = printable("; ".join(filter(None, ["finished", ended]))) + longer_words(ended, folder)
    elif working:
        state = "; ".join(filter(None, [f"at work, {ledger.stage_words() or 'models and report'}", done]))
    else:
        state = "; ".join(filter(None, ["interrupted", done, f"continue with: autotransfer resume {folder}"]))
    lines = [f"{folder}: {state}", _job_words(ledger.counts(), working=working, staged=bool(answers) and not complete)]
    left = _seconds_left(ledger, jobs, working=working)
    if left is not None:
        about = f", about {clock(left)} left" if left else ""
        lines.append(f"{clock(sum(job.seconds for job in jobs))} of training so far{about}")
    started = ledger.recall("started", str)
    if started and working:
        lines.append(printable(f"started {started}"))
    return lines + [f"failed: {job.failure}" for job in jobs if job.failure is not None]


def _job_words(counts: dict[str, int], *, working: bool, staged: bool) -> str:
    """Return '8 of 120 trainings done, 4 running, 108 waiting, 0 failed'."""
    done = trainings_words(counts.get("done", 0), sum(counts.values()))
    if staged:  # a stage's trainings are counted from its beginning on
        done = f"in the stages so far {done}"
    running = f"{counts.get('running', 0)} {'running' if working else 'begun'}"
    return f"{done}, {running}, {counts.get('waiting', 0)} waiting, {counts.get('failed', 0)} failed"


def _seconds_left(ledger: Ledger, jobs: list[JobNumbers], *, working: bool) -> float | None:
    """Return the seconds that are left of the stage at work; None if nothing is known yet."""

    def noted_seconds(name: str) -> float | None:
        """Seconds that were left when they were noted, less the time since then."""
        noted = ledger.recall(name, list[float])
        if not noted or len(noted) != 2:
            return None
        left, moment = noted
        return left - max(0.0, time.time() - moment) * working  # clocks may have been set back

    ahead = sum(job.most for job in jobs if job.status not in FINISHED)
    epochs = sum(job.epochs for job in jobs)
    left = ahead * sum(job.seconds for job in jobs) / epochs if epochs else None
    at_work = noted_seconds("pulse") if working and ahead else None
    left = left if at_work is None else at_work
    if left is None:
        return None
    limit = noted_seconds("limit")
    return max(0.0, min(left, math.inf if limit is None else limit))
