"""The kernels for a tensor's device, if there are any. Otherwise the plain code serves, which is also their oracle."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from . import cpu, gpu
from .cpu.boundary import instruction_set, library


def description() -> str:
    """Return what computes on a CPU. The last digits of weights depend on it."""
    return "none (torch computes)" if library() is None else f"compiled ({instruction_set()})"


def kernels_for(signal: Tensor, *, pool: int = 1, taps: int = 1) -> ModuleType | None:
    """Return the module with the kernels for a signal: `gpu` or `cpu`, whose functions have the same names. None if
    there are no kernels. pool: neighbors that are averaged; taps: of filters."""
    if gpu.available(signal):
        return gpu
    return cpu if cpu.available(signal, pool=pool, taps=taps) else None
