"""The compiled library of C functions, and checks of addresses, sizes and indices before they are called.

setup.py compiles kernels.c once per instruction set. The library for the instruction set that PyTorch uses on this
processor is loaded. The last digits of results depend on the instruction set. `ATEN_CPU_CAPABILITY=avx2` selects it for
PyTorch and the library, for example on all workers of a cluster. Without a library, torch operations are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CDLL, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..boundary import make_tensor_error

INSTRUCTION_SETS = {"AVX512": "avx512", "AVX2": "avx2"}  # names in PyTorch, and names in setup.py


@cache
def library() -> CDLL | None:
    """Load the library of kernels for this processor; return None if there is no library."""
    try:
        return CDLL(str(Path(__file__).with_name(f"kernels_{instruction_set()}.so")))
    except OSError:
        return None


def instruction_set() -> str:
    """Return the name in setup.py of the instruction set for this processor."""
    return INSTRUCTION_SETS.get(torch.backends.cpu.get_cpu_capability(), "plain")


class Argument(NamedTuple):
    """Tensor argument of a kernel, None for an optional argument, and the shape and dtype that the kernel requires."""

    tensor: Tensor | None
    shape: Sequence[int]
    dtype: torch.dtype = torch.float32


def address(operation: str, name: str, expected: Argument) -> int:
    """Check a tensor and return its address, 0 for None; the caller must keep the tensor alive."""
    tensor, shape, dtype = expected
    if tensor is None:
        return 0
    if tensor.dtype is dtype and tensor.is_cpu and tensor.shape == shape and tensor.is_contiguous():
        return tensor.data_ptr()
    raise make_tensor_error(operation, name, tensor, shape, dtype, "cpu")


def addresses(operation: str, **tensors: Argument) -> dict[str, int]:
    """Check tensors and return their addresses by name."""
    return {name: address(operation, name, expected) for name, expected in tensors.items()}


def check_index(operation: str, name: str, index: Tensor, size: int, bound: int) -> int:
    """Check that all entries of an index (size,) int64 lie in [0, bound), and return the address of the index."""
    pointer = address(operation, name, Argument(index, (size,), torch.int64))
    outside = require_library(operation).outside
    if outside.argtypes is None:
        outside.argtypes = [c_void_p, c_long, c_long]
    if outside(pointer, size, bound):
        raise RuntimeError(f"autotransfer::{operation}: {name} has an entry outside [0, {bound})")
    return pointer


def check_sizes(operation: str, minimum: int = 1, **sizes: int) -> None:
    """Raise RuntimeError if one of the sizes is below the minimum."""
    for name, size in sizes.items():
        if size < minimum:
            raise RuntimeError(f"autotransfer::{operation}: expected {name} to be at least {minimum}, but it is {size}")


def require_library(operation: str) -> CDLL:
    """Return the library of kernels; raise RuntimeError if there is no library."""
    kernels = library()
    if kernels is None:
        raise RuntimeError(f"autotransfer::{operation}: there are no compiled kernels in this installation")
    return kernels
