"""Check of output files before any work."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import UserError
from ..files import is_writable


def check_outputs(**outputs: tuple[Path | None, str]) -> None:
    """Raise if an output file cannot be written, is given twice, or would replace a file of another kind.

    outputs: by name of an option, the file, or None, and a pattern for the beginning of files that the option writes
    """
    files = {f"--{option}": (path, beginning) for option, (path, beginning) in outputs.items() if path is not None}
    for option, (path, beginning) in files.items():
        if path.is_dir():
            raise UserError(f"{option} is {path}, a folder; give the name of a file in it")
        if not path.parent.is_dir():
            raise UserError(f"{option} is {path}, but there is no folder {path.parent}; create it first")
        if path.exists() and not path.is_file():
            raise UserError(f"{option} is {path}, a pipe or a device; give the name of a file")
        if not is_writable(path.parent):
            raise UserError(f"{option} is {path}, but {path.parent} is not writable; choose another folder")
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                text = file.read(1000).decode(errors="replace")
            if not re.match(beginning, text):
                raise UserError(f"{option} is {path}, which is not an earlier output of {option}; choose another name")
    if len({path.resolve() for path, _ in files.values()}) < len(files):
        raise UserError(f"{' and '.join(files)} are the same file; choose two files")
