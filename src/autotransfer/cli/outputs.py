"""Checks of output files before any work: they can be written, and overwrite neither data nor a run."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from ..errors import UserError
from ..files import writable

RUN_FILES = ("choice.json", "run.sqlite", "plan.json", "results.csv", "study.toml")


def check_outputs(data: str | None = None, **outputs: Path | None) -> None:
    """Raise unless every output file can be written, and all are different and no file of the data.

    outputs: the file of each option, or None
    """
    paths = {f"--{option.replace('_', '-')}": path for option, path in outputs.items() if path is not None}
    for option, path in paths.items():
        try:
            _check_writable(option, path)
            _check_no_overwrite(option, path, data)
        except OSError as error:
            raise UserError(f"cannot write {path} ({error.strerror or error}); choose another {option}") from None
    for (first, place), (second, other) in combinations(paths.items(), 2):
        if place.resolve() == other.resolve():
            raise UserError(f"{first} and {second} are both {place}; choose two files")


def _check_writable(option: str, path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{option} is {path}, a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{option} is {path}, and there is no folder {path.parent}; make it first")
    if path.exists() and not path.is_file():
        raise UserError(f"{option} is {path}, a pipe or a device; give the name of a file")
    if not writable(path.parent):
        raise UserError(f"{option} is {path}, and nothing can be written to {path.parent}; choose another folder")


def _check_no_overwrite(option: str, path: Path, data: str | None) -> None:
    from ..recordings.sources import find_path

    recordings = None if data is None else find_path(data)
    if path.exists() and recordings is not None:
        inside = path.resolve().is_relative_to(recordings.resolve())
        if inside or path.samefile(recordings):
            raise UserError(f"{option} is {path}, one of the files of {data}; choose another, it would be overwritten")
    if path.name in RUN_FILES and path.exists():
        raise UserError(f"{option} is {path}, a file of a run; choose another name, it would be overwritten")
