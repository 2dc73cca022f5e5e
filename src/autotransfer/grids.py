"""Grids: the settings that a search tries. The strengths of each method are in its own file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .censoring import CENSORS, MODES
from .errors import UserError, check_choice, one_line, shown
from .files import read_plain
from .settings import Setting

PUBLISHED = ("adversary", "began", "mmd", "pairwise_mmd", "mige")  # the methods of the paper
BALANCED = ("balanced", "people")  # batches that penalties have: conditional ones, and others


def _paper() -> list[Setting]:
    """Return the published search. A run adds the network without a penalty in both kinds of batches."""
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


def _few() -> list[Setting]:
    """Return penalties that have gained something on people left out: those of networks that are averaged."""
    return [Setting(), *_penalties({method: kind.few_strengths for method, kind in CENSORS.items()})]


def _quick() -> list[Setting]:
    """Return every method that names strengths for it, and the network without a penalty in the batches of each."""
    plain = [Setting(), *(Setting(batches=kind) for kind in BALANCED)]
    return plain + _penalties({method: kind.quick_strengths for method, kind in CENSORS.items()})


def _penalties(strengths: dict[str, dict[str, float]]) -> list[Setting]:
    """Return settings of penalties. strengths: by method and mode."""
    pairs = [(method, mode, strength) for method, modes in strengths.items() for mode, strength in modes.items()]
    return [Setting(method=method, mode=mode, strength=strength) for method, mode, strength in pairs]


def _uncensored() -> list[Setting]:
    """Return the settings of a run that only finds out how windows are best preprocessed."""
    return [setting for setting in _few() if setting.penalty is None]


GRIDS = {"paper": _paper, "quick": _quick, "few": _few, "uncensored": _uncensored}


def grid(name: str) -> list[Setting]:
    """Return the settings of a named grid, the network without a penalty first."""
    check_choice("grid", name, GRIDS)
    return GRIDS[name]()


def grid_text(grid: object) -> str:
    """Write a grid as options store it: its name or, if the user lists settings or names a .json file of them, those
    settings as canonical JSON text."""
    if isinstance(grid, str) and grid in GRIDS:
        return grid
    if isinstance(grid, str) and grid.endswith(".json"):
        return _text(_read(Path(grid)))
    if isinstance(grid, str) and grid.startswith("["):
        return _text(settings_of(grid))
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        listed = ", ".join(map(repr, GRIDS))
        raise UserError(
            f"unknown grid {shown(grid)}; choose from {listed}, or give settings of your own: FILE.json or, in "
            "Python, a list"
        )
    for setting in grid:
        if not isinstance(setting, Setting):
            raise UserError(f"a grid holds {shown(setting)}; it must be a list of settings, such as at.Setting()")
    return _text(grid)


def settings_of(text: str) -> list[Setting]:
    """Read settings from a JSON list of their keywords."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError("the settings of a grid are stored as text that is not JSON") from None
    if not isinstance(values, list) or not all(isinstance(keywords, dict) for keywords in values):
        raise UserError('a grid is a JSON list of settings, such as [{"method": "mmd", "strength": 1}]')
    return [Setting(**keywords) for keywords in values]


def _read(path: Path) -> list[Setting]:
    try:
        return settings_of(read_plain(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the grid {path} ({one_line(error)}); give a JSON list of settings") from None


def _text(settings: Sequence[Setting]) -> str:
    if not settings:
        raise UserError("the grid holds no setting; give at least one, such as at.Setting()")
    return json.dumps([setting.to_dict() for setting in settings], sort_keys=True)
