"""What can be loaded, and which reader does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, shown
from .container import Recordings
from .embedded import watch
from .fif import fif_files, read_fif, read_fif_folder
from .messages import show
from .moabb_sets import read_moabb
from .npz import HOW_TO_SAVE, load_folder, load_npz, read_folder, read_npz, save_folder, save_npz
from .paper import RECIPES, Recipe
from .raw import Raw
from .synthetic import synthetic
from .windows import check_windows

__all__ = [
    "READERS",
    "RECIPES",
    "SETS",
    "EmbeddedSet",
    "Raw",
    "Recipe",
    "Recordings",
    "absolute",
    "check_windows",
    "load",
    "load_folder",
    "load_npz",
    "read",
    "read_folder",
    "read_npz",
    "save_folder",
    "save_npz",
    "synthetic",
    "watch",
]


class EmbeddedSet(NamedTuple):
    make: Callable[[], Recordings]
    description: str
    obtained: str


SETS = {
    "watch": EmbeddedSet(
        watch,
        "smartwatch motion: 10 people, 7 shoulder exercises, 6 axes at 50 Hz, windows of 4 s",
        "comes with seglearn: pip install 'autotransfer[watch]'",
    ),
    "synthetic": EmbeddedSet(
        synthetic,
        "oscillations under a known subject shift: 8 subjects, 2 classes, 8 channels at 128 Hz, 1 s windows",
        "generated",
    ),
}

# The reader by file extension, or by the prefix of any other source.
READERS: dict[str, Callable[[str], Raw]] = {
    ".npz": read_npz,
    ".fif": read_fif,
    ".fif.gz": read_fif,
    "moabb:": read_moabb,
    **{prefix: recipe.read for prefix, recipe in RECIPES.items()},
}

PATH = 400  # letters of a path that a message shows
NOT_READ = (".npy", ".pkl", ".pickle", ".joblib", ".pt", ".pth")


def load(source: str | os.PathLike[str]) -> Recordings:
    """Recordings from a file (.npz, or MNE epochs in .fif), a folder of .npy or of epochs files, a MOABB
    dataset (`moabb:NAME`), a data set of the paper (`errp:FOLDER`, see RECIPES), or an embedded set (SETS).
    """
    if isinstance(source, str) and source in SETS:
        return SETS[source].make()
    return Recordings.of(read(source))


def read(source: str | os.PathLike[str]) -> Raw:
    """The same, not validated and perhaps without labels."""
    if not isinstance(source, (str, os.PathLike)):
        raise UserError(f"cannot load {show(source)}; give a path or the name of an embedded set: {_listed(SETS)}")
    text = os.fspath(source)
    if isinstance(source, str) and text in SETS:
        return SETS[text].make().raw()
    if os.path.isdir(text):
        of_fif = not os.path.isfile(os.path.join(text, "X.npy")) and fif_files(Path(text))
        return read_fif_folder(text) if of_fif else read_folder(text)
    for key, reader in READERS.items():
        if key.endswith(":") and text.startswith(key):
            return reader(text.removeprefix(key))
        if key.startswith(".") and text.lower().endswith(key):
            return reader(text)
    named = shown(text, PATH)
    if Path(text).suffix.lower() in NOT_READ:
        raise UserError(f"cannot load {named}: X, y and subject belong in one file without pickles; {HOW_TO_SAVE}")
    problem = "its kind of file is unknown" if os.path.exists(text) else "there is no such file, folder or set"
    raise UserError(
        f"cannot load {named}: {problem}; choose a file ({_listed(key for key in READERS if key.startswith('.'))}), "
        f"a folder of .npy or of .fif files, a collection ({_listed(key for key in READERS if key.endswith(':'))}), "
        f"or an embedded set ({_listed(SETS)})"
    )


def absolute(source: str) -> str:
    """The same source with an absolute path, so that it works from any folder."""
    for prefix in RECIPES:
        if source.startswith(prefix):
            return prefix + str(Path(source.removeprefix(prefix)).expanduser().resolve())
    return str(Path(source).resolve()) if source not in SETS and os.path.exists(source) else source


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
