"""The layout of AutoTransfer: an .npz, or a folder of .npy files of the same names, whose X may be larger than memory.

X (N, channels, times), y (N,), subject (N,); optional session (N,), scale (multiplied onto X) and meta (JSON
text: sfreq, channels, classes, subjects, name, ring, filter, labels of columns). Any other array (N,) of numbers or
text is a column of its name; the rest is ignored. channels (channels,) and sfreq may be arrays instead of entries of
meta.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .chunks import window_chunks
from .columns import KINDS, Column, is_name, plain_columns
from .container import Recordings, storable
from .filters import filter_of
from .labels import as_list, check_distinct, check_length
from .messages import reason, show
from .npy import AS_FOLDER, Header, check_memory, member_header, npy_header, read_member, read_npy, readable
from .raw import Array, Label, Raw
from .ring import REMEDY as RING

ARRAYS = ("X", "y", "subject", "session", "scale")
STATED = {"channels": "store the names of all channels as text", "sfreq": "store one number, in Hz"}  # as in meta
LABEL_BYTES = 64  # of a label as a Python object in a list
META_BYTES = 2**26
HOW_TO_SAVE = "save it with np.savez('recordings.npz', X=X, y=y, subject=subject)"


def read_npz(path: str | os.PathLike[str]) -> Raw:
    """What an .npz holds; nothing is unpickled."""
    path = Path(path)
    _check_is_zip(path)
    with readable(path, "the table of contents"):
        archive = zipfile.ZipFile(path)
    with archive:
        stored = set(archive.namelist())
        headers = {name: member_header(archive, name, path) for name in (*ARRAYS, "meta") if f"{name}.npy" in stored}
        _check_has_X(headers, path)
        for name in _other_names(stored):
            with nullcontext() if name in STATED else suppress(UserError):  # what is no column may even be damaged
                header = member_header(archive, name, path)
                headers |= {name: header} if _is_used(name, header, headers["X"].shape, path) else {}
        _check_headers(headers, path)
        arrays = {name: read_member(archive, name, path) for name in headers}
    text = _text(arrays.pop("meta"), path) if "meta" in arrays else None
    return _raw(path, arrays, text)


def _check_headers(headers: dict[str, Header], path: Path) -> None:
    """Refuse arrays that do not match or do not fit into memory before they are unpacked: zeros pack a thousandfold."""
    if "meta" in headers:
        _check_text(headers["meta"], path)
    needed = {name: header.nbytes for name, header in headers.items()}
    X = headers["X"]
    if X.dtype != np.float32 or "scale" in headers:
        needed["X"] += 4 * math.prod(X.shape)  # the copy as float32
    for name in set(headers) - {"X", "scale", "meta"}:
        shape = headers[name].shape
        if _is_stated(name, headers[name], X.shape):
            continue
        needed[name] += LABEL_BYTES * math.prod(shape)
        if len(X.shape) == 3 and len(shape) == 1:
            check_length(shape[0], X.shape[0], name)
    largest = max(needed, key=lambda name: needed[name])
    remedy = AS_FOLDER if largest == "X" else f"check how it was saved, or {HOW_TO_SAVE}"
    check_memory(sum(needed.values()), largest, path, remedy)


def read_folder(path: str | os.PathLike[str]) -> Raw:
    """What a folder of X.npy, y.npy, ... and meta.json (or meta.npy) holds; X stays in its file."""
    path = Path(path)
    if not os.path.isdir(path):
        raise UserError(f"there is no folder {str(path)!r}; give one that holds X.npy, y.npy and subject.npy")
    stored = [name for name in (*ARRAYS, "meta") if os.path.isfile(path / f"{name}.npy")]
    arrays = {name: read_npy(path / f"{name}.npy", mapped=name == "X") for name in stored if name != "meta"}
    _check_has_X(arrays, path)
    for name in _other_names(os.listdir(path) if os.access(path, os.R_OK) else []):
        with nullcontext() if name in STATED else suppress(UserError):
            if _is_used(name, npy_header(path / f"{name}.npy"), arrays["X"].shape, path):
                arrays[name] = read_npy(path / f"{name}.npy")
    text = None
    if os.path.isfile(path / "meta.json"):
        with readable(path, "meta.json"):
            text = (path / "meta.json").read_text(encoding="utf-8")
    elif "meta" in stored:
        text = _text(read_npy(path / "meta.npy"), path)
    return _raw(path, arrays, text)


def _other_names(files: Iterable[str]) -> list[str]:
    """Names of arrays that may be columns, from those of the files."""
    return [name for file in sorted(files) if file.endswith(".npy") and is_name(name := file.removesuffix(".npy"))]


def _is_stated(name: str, array: Header | Array, windows: tuple[int, ...]) -> bool:
    """Whether an array says what an entry of meta would; a column of that name has a value for each trial."""
    if name == "channels":
        return array.dtype.kind in "US" and array.shape == windows[1:2]
    return name == "sfreq" and array.dtype.kind in "iuf" and math.prod(array.shape) == 1


def _is_used(name: str, header: Header, windows: tuple[int, ...], path: Path) -> bool:
    """Whether an array is a column, or is stated; raises where it is meant to be and cannot."""
    column = len(windows) == 3 and header.shape == windows[:1] and header.dtype.kind in KINDS
    used = column or _is_stated(name, header, windows)
    if name in STATED and not used and len(windows) == 3:
        raise UserError(
            f"{name} of {str(path)!r} is {header.dtype} of the shape {header.shape}, and X has the shape {windows}; "
            f"{STATED[name]}"
        )
    return used


def _with_stated(meta: dict[str, Any], arrays: dict[str, Array], path: Path) -> dict[str, Any]:
    """meta with what arrays state, which are taken out of `arrays`; raises where they contradict each other."""
    stated: dict[str, Any] = {}
    for name in STATED:
        if name in arrays and _is_stated(name, arrays[name], arrays["X"].shape):
            with readable(path, name):
                values = [_decoded(value) for value in arrays.pop(name).reshape(-1).tolist()]
            stated[name] = tuple(values) if name == "channels" else float(values[0])
            if name in meta and meta[name] != stated[name]:
                raise UserError(
                    f"{name} of {str(path)!r} is {show(stated[name])}, and meta says {show(meta[name])}; leave one out"
                )
    return meta | stated


def _decoded(value: Any) -> Any:
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _check_is_zip(path: Path) -> None:
    if not os.path.isfile(path):
        raise UserError(f"there is no file {str(path)!r}; give an existing .npz file")
    with readable(path, "the beginning"), path.open("rb") as stream:
        start = stream.read(6)
    if start.startswith(b"PK"):
        return
    if start == b"\x93NUMPY":
        raise UserError(f"{str(path)!r} holds a single array, but X, y and subject belong together; {HOW_TO_SAVE}")
    if start.startswith(b"\x80"):
        raise UserError(f"{str(path)!r} is a pickle, which is never loaded; {HOW_TO_SAVE}")
    raise UserError(f"{str(path)!r} is not an .npz file, or it is damaged; {HOW_TO_SAVE}")


def _raw(path: Path, arrays: dict[str, Array], meta_text: str | None) -> Raw:
    X = arrays["X"]
    meta = _with_stated({} if meta_text is None else _meta(meta_text, path), arrays, path)
    if "scale" in arrays:
        X = _scaled(X, arrays["scale"], path)
    labels = {name: arrays.get(name) for name in ("y", "subject", "session")}
    columns = _columns(
        {name: array for name, array in arrays.items() if is_name(name)}, meta.pop("column_labels", {}), path
    )
    return Raw(**{"X": X, "name": path.stem, "columns": columns, **labels, **meta})


def _columns(arrays: dict[str, Array], labels: dict[str, list[Label]], path: Path) -> dict[str, Any]:
    """Columns by name. labels: what whole numbers stand for, as `save_npz` writes them; -1 is missing."""
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        names = labels.get(name)
        if names is None:
            columns |= plain_columns({name: as_list(array, name)})
            continue
        if array.dtype.kind not in "iu" or bool(((array < -1) | (array >= len(names))).any()):
            raise UserError(
                f"{name} of {str(path)!r} holds other numbers than -1 to {len(names) - 1}, the places of its labels in "
                "meta; leave the labels out of meta, or correct them"
            )
        columns[name] = Column(array.astype(np.int64), tuple(names))
    return columns


def _scaled(X: Array, scale: Array, path: Path) -> Array:
    """scale · X as float32, in blocks of trials."""
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
        raise UserError(f"scale of {str(path)!r} is {show(scale.ravel()[:4].tolist())}; it must hold finite numbers")
    scaled = np.empty(X.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, which Recordings reports
        for rows in window_chunks(X):
            scaled[rows] = X[rows].astype(np.float64) * factor[rows]
    return scaled


def _text(array: Array, path: Path) -> str:
    _check_text(array, path)
    with readable(path, "meta"):
        return str(_decoded(array.reshape(-1)[0]))


def _check_text(meta: Header | Array, path: Path) -> None:
    if math.prod(meta.shape) != 1 or meta.dtype.kind not in "US":
        raise UserError(f"meta of {str(path)!r} is not text; store json.dumps({{...}}) in it")
    if meta.nbytes > META_BYTES:
        raise UserError(f"meta of {str(path)!r} is {meta.nbytes / 1e9:.3g} GB of text; store a short JSON object in it")


def _check_has_X(names: Container[str], path: Path) -> None:
    if "X" not in names:
        raise UserError(f"{str(path)!r} holds no X; {HOW_TO_SAVE}")


def _meta(text: str, path: Path) -> dict[str, Any]:
    """The known entries, with lists as tuples."""
    where = f"meta of {str(path)!r}"
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({reason(error)}); store json.dumps({{...}}) in it") from None
    if not isinstance(meta, dict):
        raise UserError(f"{where} is {show(meta)}; it must be a JSON object such as {{'sfreq': 200}}")
    known = {key: meta[key] for key in ("sfreq", "name", "ring", "filter") if meta.get(key) is not None}
    for key, kinds, remedy in (
        ("sfreq", (int, float), "it must be a number of samples per second"),
        ("name", (str,), "it must be a string"),
        ("ring", (bool, list), RING),
    ):
        if key in known and (type(known[key]) not in kinds):
            raise UserError(f"{key} in {where} is {show(known[key])}; {remedy}")
    if not isinstance(known.get("filter"), dict):  # text describes it to readers
        known.pop("filter", None)
    filter_of(known.get("filter"), known.get("sfreq"))
    for key in ("channels", "classes", "subjects"):
        value = meta.get(key)
        if value is None:
            continue
        simple = (str,) if key == "channels" else (str, int, float, list)
        if not isinstance(value, list) or not all(isinstance(entry, simple) for entry in value):
            raise UserError(f"{key} in {where} is {show(value)}; it must be a list of names")
        known[key] = _tuples(value)
    columns = meta.get("column_labels", {})
    lists = isinstance(columns, dict) and all(isinstance(labels, list) for labels in columns.values())
    if not lists or any(type(label) not in (str, int) for labels in columns.values() for label in labels):
        raise UserError(f"column_labels in {where} is {show(columns)}; it must give the labels of each as a list")
    for name, labels in columns.items():
        check_distinct(labels, f"the labels of {show(name)} in {where}")
    return known | {"column_labels": columns}


def _tuples(value: Label) -> Label:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


def save_npz(path: str | os.PathLike[str], recordings: Recordings) -> None:
    """Write so that `load` gives the same recordings back; a file of that name is replaced in one step."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise UserError(f"{str(path)!r} does not end in .npz; choose a name that does")
    arrays = {**_arrays(recordings), "meta": np.array(_meta_text(recordings))}
    with _replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]  # the stubs take the names for savez's own options


