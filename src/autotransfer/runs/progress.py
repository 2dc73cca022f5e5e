"""Status of a run, read from its database while another process may be writing to it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from ..words import clock, count, fits_words, printable
from .database import RunDatabase
from .lock import is_in_use

OUT_OF_TIME = "the time left was too short for another stage"  # end reason of a run that `resume --time` continues


def resume_hint(end_reason: str | None, folder: Path) -> str:
    """Return the command that continues a run that reached its time limit; empty for other runs."""
    return f"; continue it with: autotransfer resume {folder} --time 10m" if end_reason == OUT_OF_TIME else ""


def status_lines(folder: Path) -> list[str]:
    """Return lines with the state of a run, numbers of jobs, the remaining time of the stage, and failures."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        is_running, is_complete = is_in_use(folder), bool(database.load_fact("complete", bool))
        n_stages = database.load_fact("delivered_stages", int) or 0
        done = f"{count(n_stages, 'stage')} done, predict can be used" if n_stages else ""
        if is_complete:
            reason = database.load_fact("end_reason", str) or ""
            state = printable("; ".join(filter(None, ["finished", reason]))) + resume_hint(reason, folder)
        elif is_running:
            state = "; ".join(filter(None, [f"running, {database.stage_words() or 'models and report'}", done]))
        else:
            state = "; ".join(filter(None, ["interrupted", done, f"continue with: autotransfer resume {folder}"]))
        lines = [
            f"{folder}: {state}",
            _count_jobs(database.counts(), is_running=is_running, so_far=bool(n_stages) and not is_complete),
        ]
        if is_running:
            started, seconds_left = database.load_fact("started", str) or "", _estimate_seconds_left(database)
            remaining = "" if seconds_left is None else f", about {clock(seconds_left)} left of this stage"
            lines.append(printable(f"started {started}{remaining}"))
        return lines + _describe_failures(database)


def _describe_failures(database: RunDatabase) -> list[str]:
    failures = database.failures()
    if not failures:
        return []
    from ..settings import Setting  # imported here, because torch takes seconds to import

    return [f"failed: {printable(f'{Setting.from_dict(setting).name}: {reason}')}" for setting, reason in failures]


def _count_jobs(counts: dict[str, int], *, is_running: bool, so_far: bool) -> str:
    """Return numbers of jobs, such as '8 of 120 fits done, 4 running, 108 waiting, 0 failed'."""
    done = fits_words(counts.get("done", 0), sum(counts.values()))
    if so_far:  # fits of later stages are not in the database yet
        done = f"stages so far: {done}"
    running = f"{counts.get('running', 0)} {'running' if is_running else 'interrupted'}"
    return f"{done}, {running}, {counts.get('waiting', 0)} waiting, {counts.get('failed', 0)} failed"


def _estimate_seconds_left(database: RunDatabase) -> float | None:
    """Return the estimated seconds left of the stage, at most the seconds left of the run; None if unknown."""

    def stored_seconds(name: str) -> float | None:
        """Return a stored number of seconds minus the time since it was stored."""
        stored = database.load_fact(name, list[float])
        if not stored or len(stored) != 2:
            return None
        seconds, store_time = stored
        return max(0.0, seconds - max(0.0, time.time() - store_time))  # the clock may have been set back

    stage, run = stored_seconds("stage_seconds_left"), stored_seconds("limit")
    return stage if stage is None or run is None else min(stage, run)
