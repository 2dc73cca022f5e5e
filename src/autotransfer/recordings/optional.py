"""Optional dependencies: imported when used, with a one-line error if missing."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import Any

from ..errors import UserError


def pip_install(*packages: str) -> str:
    """Return the command that installs these packages."""
    return f"pip install {shlex.join(packages)}"


def need(module: str, purpose: str, *packages: str) -> Any:
    """Import a module; a UserError says what it is needed for and how to get it.

    packages: what pip has to install for it, by the names that PyPI knows.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise UserError(f"{purpose} needs {missing}, which is not installed; {pip_install(*packages)}") from error
