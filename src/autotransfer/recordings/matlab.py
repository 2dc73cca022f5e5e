"""Arrays from MATLAB files by name, read by SciPy or, from version 7.3 on, which is HDF5, by h5py.

Both can crash on a damaged file: call them in a child process (child.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .npy import check_memory, readable
from .optional import need
from .raw import Array

HDF5 = b"\x89HDF\r\n\x1a\n"
BYTES = 4  # of a value as float32, the type it is converted to
SMALLER = "keep fewer windows, or use a machine with more memory"


def read_mat(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """The variables by name; those of `optional` that are there."""
    with readable(path, "variables"):
        variables, names = (_from_hdf5 if _is_hdf5(path) else _from_mat)(path, [*needed, *optional])
    for name in needed:
        if name not in variables:
            raise UserError(f"{str(path)!r} has no variable {name!r}; it holds {', '.join(map(repr, names)) or 'none'}")
    for name, array in variables.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufcUSO":
            raise UserError(f"{name!r} of {str(path)!r} holds neither numbers nor text; store an array or a cell array")
    return variables


def numbers(array: Array, name: str, path: Path) -> Array:
    """A variable that must hold real numbers."""
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name!r} of {str(path)!r} holds {array.dtype} values; it must hold real numbers")
    return array


def words(array: Array) -> list[str]:
    """A cell array of texts, rows of characters or an array of numbers as a list of str."""
    return ["".join(str(part) for part in np.ravel(entry)).strip() for entry in np.ravel(array)]


def _from_mat(path: Path, wanted: list[str]) -> tuple[dict[str, Array], list[str]]:
    """The wanted variables, and the names of all."""
    from scipy.io import loadmat, whosmat

    shapes = {name: shape for name, shape, _ in whosmat(path)}
    for name in shapes.keys() & wanted:
        check_memory(BYTES * math.prod(shapes[name]), name, path, SMALLER)
    variables = loadmat(path, variable_names=wanted)
    return {name: variables[name] for name in wanted if name in variables}, list(shapes)


def _from_hdf5(path: Path, wanted: list[str]) -> tuple[dict[str, Array], list[str]]:
    """With the axes as MATLAB has them; a cell array of texts as an array of str."""
    h5py = need("h5py", f"{path.name!r}, a MATLAB file of version 7.3,", "h5py")
    with h5py.File(path, "r") as file:
        arrays = {name: entry for name, entry in file.items() if isinstance(entry, h5py.Dataset)}
        for name in arrays.keys() & wanted:
            check_memory(arrays[name].nbytes, name, path, SMALLER)
        return {name: _values(file, file[name]) for name in wanted if name in file}, list(arrays)


def _values(file: Any, entry: Any) -> Array:
    value = np.asarray(entry[()])
    if value.dtype.kind == "O":
        return np.array(["".join(map(chr, np.ravel(file[reference][()]))) for reference in value.T.ravel()])
    return value.T


def _is_hdf5(path: Path) -> bool:
    """By the signature, which MATLAB puts after a header of 512 bytes."""
    with path.open("rb") as stream:
        head = stream.read(512 + len(HDF5))
    return head.startswith(HDF5) or head.endswith(HDF5)