def save_folder(path: str | os.PathLike[str], recordings: Recordings) -> None:
    """Write so that `load` gives the same recordings back, with X memory-mapped."""
    path = Path(path)
    if os.path.exists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UserError(f"{str(path)!r} exists; choose a new name: a folder is not overwritten")
    text = _meta_text(recordings)
    with _replacing(path) as temporary:
        temporary.mkdir()
        for name, array in _arrays(recordings).items():
            np.save(temporary / f"{name}.npy", array)
        (temporary / "meta.json").write_text(text, encoding="utf-8")


def _arrays(recordings: Recordings) -> dict[str, Array]:
    fields = {name: getattr(recordings, name) for name in ("X", "y", "subject", "session")}
    arrays = {name: tensor.numpy() for name, tensor in fields.items() if tensor is not None}
    return arrays | {name: column.values for name, column in recordings.columns.items()}


def _meta_text(recordings: Recordings) -> str:
    fields = ("sfreq", "channels", "classes", "subjects", "name")
    meta = {field: getattr(recordings, field) for field in fields} | {"ring": recordings.ring or False}
    for field in ("classes", "subjects"):
        for label in meta[field]:
            if not storable(label):
                raise UserError(f"{field} holds {show(label)}, which cannot be saved; use strings or numbers")
    columns = {name: column.labels for name, column in recordings.columns.items() if not column.continuous}
    if recordings.filter is not None:
        meta["filter"] = recordings.filter.as_dict()
    return json.dumps(meta | ({"column_labels": columns} if columns else {}))


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the place of `path` in one step, or vanishes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)
