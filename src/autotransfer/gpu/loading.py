"""Import of Triton kernels and their checked launch.

The tensors of a launch are checked, because a kernel trusts addresses. Indices are not checked, because the host would
have to wait for the GPU; the trainer makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..boundary import refusal

# A kernel's first launch compiles it and imports a launcher. Up to Triton 3.6 all launchers share one module name, so
# two threads that import launchers at the same time may call each other's.
_loading = Lock()


@cache
def _file(name: str) -> Any:
    try:
        return import_module(f".{name}", __package__)
    except ImportError:
        return None


def load_kernels(name: str) -> Any:
    """Return the kernels of a file, launched as `load_kernels(file).kernel[grid](...)`; None without Triton."""
    file = _file(name)
    return None if file is None else _Kernels(file)


# Memory layouts that a kernel accepts.
COPIED = "any: a copy is contiguous"
CONTIGUOUS = "contiguous: the tensor is written to, or too large for copies"
STRIDED = "any: the kernel receives the strides"


class Argument(NamedTuple):
    """Tensor argument of a kernel with its required shape, dtype and layout; a mask is passed as bytes."""

    tensor: Tensor
    shape: Sequence[int]
    dtype: torch.dtype = torch.float32
    layout: str = COPIED

    def checked(self, operation: str, name: str, device: torch.device) -> Tensor:
        tensor, shape, dtype, layout = self
        has_layout = layout in (COPIED, STRIDED) or tensor.is_contiguous()
        if tensor.dtype is not dtype or tensor.device != device or tensor.shape != tuple(shape) or not has_layout:
            raise refusal(operation, name, tensor, shape, dtype, device)
        tensor = tensor.contiguous() if layout == COPIED else tensor
        return tensor.view(torch.uint8) if dtype is torch.bool else tensor


class _Kernels:
    """Kernels of a file with checked launches."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> _Kernel:
        return _Kernel(name, getattr(self.file, name))


class _Kernel:
    def __init__(self, name: str, kernel: Any) -> None:
        self.name, self.kernel = name, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, self.kernel[grid])

    def _launch(self, launch: Callable[..., None], *arguments: object, **options: object) -> None:
        """Check that all tensors are on the device of the first one, and launch."""
        device = next((one.tensor.device for one in arguments if isinstance(one, Argument)), torch.device("cpu"))
        names = self.kernel.arg_names[: len(arguments)]  # constants are options
        pairs = zip(names, arguments, strict=True)
        checked = (one.checked(self.name, name, device) if isinstance(one, Argument) else one for name, one in pairs)
        with _loading:
            launch(*checked, **options)
