"""How far a run is, read from its ledger while another process may be writing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..training.progress import clock, jobs_words
from .checks import check_entries
from .files import in_use
from .ledger import FINISHED, Entry, Ledger


def standing(folder: Path) -> list[str]:
    """Lines that say what is done, running, waiting and failed, and how long the rest may take."""
    ledger = Ledger(folder / "ledger.sqlite", read_only=True)
    try:
        entries = ledger.entries()
        check_entries(ledger, entries)
        return _lines(folder, ledger, entries)
    finally:
        ledger.close()


def _lines(folder: Path, ledger: Ledger, entries: Sequence[Entry]) -> list[str]:
    counts = ledger.counts()
    total = sum(counts.values())
    done, failed = counts.get("done", 0), counts.get("failed", 0)
    working = in_use(folder)
    running = counts.get("running", 0)
    complete = bool(ledger.recall("complete", bool))
    state = (
        "finished"
        if complete
        else f"at work, {ledger.stage_words() or 'models and report'}"
        if working
        else f"interrupted; continue with: autotransfer resume {folder}"
    )
    lines = [
        f"{folder}: {state}",
        f"{jobs_words(done, total, known=True)}, {running} {'running' if working else 'begun'}, "
        f"{counts.get('waiting', 0)} waiting, {failed} failed",
    ]
    spent = sum(entry.record.seconds for entry in entries if entry.record)
    epochs = sum(entry.record.epochs for entry in entries if entry.record)
    left = sum(entry.setting.max_epochs for entry in entries if entry.status not in FINISHED)
    if epochs:
        lines.append(f"{clock(spent)} of training so far, about {clock(spent / epochs * left)} left for the known jobs")
    started = ledger.recall("started", str)
    if started and working:
        lines.append(_printable(f"started {started}"))
    lines += [
        _printable(f"failed: {e.setting.name}: {e.record.failure}")
        for e in entries
        if e.status == "failed" and e.record
    ]
    return lines


def _printable(text: str) -> str:
    """Without what would command a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
