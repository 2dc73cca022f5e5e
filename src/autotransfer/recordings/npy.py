"""Arrays from untrusted files: nothing is unpickled, and headers are checked before they are used."""

from __future__ import annotations

import io
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from ..errors import UserError
from ..machine import available_memory
from .optional import reading
from .raw import Array

AS_FOLDER = "store it as a folder of .npy files with float32 X, which is read from disk as it is used"


class Header(NamedTuple):
    """Shape and type of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def member_header(archive: zipfile.ZipFile, name: str, path: Path) -> Header:
    """Return the header of an array in an .npz, checked against the stored size."""
    with reading(path, name):
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as stream:
            return _header(stream, info.file_size, name, path)


def read_member(archive: zipfile.ZipFile, name: str, path: Path) -> Array:
    """Return an array in an .npz whose header was checked."""
    with reading(path, name), archive.open(f"{name}.npy") as stream:
        return npy_format.read_array(stream, allow_pickle=False)


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """Return the array in an .npy file; with `mapped`, values stay in the file until they are used."""
    if not mapped:
        check_memory(npy_header(path).nbytes, path.stem, path)
    with reading(path, path.stem):
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        return array


def npy_header(path: Path) -> Header:
    """Return the header of an .npy file, checked against the file's size."""
    with reading(path, path.stem), path.open("rb") as stream:
        return _header(stream, os.fstat(stream.fileno()).st_size, path.stem, path)


def _header(stream: IO[bytes], size: int, name: str, path: Path) -> Header:
    """Read a header; refuse pickled objects, and a shape that does not fit the size in bytes."""
    head = io.BytesIO(stream.read(2**16))
    version = npy_format.read_magic(head)
    read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"unknown version {version} of the npy format")
    shape, _, dtype = read(head)
    if dtype.hasobject:
        raise UserError(
            f"{name} of {str(path)!r} holds pickled Python objects, which are never loaded; "
            f"store numbers or fixed-width strings, such as y.astype(str)"
        )
    header = Header(shape, dtype)
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or head.tell() + header.nbytes != size:
        raise ValueError(f"the header declares {dtype} of shape {shape}, the file has {size - head.tell()} bytes")
    return header


def check_memory(needed: int, what: str, path: Path, remedy: str = AS_FOLDER) -> None:
    """Raise if `needed` bytes do not fit into memory."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{what} of {str(path)!r} is too large for memory ({needed / 1e9:.3g} GB needed, "
            f"{available / 1e9:.3g} GB available); {remedy}"
        )
