"""Progress with time left: a bar in a terminal, nothing elsewhere unless asked, then plain lines."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ..folds import name_of
from ..jobs import Outcome
from ..words import clock, fits_words

if TYPE_CHECKING:
    from .trainer import Trainer

LOG = logging.getLogger("autotransfer")  # silent unless a handler is added
LINE_EVERY = 10.0  # seconds between plain lines


@contextmanager
def show_work(label: str, *, shown: bool | None) -> Iterator[None]:
    """Show work without epochs: a spinner in a terminal, elsewhere a line once it is done."""
    start, terminal = time.perf_counter(), sys.stderr.isatty()
    wanted = terminal if shown is None else shown
    with ExitStack() as stack:
        if wanted and terminal:
            from rich.console import Console

            stack.enter_context(Console(stderr=True).status(label))
        yield
    spent = time.perf_counter() - start
    LOG.info("%s: %s", label, clock(spent))
    if wanted and not terminal and spent > LINE_EVERY:
        print(f"{label}: {clock(spent)}", file=sys.stderr, flush=True)


class Progress:
    """Counts member-epochs, of which `total` are to be done at most, and members that are done or failed.

    before: how many of the members are already done, and how many have failed
    until: when it is given up, by the monotonic clock
    """

    def __init__(
        self, total: int, members: int, *, shown: bool | None, label: str = "training",
        before: tuple[int, int] = (0, 0), until: float = math.inf,
    ) -> None:  # fmt: skip
        self.until = until
        self.total, self.members, self.label = total, members, label
        self.terminal = sys.stderr.isatty()
        self.shown = self.terminal if shown is None else shown
        self.well, self.failed = before
        self.done = 0
        self.ended = ""  # the note that was shown when all epochs were over
        self.began: tuple[float, int] | None = None  # when the first epoch was over, and what had been done then
        self.bar: Any = None

    def __enter__(self) -> Progress:
        self.start, self.last = time.perf_counter(), 0.0
        if self.shown and self.terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]} left"),
                console=Console(stderr=True),
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, note="", left=clock(self.seconds_left))
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def subtract_finished(self, population: Trainer) -> None:
        """Subtract the finished epochs of a population that continues from a checkpoint."""
        self.total -= population.epoch * (len(population.jobs) - len(population.finished_members))
        if self.bar is not None:
            self.bar.update(self.task, total=self.total)

    def add_epoch(self, population: Trainer) -> None:
        """Count another epoch of every member of the population."""
        self.advance(len(population.jobs) - len(population.finished_members))

    def add_outcome(self, outcome: Outcome) -> None:
        """Count a member that has left; epochs that it did not need count as done."""
        self._count([outcome.failure is not None])
        job = outcome.job
        LOG.debug(
            "%s: %s, tested on %s, seed %d: %s, epoch %d of %d, %.1f s",
            self.label, job.setting.name, name_of(job.fold.test_subject), job.seed,
            f"balanced accuracy {outcome.test_score:.3f}" if outcome.failure is None else outcome.failure,
            outcome.best_epoch, outcome.epochs, outcome.seconds,
        )  # fmt: skip
        self.advance(1 + job.setting.max_epochs - outcome.epochs)

    def add_results(self, max_epochs: Sequence[int], failed: Sequence[bool]) -> None:
        """Count members that came back from another process, each with all its epochs at once."""
        self._count(failed)
        self.advance(sum(max_epochs))

    def _count(self, failed: Sequence[bool]) -> None:
        self.failed += sum(failed)
        self.well += len(failed) - sum(failed)

    def advance(self, epochs: int) -> None:
        self.done += epochs
        spent = time.perf_counter() - self.start
        if self.began is None:
            self.began = spent, self.done
        note = fits_words(self.well, self.members, self.failed)
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, note=note, left=clock(self.seconds_left))
        # After the last epoch, members that leave may change nothing that is shown.
        over = self.done >= self.total
        if note != self.ended if over else spent - self.last > LINE_EVERY:
            self.last, self.ended = spent, note if over else ""
            line = f"{self.label}: {note}, {clock(spent)} elapsed, {clock(self.seconds_left)} left"
            LOG.info(line)
            if self.shown and self.bar is None:
                print(line, file=sys.stderr, flush=True)

    @property
    def seconds_left(self) -> float:
        """Return the seconds left, at most those to `until`."""
        return min(self.seconds_needed, max(0.0, self.until - time.monotonic()))

    @property
    def seconds_needed(self) -> float:
        """Return the seconds that are needed; infinite until the second epoch, as the first does more."""
        spent, (before, begun) = time.perf_counter() - self.start, self.began or (0.0, 0)
        if self.done >= self.total:
            return 0.0
        if self.done <= begun:
            return math.inf
        return (spent - before) * (self.total - self.done) / (self.done - begun)
