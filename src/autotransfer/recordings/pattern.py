"""Names of files: `{subject}/{session}_{class}_*.csv` says which files of a folder are recordings, and whose.

A name in braces takes as few characters as fit, within one folder or file name. subject, session and class are labels,
any other name is a column. A name that occurs twice must be the same text both times. * is any text, **/ any folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from .labels import is_column_name

KNOWN = ("subject", "session", "class")
EXAMPLE = "such as --pattern '{subject}/{session}_{class}_*.csv'"
ENTITY = {"subject": "sub", "session": "ses"}  # BIDS's names
TOKEN = re.compile(r"\{([^{}]*)\}|\*\*/|\*|[^{}*]+|[{}]")
Labels = dict[str, str]


class Files(NamedTuple):
    """Recordings whose labels are known."""

    files: list[tuple[Path, Labels]]
    name: str  # of them all
    options: dict[str, str]  # what follows the path after a question mark, as in x.xdf?stream=EEG
    is_bids: bool = False


def labeled_files(folder: Path, pattern: str) -> list[tuple[Path, Labels]]:
    """Return the files below a folder whose path fits, in order, with what their names say."""
    fits = matcher(pattern)
    files = [(path, labels) for path in files_below(folder) if (labels := fits(path.relative_to(folder).as_posix()))]
    if not files:
        first = next(files_below(folder), None)
        there = "it is empty" if first is None else f"it holds {shown(first.relative_to(folder).as_posix(), 200)}"
        raise UserError(f"no file in {str(folder)!r} fits the pattern {shown(pattern, 200)}; {there}; {EXAMPLE}")
    return files


def matcher(pattern: str) -> Callable[[str], Labels | None]:
    """Return a function from a path with / to what its parts say, or to None where it does not fit."""
    groups: dict[str, str] = {}  # of the regular expression, by name in braces
    parts = []
    for token in TOKEN.finditer(pattern):
        text, name = token[0], token[1]
        if text in ("{", "}") or (name is not None and name not in KNOWN and not is_column_name(name)):
            raise UserError(f"the pattern {shown(pattern, 200)} has {text!r}, which is no name in braces; {EXAMPLE}")
        if name is None:
            parts.append({"**/": r"(?:[^/]+/)*", "*": r"[^/]*"}.get(text) or re.escape(text))
        elif name in groups:
            parts.append(rf"(?P={groups[name]})")
        else:
            groups[name] = f"g{len(groups)}"
            parts.append(rf"(?P<{groups[name]}>[^/]+?)")
    if "subject" not in groups:
        raise UserError(f"the pattern {shown(pattern, 200)} has no {{subject}}; {EXAMPLE}")
    whole = re.compile("".join(parts))

    def fits(path: str) -> Labels | None:
        match = whole.fullmatch(path)
        return None if match is None else {name: match[group] for name, group in groups.items()}

    return fits


def by_name(stem: str) -> Labels:
    """Return what a file's name says without a pattern: sub-01_ses-2_... as in BIDS, or the name is the subject."""
    found = {key: re.search(rf"(?:^|_){short}-([0-9A-Za-z]+)", stem) for key, short in ENTITY.items()}
    return {"subject": stem} | {key: match[1] for key, match in found.items() if match}


def files_below(folder: Path) -> Iterator[Path]:
    """Yield files in and below a folder, in order, without hidden ones; refuse links that lead out of it."""
    root = folder.resolve()
    for place, folders, files in os.walk(folder):  # which follows no link to a folder
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(place, name)
            if not name.startswith(".") and path.is_file():
                if not path.resolve().is_relative_to(root):
                    raise UserError(f"{str(path)!r} leads out of {str(root)!r}; copy the file into the folder")
                yield path


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the parts of PATH?name=value&name=value."""
    path, _, rest = text.partition("?")
    pairs = [part.partition("=") for part in rest.split("&")] if rest else []
    for name, _, value in pairs:
        if not name or not value:
            raise UserError(f"{shown(rest)} after the question mark of {shown(text, 200)} is not name=value")
    return path, {name: value for name, _, value in pairs}
