"""Optional dependencies, which are imported when they are used, and their errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line


def need(module: str, purpose: str, *packages: str) -> Any:
    """Import a module that `purpose` needs; if it is missing, the error names the packages to install with pip."""
    try:
        return import_module(module)
    except ImportError as error:
        missing, command = error.name or module, f"pip install {' '.join(packages)}"
        raise UserError(f"{purpose} needs {missing}, which is not installed; {command}") from error


@contextmanager
def one_line_errors(problem: str, remedy: str) -> Iterator[None]:
    """Turn any exception of a library into one line, and silence its warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{problem} ({one_line(error)}); {remedy}") from error


def reading(path: Path, what: str = "contents") -> AbstractContextManager[None]:
    """Turn any exception while a part of a file is read into one line."""
    return one_line_errors(f"{what} of {str(path)!r} cannot be read", "is the file damaged or cut short?")
