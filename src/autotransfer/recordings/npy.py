"""Arrays from untrusted files: nothing is unpickled, and headers are checked before they are used."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from ..errors import UserError, one_line
from ..machine import memory_left
from .raw import Array

AS_FOLDER = "store it as a folder of .npy files with float32 X, which is read from disk as it is used"


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn any failure inside into one UserError that names the file and the part.

    Damaged files make zipfile, zlib, NumPy, SciPy and MNE raise many types of exceptions, so this catches all.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{what} of {str(path)!r} cannot be read ({one_line(error)}); is the file damaged or cut short?"
        ) from error


class Header(NamedTuple):
    """Shape and type of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def member_header(archive: zipfile.ZipFile, name: str, path: Path) -> Header:
    """Return the header of the array `name` of an .npz, checked against the stored size."""
    with readable(path, name):
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as stream:
            return _header(stream, info.file_size, name, path)


def read_member(archive: zipfile.ZipFile, name: str, path: Path) -> Array:
    """Return the array `name` of an .npz, after `member_header` has checked it."""
    with readable(path, name), archive.open(f"{name}.npy") as stream:
        return npy_format.read_array(stream, allow_pickle=False)


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """Return the array in one .npy file; `mapped`: left in the file and read when used."""
    with readable(path, path.stem):
        header = npy_header(path)
        if not mapped:
            check_memory(header.nbytes, path.stem, path)
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        return array


def npy_header(path: Path) -> Header:
    """Return the header of one .npy file, checked against its size."""
    with readable(path, path.stem), path.open("rb") as stream:
        return _header(stream, os.fstat(stream.fileno()).st_size, path.stem, path)


def _header(stream: IO[bytes], size: int, name: str, path: Path) -> Header:
    """Refuse pickled objects, and a shape that does not fit the `size` bytes there are."""
    # The header is within the first bytes; a buffer tells its length on any kind of stream.
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
    """Refuse what does not fit into memory before it is unpacked; `needed`: bytes."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{what} of {str(path)!r} is too large for memory ({needed / 1e9:.3g} GB needed, "
            f"{available / 1e9:.3g} GB available); {remedy}"
        )


def available_memory() -> int | None:
    """Return the bytes that can be taken without swapping, or the physical memory; at most what a container leaves."""
    known = [n for n in (_free_memory(), memory_left()) if n is not None]
    return min(known) if known else None


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass  # not Linux
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
