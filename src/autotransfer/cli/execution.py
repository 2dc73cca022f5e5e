"""How a command performs a run, up to its report and the answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import describe_system_error, one_line
from ..runs.signals import Stopped
from .console import CONSOLE, print_error, print_lines, print_progress
from .report_commands import write_report

if TYPE_CHECKING:
    from ..runs.choice import Choice
    from ..runs.executor import Executor
    from ..runs.run import Run


@contextmanager
def write_events(folder: Path, tensorboard: Path | None) -> Iterator[None]:
    """Write TensorBoard's event files, if a folder for them is given, while a run works."""
    if tensorboard is None:
        yield
        return
    from ..report.tensorboard import EventFiles

    with EventFiles(folder, tensorboard):
        yield


@contextmanager
def open_workers(address: str | None) -> Iterator[Executor | None]:
    """Yield the workers that --cluster names; None: this process."""
    if address is None:
        yield None
        return
    from ..cluster import Cluster

    with Cluster(address) as executor:
        print_progress(f"{executor.workers} worker{'s' * (executor.workers != 1)} on {address}")
        yield executor


def check_packages(tensorboard: Path | None = None) -> None:
    """Raise before any work if a package is missing that is needed only after fits."""
    from ..report import collect  # noqa: F401
    from ..report.page import import_plotly

    import_plotly()
    if tensorboard is not None:
        from ..report.tensorboard import import_summary_writer

        import_summary_writer()


def execute_run(opened: Run, executor: Executor | None) -> None:
    """Carry out the procedure, draw a report after every interim result, and print the last one in a few lines."""
    from ..cpu.boundary import library
    from ..search.procedure import perform_plan

    if library() is None and not opened.options.task.is_numeric:
        print_progress("no compiled kernels: torch computes, and on a CPU a fit takes two to three times as long")
    if executor is not None:
        opened.executor = executor
    drawn = False

    def answered(run: Run, _: Choice) -> None:
        nonlocal drawn
        drawn = _try_write_report(run)

    with handle_interrupts(opened.folder), closing(opened.database):
        choice = perform_plan(opened, print_progress, shown=not CONSOLE.quiet, on_result=answered)
    print_result(choice, opened.folder)
    if drawn:
        print_lines(f"report: {(opened.folder / 'report.html').resolve()}")


@contextmanager
def handle_interrupts(folder: Path | None) -> Iterator[None]:
    """Say how to go on if the work of a run is stopped. folder: of the run; None if nothing is to be written."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        begun = folder is not None and (folder / "run.sqlite").exists()
        again = f"continue with: autotransfer resume {folder}" if begun else "nothing was written"
        usable = folder is not None and (folder / "model" / "model.json").exists()
        kept = "the answer so far is kept, and predict and report can use it; " if usable else ""
        print(file=sys.stderr)
        print_error(f"interrupted; {kept}{again}")
        raise typer.Exit(getattr(stop, "exit_code", 130)) from None
    except (OSError, MemoryError) as error:
        if folder is None or not (folder / "lock").exists():  # before the work of the run
            raise
        print_error(f"stopped: {describe_system_error(error)}; continue with: autotransfer resume {folder}")
        raise typer.Exit(1) from None


def _try_write_report(opened: Run) -> bool:
    """Tell whether the page could be drawn. A failure is reported and does not end the run."""
    try:
        write_report(opened)
    except (OSError, MemoryError):  # as anywhere in a run: make room, and go on
        raise
    except Exception as error:
        again = f"all else is there; try again with: autotransfer report {opened.folder}"
        print_error(f"the report could not be drawn ({one_line(error)}); {again}")
        return False
    return True


def print_result(choice: Choice, folder: Path) -> None:
    from ..report.terminal import result_lines

    print_lines(*result_lines(choice, folder))


def print_finished(folder: Path, more: str = "") -> None:
    """Say that there is nothing to resume. more: the end of the sentence."""
    print_lines(f"{folder} is finished; its report is {folder / 'report.html'}{more}")
    if not (folder / "model" / "model.json").exists():
        print_error(f"{folder} has lost its model; restore {folder / 'model'} from a copy or start a new run")
