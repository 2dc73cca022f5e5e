"""The file format of AutoTransfer: an .npz, or a folder of .npy files, whose X may be larger than memory.

X (N, channels, times), y (N,), subject (N,); optional session (N,), scale (multiplied onto X) and meta (JSON text:
sfreq, channels, classes, subjects, name, filter, unit, reference). channels (channels,) and sfreq may also be arrays.
Any other array (N,) of numbers or text is a column; further arrays are ignored. Files are not trusted: nothing is
unpickled, and headers are checked before they are used.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from ..errors import UserError, one_line, shown
from ..machine import available_memory
from ..schema import to_values
from .chunks import window_chunks
from .container import Recordings
from .labels import KINDS, RESERVED, as_list, is_column_name, plain_columns
from .optional import one_line_errors, reading
from .raw import Array, Raw
from .signal import check_sfreq
from .windows import as_window_array

META = ("sfreq", "name", "filter", "channels", "classes", "subjects", "unit", "reference")
META_BYTES = 2**26
AS_FOLDER = "store it as a folder of .npy files with float32 X, which is read from disk as it is used"
HOW_TO_SAVE = "save it with np.savez('recordings.npz', X=X, y=y, subject=subject)"


class Header(NamedTuple):
    """Shape, type and number of bytes of a stored array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


OpenArray = Callable[[str], tuple[IO[bytes], int]]  # from the name of an array to its open file, and its size in bytes


def read_npz(path: str | os.PathLike[str]) -> Raw:
    """Read an .npz; nothing is unpickled."""
    path = Path(path)
    if not os.path.isfile(path):
        raise UserError(f"there is no file {str(path)!r}; give an existing .npz file")
    with reading(path, "the table of contents"):
        if not zipfile.is_zipfile(path):
            raise UserError(f"{str(path)!r} is not an .npz file, or it is damaged; {HOW_TO_SAVE}")
        archive = zipfile.ZipFile(path)

    def open_member(name: str) -> tuple[IO[bytes], int]:
        return archive.open(f"{name}.npy"), archive.getinfo(f"{name}.npy").file_size

    with archive:
        headers = _headers(archive.namelist(), open_member, path)
        needed = {name: header.nbytes for name, header in headers.items()}
        if headers["X"].dtype != np.float32 or "scale" in headers:
            needed["X"] += 4 * math.prod(headers["X"].shape)  # the copy as float32
        check_memory(sum(needed.values()), max(needed, key=lambda name: needed[name]), path)
        return _raw(path, {name: _read_array(open_member, name, path) for name in headers})


def read_folder(path: str | os.PathLike[str]) -> Raw:
    """Read a folder of X.npy, y.npy, ... and meta.json (or meta.npy); X stays in its file."""
    path = Path(path)

    def open_file(name: str) -> tuple[IO[bytes], int]:
        file = (path / f"{name}.npy").open("rb")
        return file, os.fstat(file.fileno()).st_size

    headers = _headers(os.listdir(path), open_file, path)
    check_memory(sum(header.nbytes for name, header in headers.items() if name != "X"), "the arrays", path)
    arrays = {name: _read_array(open_file, name, path) for name in headers if name != "X"}
    with reading(path, "X"):
        arrays["X"] = np.load(path / "X.npy", mmap_mode="r", allow_pickle=False)
    if os.path.isfile(path / "meta.json"):
        with reading(path, "meta.json"):
            arrays["meta"] = np.array((path / "meta.json").read_text(encoding="utf-8"))
    return _raw(path, arrays)


def _headers(files: Iterable[str], open_array: OpenArray, path: Path) -> dict[str, Header]:
    """Return the headers of all arrays that are read."""
    names = {file.removesuffix(".npy") for file in files if file.endswith(".npy")}
    if "X" not in names:
        raise UserError(f"{str(path)!r} holds no X; {HOW_TO_SAVE}")
    headers = {name: _read_header(open_array, name, path) for name in RESERVED if name in names}
    windows = headers["X"].shape
    meta = headers.get("meta")
    if meta is not None and (math.prod(meta.shape) != 1 or meta.dtype.kind not in "US" or meta.nbytes > META_BYTES):
        raise UserError(f"meta of {str(path)!r} is not a short text; store json.dumps({{...}}) in it")
    for name in sorted(filter(is_column_name, names)):
        with suppress(UserError):  # an array that is no column may be damaged
            header = _read_header(open_array, name, path)
            if header.shape == windows[:1] and header.dtype.kind in KINDS:
                headers[name] = header
    return headers


