"""Arrays from MATLAB files by name: of versions 5 to 7, and of version 7.3, which is HDF5 and needs h5py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from . import mat5
from .blocks import Array
from .npy import readable
from .optional import need

HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """The variables by name; those of `optional` that are there."""
    wanted = (*needed, *optional)
    with readable(path, "variables"):
        if _is_hdf5(path):
            with _hdf5(path) as file:
                found = {name: _from_hdf5(file, file[name]) for name in wanted if name in file}
        else:
            found = {entry.name: entry.values() for entry in mat5.variables(path.read_bytes()) if entry.name in wanted}
    for name in needed:
        if name not in found:
            there = ", ".join(map(repr, shapes(path))) or "nothing"
            raise UserError(f"{str(path)!r} has no variable {name!r}; it holds {there}")
    return found


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all variables by name, without their values."""
    with readable(path, "variables"):
        if _is_hdf5(path):
            with _hdf5(path) as file:
                return {name: entry.shape[::-1] for name, entry in file.items() if hasattr(entry, "shape")}
        return {entry.name: entry.shape for entry in mat5.variables(path.read_bytes())}


def numbers(array: Array, name: str, path: Path) -> Array:
    """A variable that must hold real numbers."""
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name!r} of {str(path)!r} holds {array.dtype} values; it must hold real numbers")
    return array


def words(array: Array) -> list[str]:
    """A cell array of texts, rows of characters or an array of numbers as a list of str."""
    return ["".join(str(part) for part in np.ravel(entry)).strip() for entry in np.ravel(array)]


def _is_hdf5(path: Path) -> bool:
    """By the signature, which MATLAB puts after a header of 512 bytes."""
    with path.open("rb") as stream:
        head = stream.read(512 + len(HDF5))
    return head.startswith(HDF5) or head.endswith(HDF5)


@contextmanager
def _hdf5(path: Path) -> Iterator[Any]:
    h5py = need("h5py", f"{path.name!r}, a MATLAB file of version 7.3,", "h5py")
    with h5py.File(path, "r") as file:
        yield file


def _from_hdf5(file: Any, entry: Any) -> Array:
    """With the axes as MATLAB has them; a cell array of texts as an array of str."""
    value = np.asarray(entry[()])
    if value.dtype.kind == "O":
        return np.array(["".join(map(chr, np.ravel(file[reference][()]))) for reference in value.T.ravel()])
    return value.T
