"""Files of Triton kernels, imported where Triton is; and their rehearsal: compiled side by side before they run.

A kernel is compiled when it is first launched, half a second each, one after the other. In a rehearsal of a training
step launches come to nothing but compiling, in as many threads as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

_rehearsal: _Rehearsal | None = None


@cache
def _file(name: str) -> Any:
    try:
        return import_module(f".{name}", __package__)
    except ImportError:
        return None


def loaded(name: str) -> Any:
    """The kernels of a file, to be launched as `loaded("pair_kernels").medians[grid](...)`; None without Triton."""
    found = _file(name)
    return found if found is None or _rehearsal is None else _Rehearsed(found, _rehearsal)


@contextmanager
def rehearsing(device: torch.device) -> Iterator[None]:
    """Inside, kernels are compiled in place of being run: their results are whatever is in new memory, and what is
    computed from them means nothing. Kernels that cannot be compiled say so when they are launched."""
    global _rehearsal
    there = partial(torch.cuda.set_device, device) if device.type == "cuda" else None
    with ThreadPoolExecutor(os.cpu_count(), initializer=there) as threads:
        _rehearsal = _Rehearsal(threads)
        try:
            yield
        finally:
            _rehearsal = None


class _Rehearsal:
    """What has been asked for; every kind of launch is compiled once."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.threads = threads
        self.known: dict[object, Future[object]] = {}

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        key = (kernel, *map(_kind, arguments), *options.items())
        if key not in self.known:
            self.known[key] = self.threads.submit(_compile, kernel, grid, arguments, options)


def _kind(argument: object) -> object:
    """What Triton compiles anew for: it looks at the last bits of addresses and whole numbers."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, abs(argument) < 2**31
    return type(argument)


def _compile(kernel: Any, grid: tuple[int, ...], arguments: tuple[object, ...], options: dict[str, object]) -> object:
    compiled = kernel.warmup(*arguments, grid=grid, **options)
    return compiled.run  # what launches it is compiled too


class _Rehearsed:
    """A file of kernels whose launches are rehearsed."""

    def __init__(self, file: Any, rehearsal: _Rehearsal) -> None:
        self.file, self.rehearsal = file, rehearsal

    def __getattr__(self, name: str) -> _Part:
        return _Part(getattr(self.file, name), self.rehearsal)


class _Part:
    def __init__(self, kernel: Any, rehearsal: _Rehearsal) -> None:
        self.kernel, self.rehearsal = kernel, rehearsal

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self.rehearsal.launch, self.kernel, grid)
