"""What a command says, and to whom: --quiet, --verbose and --log."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from unicodedata import category

import typer
from typer import Option

from autotransfer import __version__

from ..errors import UserError

LOG = logging.getLogger("autotransfer")  # what --verbose shows and --log keeps
LOG_LINE = "%(asctime)s %(message)s"
LOG_BEGINS = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} autotransfer ")  # a log's first line


VOICE = SimpleNamespace(quiet=False)  # how much is said


def terminal_text(text: str) -> str:
    """With a question mark for what would control a terminal: names of people, classes and files may hold it."""
    return "".join("?" if letter != "\n" and category(letter) == "Cc" else letter for letter in text)


def say(*lines: str) -> None:
    """Print results."""
    for line in map(terminal_text, lines):
        print(line, flush=True)
        LOG.info(line)


def complain(line: str) -> None:
    line = terminal_text(line)
    print(line, file=sys.stderr, flush=True)
    if LOG.handlers:  # without any, Python would print it once more
        LOG.error(line)


def tell(line: str) -> None:
    """Print progress, unless --quiet."""
    line = terminal_text(line)
    if not VOICE.quiet:
        print(line, flush=True)
    LOG.info(line)


def _be_quiet(context: typer.Context, asked: bool) -> bool:
    if asked:
        VOICE.quiet = True
        context.call_on_close(lambda: setattr(VOICE, "quiet", False))
    return asked


def _be_verbose(context: typer.Context, asked: bool) -> bool:
    if asked:
        handler = logging.StreamHandler(sys.stderr)
        # The rest is said anyway.
        handler.addFilter(lambda record: record.levelno == logging.DEBUG or record.exc_info is not None)
        _listen(context, handler)
        LOG.setLevel(logging.DEBUG)
    return asked


def _write_log(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        _check_log(path)
        try:
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UserError(f"cannot write to {path} ({error.strerror}); choose another --log") from None
        handler.setFormatter(logging.Formatter(LOG_LINE))
        _listen(context, handler)
        show = warnings.showwarning

        def also_here(message: Any, category: Any, *where: Any, **more: Any) -> None:
            show(message, category, *where, **more)
            LOG.warning("%s", message)

        warnings.showwarning = also_here
        context.call_on_close(lambda: setattr(warnings, "showwarning", show))
        LOG.info("autotransfer %s: %s", __version__, " ".join(sys.argv[1:]))
    return path


def _check_log(path: Path) -> None:
    """Raise unless lines can be added to a file without harm: it is new, empty or a log, and no file of a run."""
    from .outputs import check_outputs

    check_outputs(log=path)
    try:
        with open(path, "rb") as file:
            first = file.readline(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); choose another --log") from None
    if first and not LOG_BEGINS.match(first):
        raise UserError(f"--log is {path}, which is no log of autotransfer; lines are added to a log or to a new file")


def _listen(context: typer.Context, handler: logging.Handler) -> None:
    LOG.addHandler(handler)
    LOG.setLevel(min(LOG.level or logging.INFO, logging.INFO))
    LOG.propagate = False

    def stop() -> None:
        if isinstance(error := sys.exc_info()[1], UserError):
            handler.handle(LOG.makeRecord(LOG.name, logging.ERROR, "", 0, str(error), (), None))
        LOG.removeHandler(handler)
        handler.close()
        if not LOG.handlers:
            LOG.setLevel(logging.NOTSET)
            LOG.propagate = True

    context.call_on_close(stop)


Quiet = Annotated[bool, Option("--quiet", callback=_be_quiet, help="Say nothing but the answer, warnings and errors.")]


def _say_more(what: str) -> Any:
    return Option("--verbose", callback=_be_verbose, help=f"Say more: {what}, what an error came from.")


Verbose = Annotated[bool, _say_more("every finished training")]
VerboseExport = Annotated[bool, _say_more("what the exporter warns of")]
Log = Annotated[
    Path | None, Option("--log", metavar="FILE", callback=_write_log, help="File to which all that is said is added.")
]
