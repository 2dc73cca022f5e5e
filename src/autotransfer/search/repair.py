"""What a finished run has written and has lost since: its ledger holds the trainings, so it can be made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pandas as pd

from ..errors import UserError
from ..model.encoders import Encoders
from ..models.loading import load_model
from ..runs.choice import Choice, read_choice
from ..runs.regression import CHOICE, read_regression_choice
from ..runs.run import Run
from .plan import Plan, read_plan

Read = Callable[[Path], object]


def opens(path: Path, encoders: Encoders | None = None) -> bool:
    """Whether there is a model that can be used."""
    return _can_be_read(path, partial(load_model, encoders=encoders))


def kept_choice(run: Run) -> Choice | None:
    """Of the last answer. A run of an earlier version has it in choice.json alone, which may be lost."""
    if (choice := run.ledger.recall("choice", Choice)) is not None:
        return choice
    with suppress(UserError, OSError):
        return read_choice(run.folder)
    return None


def lost_files(run: Run) -> list[str]:
    """Of a finished run: what is missing or cannot be opened, by its name in the folder."""
    read: Read = partial(load_model, encoders=run.encoders)
    readers: dict[str, Read] = {"model": read, "choice.json": lambda path: read_choice(path.parent)}
    if run.options.final == "refit":
        readers["model/refit"] = read
    if run.ledger.recall("plan", Plan) is not None:  # runs of 0.1 have none
        readers["plan.json"] = read_plan
    return _unreadable(run.folder, readers | {"results.csv": pd.read_csv})


def lost_number_files(folder: Path) -> list[str]:
    """The same of a run with a continuous target."""
    readers: dict[str, Read] = {
        "model": load_model,
        CHOICE: lambda path: read_regression_choice(path.parent),
        "results.csv": pd.read_csv,
    }
    return _unreadable(folder, readers)


def lost_words(folder: Path, names: list[str]) -> str:
    """What is done about them."""
    return f"{', '.join(names)} of {folder}: missing or damaged, made again from the ledger"


def _unreadable(folder: Path, readers: Mapping[str, Read]) -> list[str]:
    return [name for name, read in readers.items() if not _can_be_read(folder / name, read)]


def _can_be_read(path: Path, read: Read) -> bool:
    try:
        read(path)
    except (UserError, OSError, ValueError):  # ValueError: no table
        return False
    return True
