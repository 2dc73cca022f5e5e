"""Arrays from files we did not write: nothing is unpickled, no header is believed before it is checked."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from ..errors import UserError
from .messages import reason

Array = np.ndarray[Any, Any]

DEFLATE_LIMIT = 1032  # deflate cannot expand a byte to more than this


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Any failure inside becomes one UserError that names the file and the part.

    Bytes we did not write reach zipfile, zlib and numpy's header parser here, and these raise some twenty
    kinds of exception between them, so this is the one place that catches them all.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{what} of {str(path)!r} cannot be read ({reason(error)}); is the file damaged or cut short?"
        ) from error


def read_member(archive: zipfile.ZipFile, name: str, path: Path) -> Array:
    """The array `name` of an .npz."""
    with readable(path, name):
        info = archive.getinfo(f"{name}.npy")
        if info.file_size > DEFLATE_LIMIT * info.compress_size + 1024:
            raise ValueError(f"{info.file_size} bytes cannot come out of {info.compress_size}")
        with archive.open(info) as stream:
            _check_header(stream, info.file_size, name, path)
            stream.seek(0)
            return npy_format.read_array(stream, allow_pickle=False)


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """The array in one .npy file; `mapped`: left in the file and read when used."""
    with readable(path, path.stem):
        with path.open("rb") as stream:
            _check_header(stream, os.fstat(stream.fileno()).st_size, path.stem, path, mapped=mapped)
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        return array


def _check_header(stream: IO[bytes], size: int, name: str, path: Path, *, mapped: bool = False) -> None:
    """Refuse what would be unpickled, and a shape that does not fit the `size` bytes there are."""
    # The header lies within the first bytes; a private buffer keeps count of them on any kind of stream.
    head = io.BytesIO(stream.read(2**16))
    version = npy_format.read_magic(head)
    read = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"unknown version {version} of the npy format")
    shape, _, dtype = read(head)
    if dtype.hasobject:
        raise UserError(
            f"{name} of {str(path)!r} holds pickled Python objects, which are never opened; "
            f"store numbers or fixed-width strings, such as y.astype(str)"
        )
    expected = math.prod(shape) * dtype.itemsize
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or head.tell() + expected != size:
        raise ValueError(f"the header promises {dtype} of shape {shape}, the file has {size - head.tell()} bytes")
    memory = _memory_of_machine()
    if not mapped and memory is not None and expected > memory:
        raise UserError(
            f"{name} of {str(path)!r} unpacks to {expected / 2**30:.0f} GiB, more than this machine has; "
            f"store it as a folder of .npy files with float32 X, which is read from disk as it is used"
        )


def _memory_of_machine() -> int | None:
    """Bytes of physical memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
