"""The command line. Heavy modules are imported inside the commands, so that --help answers at once."""

from __future__ import annotations

import os
import sys
import warnings
from inspect import getdoc
from io import TextIOWrapper
from typing import Annotated

import typer
from typer import Option

from autotransfer import __version__

from ..errors import UserError, describe_system_error
from ..runs.signals import StopSignal, signals_stop
from .console import terminal_text
from .data_commands import datasets, inspect, plan_study
from .model_commands import calibrate, export, predict
from .report_commands import compare, report
from .run_commands import demo, resume, run, status
from .stream_command import stream

app = typer.Typer(
    name="autotransfer",
    help="Models for biosignals that work on people they have never seen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(context: typer.Context, asked: bool) -> None:
    if not asked:
        return
    print(f"autotransfer {__version__}")
    if context.params["verbose"]:
        from ..kernels import description

        print(f"CPU kernels: {description()}")
    raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[bool, Option("--version", callback=_version, help="Show the version and exit.")] = False,
    verbose: Annotated[bool, Option("--verbose", is_eager=True, help="With --version: also show kernels.")] = False,
) -> None:
    """Take the options that stand before a command."""


COMMANDS = (  # in the order of --help
    run, resume, status, report, predict, calibrate, export, stream, inspect, plan_study, datasets,
    compare, demo,
)  # fmt: skip
for _command in COMMANDS:
    _paragraphs = getdoc(_command) or ""
    # Lines of a docstring end where the source's do; a terminal has a width of its own.
    _help = "\n\n".join(" ".join(lines.split()) for lines in _paragraphs.split("\n\n"))
    app.command(help=_help)(_command)


def main() -> None:
    """Run the command line: a user's mistake is one line on standard error and exit code 2."""
    # torch for ARM brings an allocator that hands freed memory back to the system after 10 ms, and a training step has
    # it again page by page (training/allocator.py). It reads this once, when torch is loaded: milliseconds to wait.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
    # Threads of OpenMP wait for each other by spinning, for milliseconds, on cores that another run may need. Alone a
    # step is hardly slower if they soon sleep; four runs on the cores of one are several times faster. Read once, too.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    # No source lines for users.
    warnings.formatwarning = lambda message, *_, **__: f"autotransfer: {terminal_text(str(message))}\n"
    if isinstance(sys.stdout, TextIOWrapper):  # names that have no UTF-8 shall not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with signals_stop():
            app()
    except UserError as error:
        print(f"autotransfer: {terminal_text(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except (OSError, MemoryError) as error:
        print(f"autotransfer: {terminal_text(describe_system_error(error))}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, StopSignal) as stop:  # who has something to keep says so and how to go on, before this
        print("autotransfer: interrupted", file=sys.stderr)
        raise SystemExit(getattr(stop, "exit_code", 130)) from None
