"""Files of Triton kernels, imported where Triton is, and the one place where kernels are launched.

Before a launch its tensors are checked: a kernel trusts addresses. Indices are not, which would make the host wait for
the GPU: rows of windows and numbers of groups are made by the trainer. A kernel is compiled when it is first launched,
half a second each, one after the other. While a step is precompiled, launches come to nothing but compiling, in as many
threads as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..boundary import refusal

_precompiling: ContextVar[Precompiled | None] = ContextVar("precompiling", default=None)
# Held while what launches a kernel may be loaded: up to Triton 3.6 a module of its own, each of them under one name.
# Python then puts the contents of one that it has loaded before into whichever module has that name at the moment, so
# that of two threads one would launch its kernel by the other's launcher.
_loading = Lock()


@cache
def _file(name: str) -> Any:
    try:
        return import_module(f".{name}", __package__)
    except ImportError:
        return None


def loaded(name: str) -> Any:
    """The kernels of a file, to be launched as `loaded("pair_kernels").medians[grid](...)`; None without Triton."""
    file = _file(name)
    return None if file is None else _Kernels(file)


@contextmanager
def precompiling(device: torch.device) -> Iterator[Precompiled]:
    """Inside, in this thread, kernels are compiled in place of being run: their results are whatever is in new memory,
    and what is computed from them means nothing. At the end all are compiled; `failure` says why one could not be."""
    there = None
    if device.type == "cuda":  # "cuda" alone is the current device of this thread, which the others do not share
        there = partial(torch.cuda.set_device, torch.cuda.current_device() if device.index is None else device.index)
    with ThreadPoolExecutor(os.cpu_count(), initializer=there) as threads:
        precompiled = Precompiled(threads)
        token = _precompiling.set(precompiled)
        try:
            yield precompiled
        finally:
            _precompiling.reset(token)


class Precompiled:
    """Launches to compile, each kind once."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.known: dict[object, Future[object]] = {}

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        key = (kernel, *map(_kind, arguments), *options.items())
        if key not in self.known:
            self.known[key] = self.threads.submit(_compile, kernel, grid, arguments, options)

    def failure(self) -> BaseException | None:
        """Of the first kernel that could not be compiled; waits for all of them."""
        failures = [future.exception() for future in self.known.values()]
        return next((failure for failure in failures if failure is not None), None)


def _kind(argument: object) -> object:
    """Triton compiles a kernel for each of these: it looks at the last bits of addresses and whole numbers."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, abs(argument) < 2**31
    return type(argument)


def _compile(kernel: Any, grid: tuple[int, ...], arguments: tuple[object, ...], options: dict[str, object]) -> object:
    compiled = kernel.warmup(*arguments, grid=grid, **options)
    with _loading:
        return compiled.run


def _launch(launch: Callable[..., None], *arguments: object, **options: object) -> None:
    """A launch outside of precompiling: the first of its kind compiles and loads, too."""
    with _loading:
        launch(*arguments, **options)


# How a tensor that a kernel is given may lie in memory.
COPIED = "as it likes: a copy is contiguous"
CONTIGUOUS = "contiguous: it is written to, or too large for copies"
ROWS = "rows contiguous each: the kernel knows how far apart they are"
STRIDED = "as it likes: the kernel knows its strides"


class Given(NamedTuple):
    """A tensor that a launcher was given, and the shape and type that its kernel expects. Tensors that the launcher has
    made itself are passed without it. Masks are handed over as bytes."""

    tensor: Tensor
    shape: Sequence[int]
    dtype: torch.dtype = torch.float32
    layout: str = COPIED

    def checked(self, operation: str, name: str, device: torch.device) -> Tensor:
        tensor, shape, dtype, layout = self
        lies_well = (
            layout in (COPIED, STRIDED)
            or tensor.is_contiguous()
            or (layout == ROWS and (tensor.stride(-1) == 1 or tensor.shape[-1] == 1))
        )
        if tensor.dtype is not dtype or tensor.device != device or tensor.shape != tuple(shape) or not lies_well:
            raise refusal(operation, name, tensor, shape, dtype, device)
        tensor = tensor.contiguous() if layout == COPIED else tensor
        return tensor.view(torch.uint8) if dtype is torch.bool else tensor


class _Kernels:
    """A file of kernels whose launches are checked."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> _Kernel:
        return _Kernel(name, getattr(self.file, name))


class _Kernel:
    def __init__(self, name: str, kernel: Any) -> None:
        self.name, self.kernel = name, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        precompiled = _precompiling.get()
        if precompiled is None:
            return partial(self._checked, partial(_launch, self.kernel[grid]))
        return partial(self._checked, partial(precompiled.launch, self.kernel, grid))

    def _checked(self, launch: Callable[..., None], *arguments: object, **options: object) -> None:
        """All tensors are where the first of them is."""
        device = next((one.tensor.device for one in arguments if isinstance(one, Given)), torch.device("cpu"))
        names = self.kernel.arg_names[: len(arguments)]  # constants are options
        pairs = zip(names, arguments, strict=True)
        checked = (one.checked(self.name, name, device) if isinstance(one, Given) else one for name, one in pairs)
        launch(*checked, **options)
