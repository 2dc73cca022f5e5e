"""The folder behind a prefix such as `errp:`, and the files in it."""

from __future__ import annotations

from pathlib import Path

from ...errors import UserError


def existing(text: str, prefix: str) -> Path:
    """A folder that is there; ~ is understood, because no shell expands it after a prefix."""
    folder = Path(text).expanduser()
    if not text or not folder.is_dir():
        raise UserError(f"there is no folder {text!r}; write {prefix}FOLDER (autotransfer datasets says what it holds)")
    return folder


def found(folder: Path, pattern: str, prefix: str) -> list[Path]:
    """The files of that pattern in or below the folder, of which there must be some."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    if not files:
        raise UserError(
            f"there is no file {pattern} in {str(folder)!r}; autotransfer datasets says what {prefix} expects"
        )
    return files
