"""MATLAB files of versions 5 to 7: arrays of numbers and texts, and cell arrays of these.

Read here and not with SciPy, whose reader ends the process (a segmentation fault) on some damaged files.
A file is a header of 128 bytes and elements: a kind, a size, and so many bytes. A variable is an element that
holds elements: flags, shape, name, values. It may lie compressed in another one.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .npy import DEFLATE_LIMIT

Array = np.ndarray[Any, Any]

HEADER = 128
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED, UTF8 = 14, 15, 16
CELL, CHARACTERS, NUMERIC = 1, 4, range(6, 16)  # classes of arrays
COMPLEX = 0x800  # a flag beside the class
PREVIEW = 4096  # bytes that surely hold flags, shape and name


class Variable(NamedTuple):
    """One variable of a file, its values not yet unpacked."""

    name: str
    shape: tuple[int, ...]
    content: memoryview  # of the element, still compressed or not
    compressed: bool
    order: str  # < or >

    def values(self) -> Array:
        body = _inflated(self.content, self.order) if self.compressed else self.content
        return _array(body, self.order)


def variables(content: bytes) -> Iterator[Variable]:
    """What the bytes of a file hold; a ValueError, or one of zlib's, where they are damaged."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:HEADER])
    if order is None:
        raise ValueError("no MATLAB file of version 5 or later")
    for kind, body in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            start = memoryview(zlib.decompressobj().decompress(body, PREVIEW))[8:]
            yield Variable(*_head(start, order)[:2], body, True, order)
        elif kind == MATRIX:
            yield Variable(*_head(body, order)[:2], body, False, order)


def _elements(view: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Kind and bytes of each."""
    place = 0
    while place < len(view):
        kind, size, start = _tag(view, place, order)
        if start + size > len(view):
            raise ValueError(f"{size} bytes are promised, {len(view) - start} are there")
        yield kind, view[start : start + size]
        place = start + size
        if kind != COMPRESSED:
            place += -place % 8  # elements begin at multiples of 8


def _tag(view: memoryview, place: int, order: str) -> tuple[int, int, int]:
    """Kind, size and where the bytes begin; up to 4 bytes lie in the tag itself."""
    if place + 8 > len(view):
        raise ValueError("cut short")
    first, second = struct.unpack_from(f"{order}II", view, place)
    if first >> 16:
        return first & 0xFFFF, min(first >> 16, 4), place + 4
    return first, second, place + 8


def _head(body: memoryview, order: str) -> tuple[str, tuple[int, ...], int, memoryview]:
    """Name, shape and flags of a variable, and what follows: its values."""
    fields, place = [], 0
    for _ in range(3):
        _, size, start = _tag(body, place, order)
        fields.append(bytes(body[start : start + size]))
        place = start + size + -(start + size) % 8
    flags, shape, name = fields
    lengths = struct.unpack(f"{order}{len(shape) // 4}i", shape)
    if len(flags) != 8 or len(lengths) < 2 or min(lengths) < 0:
        raise ValueError(f"an array of shape {lengths}")
    return name.decode("latin-1"), lengths, struct.unpack_from(f"{order}I", flags)[0], body[place:]


def _inflated(content: memoryview, order: str) -> memoryview:
    """The variable inside a compressed element."""
    _, size, start = _tag(memoryview(zlib.decompressobj().decompress(content, 8)), 0, order)
    if size > DEFLATE_LIMIT * len(content):
        raise ValueError(f"{size} bytes cannot come out of {len(content)}")
    return memoryview(zlib.decompress(content))[start : start + size]


def _array(body: memoryview, order: str) -> Array:
    """Numbers as they are stored, perhaps in a smaller type than MATLAB's; texts as an array of str."""
    _, shape, flags, rest = _head(body, order)
    parts = _elements(rest, order)
    kind = flags & 0xFF
    if kind == CELL:
        cells = [_array(part, order) for _, part in parts]
        array = np.empty(len(cells), object)
        array[:] = cells
    elif kind == CHARACTERS:
        stored, part = next(parts, (UTF8, memoryview(b"")))
        if stored == UTF8:
            array = np.array(list(bytes(part).decode("utf-8")), "U1")
        else:
            array = np.array([chr(code) for code in np.frombuffer(part, order + NUMBERS.get(stored, "u2"))], "U1")
        letters = array.reshape(shape, order="F") if array.size == math.prod(shape) else array[None]
        return np.array(["".join(row) for row in letters.reshape(len(letters), -1)])
    elif kind in NUMERIC and not flags & COMPLEX:
        stored, part = next(parts, (9, memoryview(b"")))
        if stored not in NUMBERS:
            raise ValueError(f"numbers of the unknown kind {stored}")
        array = np.frombuffer(part, order + NUMBERS[stored])
    else:
        raise ValueError("values that are neither real numbers nor texts")
    if array.size != math.prod(shape):
        raise ValueError(f"{array.size} values in an array of shape {shape}")
    return array.reshape(shape, order="F")
