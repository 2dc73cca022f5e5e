"""Progress of fits: a bar in a terminal, or plain lines in other outputs if requested."""

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
from ..words import clock, fits_words, score

if TYPE_CHECKING:
    from .trainer import Trainer

LOG = logging.getLogger("autotransfer")  # silent unless a handler is added
LINE_INTERVAL = 10.0  # seconds between plain lines


@contextmanager
def show_work(label: str, *, progress: bool | None) -> Iterator[None]:
    """Show a spinner in a terminal during work without epochs; otherwise print a line at the end if requested."""
    start, terminal = time.perf_counter(), sys.stderr.isatty()
    is_visible = terminal if progress is None else progress
    with ExitStack() as stack:
        if is_visible and terminal:
            from rich.console import Console

            stack.enter_context(Console(stderr=True).status(label))
        yield
    seconds = time.perf_counter() - start
    LOG.info("%s: %s", label, clock(seconds))
    if is_visible and not terminal and seconds > LINE_INTERVAL:
        print(f"{label}: {clock(seconds)}", file=sys.stderr, flush=True)


class Progress:
    """Progress line of a stage: finished fits, their mean validation score, elapsed and remaining time.

    total: largest number of epochs of all fits together; members: number of fits
    earlier: numbers of fits that succeeded and failed in earlier calls; deadline: time on the monotonic clock
    """

    def __init__(
        self, total: int, members: int, *, visible: bool | None, label: str = "training",
        earlier: tuple[int, int] = (0, 0), deadline: float = math.inf,
    ) -> None:  # fmt: skip
        self.deadline = deadline
        self.total, self.members, self.label = total, members, label
        self.terminal = sys.stderr.isatty()
        self.visible = self.terminal if visible is None else visible
        self.succeeded, self.failed = earlier
        self.scores = list[float]()  # validation scores of finished fits
        self.epochs_done = 0  # number of finished epochs of all fits together
        self.final_note = ""  # note of the line that was printed after all epochs
        self.first_epoch: tuple[float, int] | None = None  # elapsed seconds and `epochs_done` after the first epoch
        self.bar: Any = None

    def __enter__(self) -> Progress:
        self.start, self.line_seconds = time.perf_counter(), 0.0  # start; seconds from the start to the last line
        if self.visible and self.terminal:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(table_column=Column(no_wrap=True)), TextColumn("{task.fields[left]} left"),
                console=Console(stderr=True), expand=True,
            )  # fmt: skip
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, note=self.note, left=clock(self.seconds_left))
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def subtract_finished(self, population: Trainer) -> None:
        """Subtract the epochs that a population had finished when its checkpoint file was written."""
        self.total -= population.epoch * (len(population.jobs) - len(population.finished_members))
        if self.bar is not None:
            self.bar.update(self.task, total=self.total)

    def add_epoch(self, population: Trainer) -> None:
        """Count one more epoch of every member in training."""
        self.advance(len(population.jobs) - len(population.finished_members))

    def add_outcome(self, outcome: Outcome) -> None:
        """Count a finished fit, and the epochs that early stopping saved."""
        self._count([outcome.failure is not None], [outcome.validation_score])
        job = outcome.job
        LOG.debug(
            "%s: %s, tested on %s, seed %d: %s, epoch %d of %d, %.1f s",
            self.label, job.setting.name, name_of(job.fold.test_subject), job.seed,
            f"balanced accuracy {score(outcome.test_score)}" if outcome.failure is None else outcome.failure,
            outcome.best_epoch, outcome.epochs, outcome.seconds,
        )  # fmt: skip
        self.advance(1 + job.setting.max_epochs - outcome.epochs)

    def add_results(self, max_epochs: Sequence[int], failed: Sequence[bool], scores: Sequence[float] = ()) -> None:
        """Count fits of other processes with all epochs; scores: validation scores, empty for regression."""
        self._count(failed, scores)
        self.advance(sum(max_epochs))

    def _count(self, failed: Sequence[bool], scores: Sequence[float]) -> None:
        self.failed += sum(failed)
        self.succeeded += len(failed) - sum(failed)
        pairs = zip(scores, failed, strict=False)
        self.scores += [value for value, has_failed in pairs if math.isfinite(value) and not has_failed]

    @property
    def note(self) -> str:
        """Return finished fits and their mean score so far, such as '8 of 120 fits done, mean score per fit .612'."""
        mean = f", mean score per fit {score(sum(self.scores) / len(self.scores))}" if self.scores else ""
        return fits_words(self.succeeded, self.members, self.failed) + mean

    def advance(self, epochs: int) -> None:
        """Count finished epochs and update the line."""
        self.epochs_done += epochs
        seconds = time.perf_counter() - self.start
        if self.first_epoch is None:
            self.first_epoch = seconds, self.epochs_done
        note = self.note
        if self.bar is not None:
            self.bar.update(self.task, completed=self.epochs_done, note=note, left=clock(self.seconds_left))
        has_finished = self.epochs_done >= self.total
        # After all epochs a line is printed only if its note is new.
        if note != self.final_note if has_finished else seconds - self.line_seconds > LINE_INTERVAL:
            self.line_seconds, self.final_note = seconds, note if has_finished else ""
            line = f"{self.label}: {note}, {clock(seconds)} elapsed, {self._describe_remaining_time()}"
            LOG.info(line)
            if self.visible and self.bar is None:
                print(line, file=sys.stderr, flush=True)

    def _describe_remaining_time(self) -> str:
        """Return the remaining time, such as '0:20 left' or '1:05 left until the time limit'."""
        seconds, limit = self.seconds_needed, max(0.0, self.deadline - time.monotonic())
        return f"{clock(seconds)} left" if seconds <= limit else f"{clock(limit)} left until the time limit"

    @property
    def seconds_left(self) -> float:
        """Return the remaining seconds until the end or the deadline."""
        return min(self.seconds_needed, max(0.0, self.deadline - time.monotonic()))

    @property
    def seconds_needed(self) -> float:
        """Return the estimated seconds until the end; infinite before the second epoch, because the first is slower."""
        seconds, (first_seconds, first_epochs) = time.perf_counter() - self.start, self.first_epoch or (0.0, 0)
        if self.epochs_done >= self.total:
            return 0.0
        if self.epochs_done <= first_epochs:
            return math.inf
        return (seconds - first_seconds) * (self.total - self.epochs_done) / (self.epochs_done - first_epochs)
