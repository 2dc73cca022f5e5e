"""Optional dependencies, which are imported when they are used."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import Any

from ..errors import UserError


def pip_install(*packages: str) -> str:
    """Return the command that installs packages."""
    return f"pip install {shlex.join(packages)}"


def need(module: str, purpose: str, *packages: str) -> Any:
    """Import a module that `purpose` needs; if it is missing, the error names the packages to install with pip."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise UserError(f"{purpose} needs {missing}, which is not installed; {pip_install(*packages)}") from error
