"""The folder behind a prefix such as `errp:`, and the files in it."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import UserError


def existing_folder(text: str, prefix: str) -> Path:
    """An existing folder; ~ is expanded, because no shell does so after a prefix."""
    folder = Path(os.path.expanduser(text))
    if not text or not folder.is_dir():
        raise UserError(
            f"there is no folder {text!r}; write {prefix}FOLDER ('autotransfer datasets' lists what it must contain)"
        )
    return folder


def matching_files(folder: Path, pattern: str, prefix: str) -> list[Path]:
    """The files of that pattern in or below the folder; at least one is required."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    if not files:
        raise UserError(
            f"there is no file {pattern} in {str(folder)!r}; 'autotransfer datasets' lists what {prefix} expects"
        )
    return files
