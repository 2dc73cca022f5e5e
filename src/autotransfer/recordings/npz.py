"""The layout of AutoTransfer: an .npz, or a folder of .npy files of the same names, whose X may be larger than memory.

X (N, channels, times), y (N,), subject (N,); optional session (N,), scale (multiplied onto X) and meta (JSON
text: sfreq, channels, classes, subjects, name, filter). channels (channels,) and sfreq may be arrays instead of entries
of meta. Any other array (N,) of numbers or text is a column of its name; the rest is ignored.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError, one_line, shown
from .chunks import window_chunks
from .container import Recordings, check_sfreq
from .labels import KINDS, as_list, check_length, is_column_name, plain_columns
from .npy import Header, check_memory, member_header, npy_header, read_member, read_npy, readable
from .raw import Array, Raw

ARRAYS = ("X", "y", "subject", "session", "scale", "channels", "sfreq", "meta")
META_BYTES = 2**26
HOW_TO_SAVE = "save it with np.savez('recordings.npz', X=X, y=y, subject=subject)"


def read_npz(path: str | os.PathLike[str]) -> Raw:
    """Read an .npz; nothing is unpickled."""
    path = Path(path)
    if not os.path.isfile(path):
        raise UserError(f"there is no file {str(path)!r}; give an existing .npz file")
    with readable(path, "the table of contents"):
        if not zipfile.is_zipfile(path):
            raise UserError(f"{str(path)!r} is not an .npz file, or it is damaged; {HOW_TO_SAVE}")
        archive = zipfile.ZipFile(path)
    with archive:
        headers = _headers(archive.namelist(), lambda name: member_header(archive, name, path), path)
        needed = {name: header.nbytes for name, header in headers.items()}
        if headers["X"].dtype != np.float32 or "scale" in headers:
            needed["X"] += 4 * math.prod(headers["X"].shape)  # the copy as float32
        largest = max(needed, key=lambda name: needed[name])
        check_memory(sum(needed.values()), largest, path)
        arrays = {name: read_member(archive, name, path) for name in headers}
    text = _text(arrays.pop("meta")) if "meta" in arrays else None
    return _raw(path, arrays, text)


def read_folder(path: str | os.PathLike[str]) -> Raw:
    """Read a folder of X.npy, y.npy, ... and meta.json (or meta.npy); X stays in its file."""
    path = Path(path)
    if not os.path.isdir(path):
        raise UserError(f"there is no folder {str(path)!r}; give one that holds X.npy, y.npy and subject.npy")
    headers = _headers(os.listdir(path), lambda name: npy_header(path / f"{name}.npy"), path)
    arrays = {name: read_npy(path / f"{name}.npy", mapped=name == "X") for name in headers}
    text = _text(arrays.pop("meta")) if "meta" in arrays else None
    if os.path.isfile(path / "meta.json"):
        with readable(path, "meta.json"):
            text = (path / "meta.json").read_text(encoding="utf-8")
    return _raw(path, arrays, text)


def _headers(files: Iterable[str], header_of: Callable[[str], Header], path: Path) -> dict[str, Header]:
    """Return the headers of the arrays that are used: those of the layout and columns, all checked against X."""
    names = {file.removesuffix(".npy") for file in files if file.endswith(".npy")}
    if "X" not in names:
        raise UserError(f"{str(path)!r} holds no X; {HOW_TO_SAVE}")
    headers = {name: header_of(name) for name in ARRAYS if name in names}
    windows = headers["X"].shape
    for name in ("y", "subject", "session"):
        if name in headers and len(windows) == 3 and len(headers[name].shape) == 1:
            check_length(headers[name].shape[0], windows[0], name)
    meta = headers.get("meta")
    if meta is not None and (math.prod(meta.shape) != 1 or meta.dtype.kind not in "US" or meta.nbytes > META_BYTES):
        raise UserError(f"meta of {str(path)!r} is not a short text; store json.dumps({{...}}) in it")
    for name in sorted(filter(is_column_name, names)):
        with suppress(UserError):  # what is no column may even be damaged
            header = header_of(name)
            if header.shape == windows[:1] and header.dtype.kind in KINDS:
                headers[name] = header
    return headers


def _raw(path: Path, arrays: dict[str, Array], meta_text: str | None) -> Raw:
    meta = {} if meta_text is None else _meta(meta_text, path)
    for name in ("channels", "sfreq"):
        if (array := arrays.get(name)) is not None:
            one = array.item() if array.size == 1 else array.tolist()
            stated = as_list(array, name) if name == "channels" else check_sfreq(one)
            if meta.setdefault(name, stated) != stated:
                raise UserError(
                    f"{name} of {str(path)!r} is {shown(stated)}, and meta says {shown(meta[name])}; leave one out"
                )
    X = _scaled(arrays["X"], arrays["scale"], path) if "scale" in arrays else arrays["X"]
    labels = {name: arrays.get(name) for name in ("y", "subject", "session")}
    columns = plain_columns({name: as_list(array, name) for name, array in arrays.items() if is_column_name(name)})
    return Raw(**{"X": X, "name": path.stem, "columns": columns, **labels, **meta})


def _scaled(X: Array, scale: Array, path: Path) -> Array:
    """Return scale · X as float32, in blocks of trials."""
    if X.ndim != 3:
        return X  # refused for its shape when it becomes Recordings
    for name, array in (("X", X), ("scale", scale)):
        if array.dtype.kind not in "biuf":
            raise UserError(f"{name} of {str(path)!r} holds {array.dtype} values; store real numbers")
    try:
        factor = np.broadcast_to(scale, X.shape)
    except ValueError:
        raise UserError(
            f"scale of {str(path)!r} has the shape {scale.shape}, X {X.shape}; "
            f"scale must broadcast to X, such as (1, channels, 1)"
        ) from None
    if not np.isfinite(scale).all():
        raise UserError(f"scale of {str(path)!r} is {shown(scale.ravel()[:4].tolist())}; it must hold finite numbers")
    scaled = np.empty(X.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, which Recordings reports
        for rows in window_chunks(X):
            scaled[rows] = X[rows].astype(np.float64) * factor[rows]
    return scaled


def _text(array: Array) -> str:
    return str(as_list(array.reshape(-1), "meta")[0])


def _meta(text: str, path: Path) -> dict[str, Any]:
    """Return the known entries. Their values are checked when they are used."""
    where = f"meta of {str(path)!r}"
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({one_line(error)}); store json.dumps({{...}}) in it") from None
    if not isinstance(meta, dict):
        raise UserError(f"{where} is {shown(meta)}; it must be a JSON object such as {{'sfreq': 200}}")
    entries = ("sfreq", "name", "filter", "channels", "classes", "subjects")
    known = {key: meta[key] for key in entries if meta.get(key) is not None}
    if not isinstance(known.get("filter"), dict):  # text describes it to readers
        known.pop("filter", None)
    if not isinstance(known.get("name", ""), str):
        raise UserError(f"name in {where} is {shown(known['name'])}; it must be a string")
    check_sfreq(known.get("sfreq"))
    return known


def save_npz(path: str | os.PathLike[str], recordings: Recordings) -> None:
    """Write so that `load` gives the same recordings back; a file of that name is replaced in one step."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"{str(path)!r} does not end in .npz; choose a name that does")
    fields = {name: getattr(recordings, name) for name in ("X", "subject", "session")} | {"y": recordings.truth}
    arrays = {name: tensor.numpy() for name, tensor in fields.items() if tensor is not None}
    arrays |= {name: column.array() for name, column in recordings.columns.items()}
    named = ("sfreq", "channels", *(("classes",) * (recordings.targets is None)), "subjects", "name")
    meta = {name: getattr(recordings, name) for name in named}
    if recordings.filter is not None:
        meta["filter"] = recordings.filter.as_dict()
    arrays["meta"] = np.array(json.dumps(meta))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            np.savez(stream, **arrays)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
