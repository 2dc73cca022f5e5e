"""How far a run is, read from its run database while another process may be writing it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from ..words import clock, fits_words, printable
from .database import RunDatabase
from .lock import in_use

OUT_OF_TIME = "there was no time for the next stage"  # why a run ended that `resume --time` continues


def resume_hint(ended: str | None, folder: Path) -> str:
    """Return how a run that was out of time continues, after the sentence that says why it ended."""
    return f"; autotransfer resume {folder} --time 10m gives it longer" if ended == OUT_OF_TIME else ""


def status_lines(folder: Path) -> list[str]:
    """Return lines that say what is done, running, waiting and failed, and how long the stage at work may take."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        working, complete = in_use(folder), bool(database.recall("complete", bool))
        answers = database.recall("delivered_stages", int) or 0
        done = f"{answers} stage{'s' * (answers != 1)} done, predict can be used" if answers else ""
        if complete:
            ended = database.recall("end_reason", str) or ""
            state = printable("; ".join(filter(None, ["finished", ended]))) + resume_hint(ended, folder)
        elif working:
            state = "; ".join(filter(None, [f"at work, {database.stage_words() or 'models and report'}", done]))
        else:
            state = "; ".join(filter(None, ["interrupted", done, f"continue with: autotransfer resume {folder}"]))
        lines = [
            f"{folder}: {state}",
            _job_words(database.counts(), working=working, staged=bool(answers) and not complete),
        ]
        if working:
            started, left = database.recall("started", str) or "", _seconds_left(database)
            about = "" if left is None else f", about {clock(left)} left of this stage"
            lines.append(printable(f"started {started}{about}"))
        return lines + _failure_lines(database)


def _failure_lines(database: RunDatabase) -> list[str]:
    failures = database.failures()
    if not failures:
        return []
    from ..settings import Setting  # which takes seconds to import, with torch

    return [f"failed: {printable(f'{Setting.from_dict(setting).name}: {reason}')}" for setting, reason in failures]


def _job_words(counts: dict[str, int], *, working: bool, staged: bool) -> str:
    """Return '8 of 120 fits done, 4 running, 108 waiting, 0 failed'."""
    done = fits_words(counts.get("done", 0), sum(counts.values()))
    if staged:  # a stage's fits are counted from its beginning on
        done = f"in the stages so far {done}"
    running = f"{counts.get('running', 0)} {'running' if working else 'begun'}"
    return f"{done}, {running}, {counts.get('waiting', 0)} waiting, {counts.get('failed', 0)} failed"


def _seconds_left(database: RunDatabase) -> float | None:
    """Return the seconds that are left of the stage at work, at most those of the run; None if nothing is known yet."""

    def noted_seconds(name: str) -> float | None:
        """Return seconds that were left when they were noted, less the time since then."""
        noted = database.recall(name, list[float])
        if not noted or len(noted) != 2:
            return None
        left, moment = noted
        return max(0.0, left - max(0.0, time.time() - moment))  # clocks may have been set back

    left, limit = noted_seconds("stage_seconds_left"), noted_seconds("limit")
    return left if left is None or limit is None else min(left, limit)
