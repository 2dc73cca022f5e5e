"""Which files of a folder are recordings, and what their names say: `{subject}/{session}_{class}_*.csv`.

A name in braces takes as few characters as fit, within one folder or file name. subject, session and class are labels,
any other name a column; a name that occurs twice must be the same text both times. * is any text, **/ any folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from .columns import is_name

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
    bids: bool = False  # whether they are read as those of a BIDS folder


def labelled_files(folder: Path, pattern: str) -> list[tuple[Path, Labels]]:
    """The files below `folder` whose path fits, in order, with what their names say."""
    fits = matcher(pattern)
    files = [(path, labels) for path in files_below(folder) if (labels := fits(path.relative_to(folder).as_posix()))]
    if not files:
        first = next(files_below(folder), None)
        there = "it is empty" if first is None else f"it holds {shown(first.relative_to(folder).as_posix(), 200)}"
        raise UserError(f"no file in {str(folder)!r} fits the pattern {shown(pattern, 200)}; {there}; {EXAMPLE}")
    return files


def matcher(pattern: str) -> Callable[[str], Labels | None]:
    """From a path with / to what its parts say; None: it does not fit."""
    names: list[str] = []
    parts = []
    for token in TOKEN.finditer(pattern):
        text, name = token[0], token[1]
        if text in ("{", "}") or (name is not None and name not in KNOWN and not is_name(name)):
            raise UserError(f"the pattern {shown(pattern, 200)} has {text!r}, which is no name in braces; {EXAMPLE}")
        if name is None:
            parts.append({"**/": r"(?:[^/]+/)*", "*": r"[^/]*"}.get(text) or re.escape(text))
        elif name in names:
            parts.append(rf"(?P=g{names.index(name)})")
        else:
            parts.append(rf"(?P<g{len(names)}>[^/]+?)")
            names.append(name)
    if "subject" not in names:
        raise UserError(
            f"the pattern {shown(pattern, 200)} has no {{subject}}, and people must be told apart; {EXAMPLE}"
        )
    whole = re.compile("".join(parts))

    def fits(path: str) -> Labels | None:
        match = whole.fullmatch(path)
        return None if match is None else {name: match[f"g{n}"] for n, name in enumerate(names)}

    return fits


def by_name(stem: str) -> Labels:
    """What the name of a file says without a pattern: sub-01_ses-2_... as in BIDS, or the name is the subject."""
    labels = {key: match[1] for key, short in ENTITY.items() if (match := entity(stem, short))}
    return labels if "subject" in labels else labels | {"subject": stem}


def entity(stem: str, short: str) -> re.Match[str] | None:
    return re.search(rf"(?:^|_){short}-([0-9A-Za-z]+)", stem)


def files_below(folder: Path) -> Iterator[Path]:
    """Files in and below a folder, in order, without hidden ones; links that lead out of it are refused."""
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
    """PATH?name=value&name=value in its parts."""
    path, _, rest = text.partition("?")
    options = {}
    for part in rest.split("&") if rest else []:
        match = re.fullmatch(r"([a-z]+)=(.+)", part)
        if match is None:
            raise UserError(f"{shown(part)} after the question mark of {shown(text, 200)} is not name=value")
        options[match[1]] = match[2]
    return path, options
