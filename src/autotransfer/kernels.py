"""Selection of compiled kernels for a tensor. Without kernels torch computes the same results."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from . import cpu, gpu
from .cpu.boundary import instruction_set, library


def description() -> str:
    """Return the name of the kernels for the CPU, on which the last digits of weights depend."""
    return "none (torch computes)" if library() is None else f"compiled ({instruction_set()})"


def kernels_for(signal: Tensor, *, pool: int = 1, taps: int = 1) -> ModuleType | None:
    """Return the module with kernels for a signal, `gpu` or `cpu`; None if no kernels are available.

    pool: width of average pooling; taps: length of filters
    """
    if gpu.is_available(signal):
        return gpu
    return cpu if cpu.is_available(signal, pool=pool, taps=taps) else None
