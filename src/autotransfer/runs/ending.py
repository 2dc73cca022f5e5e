"""Why a run that answers in stages ended, in words."""

from __future__ import annotations

from pathlib import Path

OVER = "there was no time for the next stage"


def out_of_time(ended: str | None) -> bool:
    return ended == OVER


def longer_words(ended: str | None, folder: Path) -> str:
    """How such a run goes on, after the sentence that says that it ended."""
    return f"; autotransfer resume {folder} --time 10m gives it longer" if out_of_time(ended) else ""
