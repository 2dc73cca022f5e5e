"""The command line. Commands import slow modules only when they run, so that --help is fast."""

from __future__ import annotations

import os
import re
import sys
import warnings
from inspect import getdoc
from io import BufferedWriter, FileIO, TextIOWrapper
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer import Option

from autotransfer import __version__

from ..errors import UserError, describe_system_error
from ..runs.signals import StopSignal, stop_on_signals
from .console import terminal_text
from .data_commands import datasets, inspect, plan_study
from .model_commands import calibrate, export, predict
from .report_commands import compare, report
from .run_commands import demo, resume, run, status
from .stream_command import stream

app = typer.Typer(
    name="autotransfer",
    help="Models for biosignals that work on new subjects.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(context: typer.Context, is_requested: bool) -> None:
    if not is_requested:
        return
    print(f"autotransfer {__version__}")
    if context.params["verbose"]:
        from ..kernels import description

        print(f"CPU kernels: {description()}")
    raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[bool, Option("--version", callback=_print_version, help="Show the version and exit.")] = False,
    verbose: Annotated[bool, Option("--verbose", is_eager=True, help="With --version: also show CPU kernels.")] = False,
) -> None:
    """Read the options before the name of a command."""


COMMANDS = (  # in the order of --help
    run, resume, status, report, predict, calibrate, export, stream, inspect, plan_study, datasets,
    compare, demo,
)  # fmt: skip
for _command in COMMANDS:
    _paragraphs = getdoc(_command) or ""
    # Line breaks inside a paragraph of a docstring are removed, because terminals differ in width.
    _help = "\n\n".join(" ".join(lines.split()) for lines in _paragraphs.split("\n\n"))
    app.command(help=_help)(_command)


class _ErrorFile(FileIO):
    """Standard error that discards text, instead of raising, if its reader has exited."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _open_streams() -> None:
    """Open closed standard streams, so that no other file has their descriptors, and replace standard error."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if sys.stderr is None or type(sys.stderr) is TextIOWrapper:  # not a stream of another program
        file = BufferedWriter(_ErrorFile(2, "w", closefd=False))
        sys.stderr = TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True)


def _check_arguments(arguments: list[str]) -> None:
    """Raise if an argument is empty, because pathlib reads an empty text as the current folder."""
    for before, argument in pairwise(["autotransfer", *arguments]):
        if not argument or re.fullmatch(r"--[a-z-]+=", argument):
            raise UserError(f"there is nothing after {argument.rstrip('=') or before}; give a value")


def main() -> None:
    """Run the command line. A `UserError` is printed in one line, with exit code 2."""
    # The allocator of torch for ARM returns freed memory to the system after 10 ms, which slows down training steps
    # (training/allocator.py). It reads this delay in milliseconds once, when torch is loaded.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
    # OpenMP threads wait in a loop, which occupies cores that other runs may need. With a shorter loop, four runs on
    # the same cores are several times faster, and a single run is hardly slower. OpenMP reads the number when it is
    # loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    # Warnings are printed without source lines.
    warnings.formatwarning = lambda message, *_, **__: f"autotransfer: {terminal_text(str(message))}\n"
    if isinstance(sys.stdout, TextIOWrapper):  # names of files may not be valid UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    _open_streams()
    try:
        _check_arguments(sys.argv[1:])
        with stop_on_signals():
            app()
    except UserError as error:
        print(f"autotransfer: {terminal_text(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except (OSError, MemoryError) as error:
        print(f"autotransfer: {terminal_text(describe_system_error(error))}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, StopSignal) as stop:  # handle_interrupts has printed how to continue
        print("autotransfer: interrupted", file=sys.stderr)
        raise SystemExit(getattr(stop, "exit_code", 130)) from None
