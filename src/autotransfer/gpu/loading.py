"""Import of Triton kernels, and launches that check tensors, because kernels do not check addresses.

The values of index tensors are not checked, because the host would have to wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..boundary import make_tensor_error

# The first launch of a kernel compiles it and imports a launcher. Up to Triton 3.6 all launchers share one module name,
# so if two threads import launchers at the same time, a thread may get the launcher of the other thread.
_launch_lock = Lock()


@cache
def _import_kernels(name: str) -> Any:
    try:
        return import_module(f".{name}", __package__)
    except ImportError:
        return None


def load_kernels(name: str) -> Any:
    """Return the kernels of a module, launched as `load_kernels(module).kernel[grid](...)`; None without Triton."""
    module = _import_kernels(name)
    return None if module is None else _Kernels(module)


# Memory layouts that a kernel accepts
COPIED = "any: a contiguous copy is passed"
CONTIGUOUS = "contiguous: the kernel writes to the tensor, or the tensor is too large for copies"
STRIDED = "any: the kernel receives the strides"


class Argument(NamedTuple):
    """Tensor argument of a kernel, and the shape, dtype and layout that the kernel requires."""

    tensor: Tensor
    shape: Sequence[int]
    dtype: torch.dtype = torch.float32
    layout: str = COPIED

    def check(self, operation: str, name: str, device: torch.device) -> Tensor:
        """Return the tensor to pass, with bool as uint8; raise RuntimeError if it differs from the requirements."""
        tensor, shape, dtype, layout = self
        has_layout = layout in (COPIED, STRIDED) or tensor.is_contiguous()
        if tensor.dtype is not dtype or tensor.device != device or tensor.shape != tuple(shape) or not has_layout:
            raise make_tensor_error(operation, name, tensor, shape, dtype, device)
        tensor = tensor.contiguous() if layout == COPIED else tensor
        return tensor.view(torch.uint8) if dtype is torch.bool else tensor


class _Kernels:
    """Kernels of a module, with checked launches."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> _Kernel:
        return _Kernel(name, getattr(self.module, name))


class _Kernel:
    def __init__(self, name: str, kernel: Any) -> None:
        self.name, self.kernel = name, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, self.kernel[grid])

    def _launch(self, launch: Callable[..., None], *arguments: object, **options: object) -> None:
        """Check all tensors, which must be on the device of the first tensor, and launch the kernel."""
        device = next((arg.tensor.device for arg in arguments if isinstance(arg, Argument)), torch.device("cpu"))
        names = self.kernel.arg_names[: len(arguments)]  # constants are options
        named = zip(names, arguments, strict=True)
        checked = (arg.check(self.name, name, device) if isinstance(arg, Argument) else arg for name, arg in named)
        with _launch_lock:
            launch(*checked, **options)
