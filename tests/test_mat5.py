"""MATLAB files: SciPy writes them, and what comes out is what went in."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from autotransfer.recordings import mat5


def stored(variables: dict[str, Any], compressed: bool) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, variables, do_compression=compressed)
    return buffer.getvalue()


def read(content: bytes) -> dict[str, Any]:
    return {variable.name: variable.values() for variable in mat5.variables(content)}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ">f8", ">i4"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (2, 3, 5), (1, 9), (7, 1), (0, 4)])
def test_numbers(kind: str, shape: tuple[int, ...], compressed: bool) -> None:
    array = np.random.default_rng(0).integers(0, 2 if kind == "?" else 100, shape).astype(kind)
    content = stored({"before": 1.0, "x" * 31: array, "after": np.arange(4.0)}, compressed)
    found = read(content)
    assert list(found) == ["before", "x" * 31, "after"]
    np.testing.assert_array_equal(found["x" * 31], loadmat(io.BytesIO(content))["x" * 31])
    np.testing.assert_array_equal(found["after"], [[0, 1, 2, 3]])
    assert {v.name: v.shape for v in mat5.variables(content)}["x" * 31] == shape


@pytest.mark.parametrize("compressed", [False, True])
def test_texts(compressed: bool) -> None:
    found = read(stored({"a": "hello", "b": ["Fz", "Pz"], "c": np.array(["µ", 3.0, "xyz"], object)}, compressed))
    assert found["a"].tolist() == ["hello"]
    assert [text.strip() for text in found["b"]] == ["Fz", "Pz"]
    assert [entry.ravel().tolist() for entry in found["c"].ravel()] == [["µ"], [3.0], ["xyz"]]


def test_other_byte_order() -> None:
    """One variable, 2×1 doubles 1 and 2, written by hand as a big-endian machine does."""
    values = np.array([1.0, 2.0], ">f8").tobytes()
    body = np.array([6, 8, 6, 0, 5, 8, 2, 1], ">u4").tobytes()  # flags: a double; shape (2, 1)
    body += np.array([(1 << 16) | 1], ">u4").tobytes() + b"v\0\0\0"  # the name, within its tag
    body += np.array([9, 16], ">u4").tobytes() + values
    content = b"MATLAB".ljust(124) + b"\x01\x00MI" + np.array([14, len(body)], ">u4").tobytes() + body
    np.testing.assert_array_equal(read(content)["v"], [[1.0], [2.0]])


@pytest.mark.parametrize("value", [np.array([[1 + 2j]]), {"field": 1.0}])
def test_what_is_neither_numbers_nor_texts(value: Any) -> None:
    content = stored({"v": value, "w": 5.0}, True)
    with pytest.raises(ValueError, match="neither real numbers nor texts"):
        read(content)
    assert [variable.name for variable in mat5.variables(content)] == ["v", "w"]  # the others can be had


def test_lies_are_seen_before_memory_is_asked_for() -> None:
    content = bytearray(stored({"v": np.zeros((4, 4))}, False))
    place = content.index(np.array([4, 4], "<i4").tobytes())
    content[place : place + 8] = np.array([2**30, 2**30], "<i4").tobytes()
    with pytest.raises(ValueError, match="16 values in an array of shape"):
        read(bytes(content))
    for damage in (b"", b"no MATLAB file", bytes(content[:200])):
        with pytest.raises(ValueError, match=r"no MATLAB file|are promised"):
            read(damage)