def _raw(path: Path, arrays: dict[str, Array]) -> Raw:
    """Return the windows of a file from its arrays."""
    meta = _parse_meta(str(as_list(arrays["meta"].reshape(-1), "meta")[0]), path) if "meta" in arrays else {}
    for name in ("channels", "sfreq"):
        if (array := arrays.get(name)) is not None:
            value = array.item() if array.size == 1 else array.tolist()
            stated = as_list(array, name) if name == "channels" else check_sfreq(value)
            if meta.setdefault(name, stated) != stated:
                raise UserError(
                    f"{name} of {str(path)!r} is {shown(stated)}, and meta says {shown(meta[name])}; leave one out"
                )
    X = _scale(arrays["X"], arrays["scale"], path) if "scale" in arrays else arrays["X"]
    labels = {name: arrays.get(name) for name in ("y", "subject", "session")}
    columns = plain_columns({name: as_list(array, name) for name, array in arrays.items() if is_column_name(name)})
    return Raw(**{"X": X, "name": path.stem, "columns": columns, **labels, **meta})


def _scale(X: Array, scale: Array, path: Path) -> Array:
    """Return scale · X as float32, computed in chunks."""
    X = np.asarray(as_window_array(X))
    with one_line_errors(f"scale of {str(path)!r} does not fit X", "store real numbers, such as (1, channels, 1)"):
        factor = np.broadcast_to(scale.astype(np.float64, casting="same_kind"), X.shape)
    scaled = np.empty(X.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite values, which are reported
        for rows in window_chunks(X):
            scaled[rows] = X[rows].astype(np.float64) * factor[rows]
    return scaled


def _parse_meta(text: str, path: Path) -> dict[str, Any]:
    """Return the known entries of meta, whose values are validated later."""
    where = f"meta of {str(path)!r}"
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({one_line(error)}); store json.dumps({{...}}) in it") from None
    if not isinstance(meta, dict):
        raise UserError(f"{where} is {shown(meta)}; it must be a JSON object such as {{'sfreq': 200}}")
    known = {key: meta[key] for key in META if meta.get(key) is not None}
    if not isinstance(known.get("filter"), dict):  # text is a description for readers
        known.pop("filter", None)
    return known


def save_npz(path: str | os.PathLike[str], recordings: Recordings) -> None:
    """Write recordings so that `load` returns them again; an existing file is replaced in one step."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"{str(path)!r} does not end in .npz; choose a name that does")
    fields = {name: getattr(recordings, name) for name in ("X", "subject", "session")} | {"y": recordings.truth}
    arrays = {name: tensor.numpy() for name, tensor in fields.items() if tensor is not None}
    for name, column in recordings.columns.items():
        arrays[name] = np.array(["" if value is None else value for value in column])
    meta = {"name": recordings.name, "subjects": recordings.subjects, **to_values(recordings.signal)}
    meta |= {"classes": recordings.classes} if recordings.targets is None else {}
    arrays["meta"] = np.array(json.dumps({name: meta[name] for name in META if meta.get(name) is not None}))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            np.savez(stream, **arrays)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_array(open_array: OpenArray, name: str, path: Path) -> Array:
    """Return an array whose header was checked."""
    with reading(path, name), open_array(name)[0] as stream:
        return npy_format.read_array(stream, allow_pickle=False)


def _read_header(open_array: OpenArray, name: str, path: Path) -> Header:
    """Return the header of an array; refuse pickled objects, and a shape that does not fit the size of the file."""
    with reading(path, name):
        stream, size = open_array(name)
        with stream:
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
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.itemsize == 0 or min(shape, default=0) < 0 or head.tell() + nbytes != size:
            raise ValueError(f"the header declares {dtype} of shape {shape}, the file has {size - head.tell()} bytes")
        return Header(shape, dtype, nbytes)


def check_memory(needed: int, what: str, path: Path, remedy: str = AS_FOLDER) -> None:
    """Raise if `needed` bytes do not fit into memory."""
    available = available_memory()
    if available is not None and needed > available:
        raise UserError(
            f"{what} of {str(path)!r} is too large for memory ({needed / 1e9:.3g} GB needed, "
            f"{available / 1e9:.3g} GB available); {remedy}"
        )
