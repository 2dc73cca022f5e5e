"""Grids: lists of settings that a run compares. Each class in CENSORS lists the strengths of its penalty."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .censoring import CENSORS, MODES
from .errors import UserError, check_choice, one_line, shown
from .files import read_plain
from .settings import Setting

PUBLISHED = ("adversary", "began", "mmd", "pairwise_mmd", "mige")  # methods of the paper
# Values of `Setting.batches` for penalties: "balanced" for conditional penalties, "people" for other penalties.
BALANCED_BATCHES = ("balanced", "people")


def _paper() -> list[Setting]:
    """Return the settings of the paper. A run also adds settings without a penalty for all BALANCED_BATCHES."""
    return [
        Setting(),
        *(
            Setting(method=method, mode=mode, strength=strength, **asdict(options))
            for mode in MODES
            for method in PUBLISHED
            for strength in CENSORS[method].strengths
            for options in CENSORS[method].variations()
        ),
    ]


def _core() -> list[Setting]:
    """Return a setting without a penalty, and settings of all `core_strengths`."""
    return [Setting(), *_penalties({method: cls.core_strengths for method, cls in CENSORS.items()})]


def _quick() -> list[Setting]:
    """Return settings without a penalty for each value of `batches`, and settings of all `quick_strengths`."""
    uncensored = [Setting(), *(Setting(batches=batches) for batches in BALANCED_BATCHES)]
    return uncensored + _penalties({method: cls.quick_strengths for method, cls in CENSORS.items()})


def _penalties(strengths: dict[str, dict[str, float]]) -> list[Setting]:
    """Return settings with a penalty. strengths: by method and mode."""
    pairs = [(method, mode, strength) for method, modes in strengths.items() for mode, strength in modes.items()]
    return [Setting(method=method, mode=mode, strength=strength) for method, mode, strength in pairs]


def _uncensored() -> list[Setting]:
    """Return settings without a penalty, for a run that only compares preprocessing."""
    return [setting for setting in _core() if setting.penalty is None]


GRIDS = {"paper": _paper, "quick": _quick, "core": _core, "uncensored": _uncensored}


def grid(name: str) -> list[Setting]:
    """Return the settings of a named grid, the network without a penalty first.

    Parameters
    ----------
    name : {"quick", "core", "uncensored", "paper"}
        Name of the grid.

    Returns
    -------
    list of Setting
        Settings in the order of the grid.
    """
    check_choice("grid", name, GRIDS)
    return GRIDS[name]()


def grid_text(grid: object) -> str:
    """Return the name of a grid, or a user's list or .json file of settings as canonical JSON text."""
    if isinstance(grid, str) and grid in GRIDS:
        return grid
    if isinstance(grid, str) and grid.endswith(".json"):
        return _to_json(_read_file(Path(grid)))
    if isinstance(grid, str) and grid.startswith("["):
        return _to_json(settings_of(grid))
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        names = ", ".join(map(repr, GRIDS))
        raise UserError(f"unknown grid {shown(grid)}; choose from {names}, or give a list of settings or FILE.json")
    for setting in grid:
        if not isinstance(setting, Setting):
            raise UserError(f"a grid contains {shown(setting)}; give a list of settings, such as at.Setting()")
    return _to_json(grid)


def settings_of(text: str) -> list[Setting]:
    """Read settings from a JSON list of their keywords."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError("the stored settings of a grid are not JSON") from None
    if not isinstance(values, list) or not all(isinstance(keywords, dict) for keywords in values):
        raise UserError('a grid is not a list of settings; give JSON such as [{"method": "mmd", "strength": 1}]')
    return [Setting(**keywords) for keywords in values]


def _read_file(path: Path) -> list[Setting]:
    try:
        return settings_of(read_plain(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the grid {path} ({one_line(error)}); give a JSON list of settings") from None


def _to_json(settings: Sequence[Setting]) -> str:
    if not settings:
        raise UserError("the grid is empty; give at least one setting, such as at.Setting()")
    return json.dumps([setting.to_dict() for setting in settings], sort_keys=True)
