"""Printing of commands, and the options --quiet and --verbose."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Annotated
from unicodedata import category

import typer
from typer import Option

LOG = logging.getLogger("autotransfer")  # --verbose prints its messages
CONSOLE = SimpleNamespace(quiet=False)  # state of --quiet


def terminal_text(text: str) -> str:
    """Replace control characters, which names of subjects, classes and files may contain, by question marks."""
    return "".join("?" if letter != "\n" and category(letter) == "Cc" else letter for letter in text)


def print_lines(*lines: str) -> None:
    """Print lines to standard output."""
    for line in lines:
        print(terminal_text(line), flush=True)


def print_error(line: str) -> None:
    """Print a warning or an error to standard error."""
    print(terminal_text(line), file=sys.stderr, flush=True)


def print_progress(line: str) -> None:
    """Print a line to standard output, unless --quiet is given."""
    if not CONSOLE.quiet:
        print_lines(line)


def _set_quiet(context: typer.Context, is_requested: bool) -> bool:
    if is_requested:
        CONSOLE.quiet = True
        context.call_on_close(lambda: setattr(CONSOLE, "quiet", False))
    return is_requested


def _set_verbose(context: typer.Context, is_requested: bool) -> bool:
    if is_requested:
        handler, level = logging.StreamHandler(sys.stderr), LOG.level
        # Other records are printed even without --verbose.
        handler.addFilter(lambda record: record.levelno == logging.DEBUG or record.exc_info is not None)
        LOG.addHandler(handler)
        LOG.setLevel(logging.DEBUG)

        def stop() -> None:
            LOG.removeHandler(handler)
            LOG.setLevel(level)

        context.call_on_close(stop)
    return is_requested


Quiet = Annotated[bool, Option("--quiet", callback=_set_quiet, help="Print only results, warnings and errors.")]
Verbose = Annotated[bool, Option("--verbose", callback=_set_verbose, help="Print details and the causes of errors.")]
