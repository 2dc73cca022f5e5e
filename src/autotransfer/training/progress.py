"""Progress with time left: a bar in a terminal, nothing elsewhere unless asked, then plain lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..jobs import Outcome

if TYPE_CHECKING:
    from .trainer import Trainer

LINE_EVERY = 10.0  # seconds between plain lines


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class Progress:
    """Counts member-epochs, of which `total` are to be done at most, and finished members."""

    def __init__(self, total: int, members: int, *, shown: bool | None, label: str = "training") -> None:
        self.total, self.members, self.label = total, members, label
        self.terminal = sys.stderr.isatty()
        self.shown = self.terminal if shown is None else shown
        self.done = self.over = 0
        self.bar: Any = None

    def __enter__(self) -> Progress:
        self.start, self.last = time.perf_counter(), 0.0
        if self.shown and self.terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
                console=Console(stderr=True),
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def epoch(self, population: Trainer) -> None:
        """Every member of the population has done another epoch."""
        self.advance(len(population.jobs) - len(population.over))

    def finished(self, outcome: Outcome) -> None:
        """A member has left; epochs that it did not need are not waited for."""
        self.over += 1
        self.advance(1 + outcome.job.setting.max_epochs - outcome.epochs)

    def elsewhere(self, max_epochs: Sequence[int]) -> None:
        """These members have come back from another process, each with all its epochs at once."""
        self.over += len(max_epochs)
        self.advance(sum(max_epochs))

    def advance(self, epochs: int) -> None:
        self.done += epochs
        if not self.shown:
            return
        note = f"{self.over}/{self.members} trained"
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, note=note)
        elif (spent := time.perf_counter() - self.start) - self.last > LINE_EVERY or self.done >= self.total:
            self.last = spent
            left = spent * max(self.total - self.done, 0) / max(self.done, 1)
            print(
                f"{self.label}: {note}, {clock(spent)} elapsed, {clock(left)} left",
                file=sys.stderr,
                flush=True,
            )
