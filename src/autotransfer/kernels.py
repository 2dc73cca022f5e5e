"""The kernels for a tensor's device, if there are any. Otherwise the plain code serves, which is also their oracle."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from . import cpu, gpu
from .cpu.boundary import instruction_set, library
from .gpu import Dropping


class Kernels(Protocol):
    """Functions that both devices have; `gpu` describes them."""

    def norm_pool_forward(
        self, v: Tensor, gamma: Tensor, beta: Tensor, dropping: Dropping, times: int, pool: int, eps: float,
        squared: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]: ...  # fmt: skip

    def norm_pool_backward(
        self, grad: Tensor, grad_squares: Tensor | None, v: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor,
        beta: Tensor, dropping: Dropping, times: int, pool: int, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip

    def product(self, a: Tensor, b: Tensor, group: Tensor | None = None) -> Tensor: ...

    def correlate(self, x: Tensor, w: Tensor, left: int, *, flipped: bool = False) -> Tensor: ...

    def correlate_gradient(self, x: Tensor, grad: Tensor, kernel: int, left: int) -> Tensor: ...


def description() -> str:
    """Return what computes on a CPU. The last digits of weights depend on it."""
    return "none (torch computes)" if library() is None else f"compiled ({instruction_set()})"


def kernels_for(signal: Tensor, *, pool: int = 1, taps: int = 1) -> Kernels | None:
    """Return the kernels for a signal; None: there are none. pool: neighbors that are averaged; taps: of filters."""
    if gpu.available(signal):
        return gpu
    return cpu if cpu.available(signal, pool=pool, taps=taps) else None
