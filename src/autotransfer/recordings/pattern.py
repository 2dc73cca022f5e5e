"""Patterns of file names: `{subject}/{session}_{class}_*.csv` selects recordings in a folder and names their labels.

A name in braces matches as few characters as possible, within one folder or file name. subject, session and class are
labels, any other name is a column. A name that occurs twice must match the same text. * is any text, **/ any folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from .labels import is_column_name

LABEL_NAMES = ("subject", "session", "class")
EXAMPLE = "such as --pattern '{subject}/{session}_{class}_*.csv'"
ENTITY = {"subject": "sub", "session": "ses"}  # BIDS's names
TOKEN = re.compile(r"\{([^\W\d]\w*)\}|\*\*/|\*|[^{}*]+|[{}]")
Labels = dict[str, str]


class Files(NamedTuple):
    """Files of recordings with their labels."""

    files: list[tuple[Path, Labels]]
    name: str  # of the file or folder
    options: dict[str, str]  # options after the path and a question mark, as in x.xdf?stream=EEG
    is_bids: bool = False


def match_files(folder: Path, pattern: str) -> list[tuple[Path, Labels]]:
    """Return the files below a folder whose path matches, in order, with their labels."""
    match, paths = compile_pattern(pattern).fullmatch, files_below(folder)
    files = [(path, found.groupdict()) for path in paths if (found := match(path.relative_to(folder).as_posix()))]
    if not files:
        first = next(files_below(folder), None)
        content = "is empty" if first is None else f"holds {shown(first.relative_to(folder).as_posix(), 200)}"
        raise UserError(f"{str(folder)!r} {content}, and no file matches the pattern {shown(pattern, 200)}; {EXAMPLE}")
    return files


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for paths with /, whose groups are the labels."""
    names, parts = set[str](), list[str]()
    for token in TOKEN.finditer(pattern):
        text, name = token[0], token[1]
        if text in ("{", "}") or (name is not None and name not in LABEL_NAMES and not is_column_name(name)):
            raise UserError(f"the pattern {shown(pattern, 200)} has {text!r}, which is no name in braces; {EXAMPLE}")
        if name is None:
            parts.append({"**/": r"(?:[^/]+/)*", "*": r"[^/]*"}.get(text) or re.escape(text))
        else:
            parts.append(rf"(?P={name})" if name in names else rf"(?P<{name}>[^/]+?)")
            names.add(name)
    if "subject" not in names:
        raise UserError(f"the pattern {shown(pattern, 200)} has no {{subject}}; {EXAMPLE}")
    return re.compile("".join(parts))


def parse_name(stem: str) -> Labels:
    """Return the labels of a file's name without a pattern: sub-01_ses-2_... as in BIDS, or the name is the subject."""
    found = {key: re.search(rf"(?:^|_){short}-([0-9A-Za-z]+)", stem) for key, short in ENTITY.items()}
    return {"subject": stem} | {key: match[1] for key, match in found.items() if match}


def files_below(folder: Path) -> Iterator[Path]:
    """Yield files in and below a folder, in order, except hidden files; refuse links to other folders."""
    root = folder.resolve()
    for parent, folders, files in os.walk(folder):  # follows no link to a folder
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                if not path.resolve().is_relative_to(root):
                    raise UserError(f"{str(path)!r} leads out of {str(root)!r}; copy the file into the folder")
                yield path


def parse_options(text: str) -> dict[str, str]:
    """Return the options in ?name=value&name=value at the end of a source."""
    pairs = [part.partition("=") for part in text.removeprefix("?").split("&")] if text else []
    if not all(name and value for name, _, value in pairs):
        raise UserError(f"{shown(text)} after a path is not ?name=value")
    return {name: value for name, _, value in pairs}
