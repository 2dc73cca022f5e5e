"""Optional dependencies: imported when used, with a one-line error if missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import UserError


def need(module: str, purpose: str, install: str) -> Any:
    """The module, or a UserError that says what it is needed for and how to get it.

    `install`: what to pip install, an extra such as 'autotransfer[mne]', or a package.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise UserError(f"{purpose} needs {missing}, which is not installed; pip install '{install}'") from error
