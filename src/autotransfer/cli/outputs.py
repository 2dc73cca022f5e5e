"""Checks that output files can be written, and that they overwrite neither data nor a run."""

from __future__ import annotations

from contextlib import closing
from itertools import combinations
from pathlib import Path

from ..errors import UserError
from ..files import is_writable

RUN_FILES = (
    "choice.json", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "plan.json", "results.csv", "study.toml", "lock",
    "report.html", "model.json", "model.safetensors", "README.md",
)  # fmt: skip


def check_outputs(data: str | None = None, run: Path | None = None, **outputs: Path | None) -> None:
    """Raise if an output file cannot be written, is given twice, or would overwrite a file of the data or of a run.

    run: folder of a run, whose training recordings are protected, too; outputs: file by name of an option, or None
    """
    sources = [source for source in (data, None if run is None else _training_source(run)) if source]
    paths = {f"--{option.replace('_', '-')}": path for option, path in outputs.items() if path is not None}
    for option, path in paths.items():
        try:
            _check_writable(option, path)
            _check_no_overwrite(option, path, sources)
        except OSError as error:
            raise UserError(f"cannot write {path} ({error.strerror or error}); choose another {option}") from None
    for (first, path), (second, other_path) in combinations(paths.items(), 2):
        if path.resolve() == other_path.resolve():
            raise UserError(f"{first} and {second} are both {path}; choose two files")


def _check_writable(option: str, path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{option} is {path}, a folder; give the name of a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{option} is {path}, but there is no folder {path.parent}; create it first")
    if path.exists() and not path.is_file():
        raise UserError(f"{option} is {path}, a pipe or a device; give the name of a file")
    if not is_writable(path.parent):
        raise UserError(f"{option} is {path}, but {path.parent} is not writable; choose another folder")


def _training_source(run: Path) -> str | None:
    """Return the source of the recordings of a run; None if the folder has no readable run, only a model."""
    from ..runs.database import RunDatabase
    from ..runs.options import RunOptions

    try:
        with closing(RunDatabase(run / "run.sqlite", read_only=True)) as database:
            return database.require_fact("options", RunOptions).source
    except UserError:
        return None


def _check_no_overwrite(option: str, path: Path, sources: list[str]) -> None:
    from ..recordings.continuous import get_ending
    from ..recordings.sources import find_path

    if not path.exists():
        return
    for source in sources:
        recordings = find_path(source)
        if recordings is not None and path.resolve().is_relative_to(recordings.resolve()):
            raise UserError(f"{option} is {path}, one of the files of {source}; choose another name")
    if path.suffix.lower() in (".npz", ".npy") or get_ending(path) not in (None, ".csv", ".tsv"):
        raise UserError(f"{option} is {path}, recordings that would be overwritten; choose another name")
    if path.name in RUN_FILES:
        raise UserError(f"{option} is {path}, a file of a run, which would be overwritten; choose another name")


def check_replaceable(**tables: tuple[Path | None, list[str]]) -> None:
    """Raise if a file exists that is not a table of the same command. tables: file and first columns by option."""
    for option, (path, columns) in tables.items():
        if path is None or not path.exists() or not path.stat().st_size:
            continue
        with path.open("rb") as file:
            header = file.readline(10_000).decode(errors="replace").strip().split(",")
        if not set(columns) <= set(header):
            raise UserError(f"--{option} is {path}, which is not a table of an earlier prediction; choose another name")
