"""Execution of a run by a command, with its report and the printed result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import describe_system_error, one_line
from ..runs.signals import StopSignal
from .console import CONSOLE, print_error, print_lines, print_progress
from .report_commands import write_report

if TYPE_CHECKING:
    from ..runs.choice import Choice
    from ..runs.executor import Executor
    from ..runs.run import Run


def event_files(folder: Path, tensorboard: Path | None) -> AbstractContextManager[object]:
    """Return a context in which TensorBoard event files of a run are written if their folder is given."""
    if tensorboard is None:
        return nullcontext()
    from ..report.tensorboard import EventFiles

    return EventFiles(folder, tensorboard)


@contextmanager
def open_workers(address: str | None) -> Iterator[Executor | None]:
    """Yield an executor on the Dask cluster at an address, or None to train in this process."""
    if address is None:
        yield None
        return
    from ..cluster import Cluster

    with Cluster(address) as executor:
        print_progress(f"{executor.workers} worker{'s' * (executor.workers != 1)} on {address}")
        yield executor


def execute_run(run: Run, executor: Executor | None) -> None:
    """Perform a run, write its report after every interim result, and print the final result."""
    from ..cpu.boundary import library
    from ..search.procedure import perform_plan

    if library() is None and not run.options.task.is_numeric:
        print_progress("Compiled kernels are not installed, so training on a CPU takes two to three times as long")
    if executor is not None:
        run.executor = executor
    with handle_interrupts(run.folder), closing(run.database):
        choice = perform_plan(run, print_progress, progress=not CONSOLE.quiet, on_result=_try_write_report)
    print_result(choice, run.folder)


def print_result(choice: Choice, folder: Path) -> None:
    """Print the result of a run, and how to continue it."""
    from ..report.terminal import result_lines
    from ..runs.progress import resume_hint

    lines = result_lines(choice, folder)
    if choice.end_reason is not None:
        has_hint = "autotransfer resume" in lines[-1]
        hint = "" if has_hint else resume_hint(choice.end_reason, folder)
        print_progress(f"ended: {choice.end_reason}{hint}")
    print_lines(*lines)
    if (report := folder / "report.html").exists():
        print_lines(f"report: {report.resolve()}")


def _try_write_report(run: Run, _: Choice) -> None:
    """Write the report of an interim result; print an error instead of raising it."""
    try:
        write_report(run)
    except (OSError, MemoryError):  # handle_interrupts prints how to continue
        raise
    except Exception as error:
        (run.folder / "report.html").unlink(missing_ok=True)  # the report of an earlier result
        remedy = f"all other files are written; try again with: autotransfer report {run.folder}"
        print_error(f"the report could not be drawn ({one_line(error)}); {remedy}")


@contextmanager
def handle_interrupts(folder: Path | None) -> Iterator[None]:
    """Print how to continue the run in a folder if it is interrupted. The folder of a dry run is None."""
    try:
        yield
    except (KeyboardInterrupt, StopSignal) as stop:
        has_begun = folder is not None and (folder / "run.sqlite").exists()
        remedy = f"continue with: autotransfer resume {folder}" if has_begun else "nothing was written"
        has_model = folder is not None and (folder / "model" / "model.json").exists()
        saved = "the interim result is saved, and predict and report can use it; " if has_model else ""
        print(file=sys.stderr)
        print_error(f"interrupted; {saved}{remedy}")
        raise typer.Exit(getattr(stop, "exit_code", 130)) from None
    except (OSError, MemoryError) as error:
        if folder is None or not (folder / "lock").exists():  # the run has not begun
            raise
        print_error(f"stopped: {describe_system_error(error)}; continue with: autotransfer resume {folder}")
        raise typer.Exit(1) from None
