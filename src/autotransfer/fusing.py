"""Elementwise work fused by torch.compile, where a program asks for it: on a GPU, in trainings that are long enough.

A fused function gives the same numbers up to rounding. One compilation serves every number of members. Without a
compiler the functions run as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

SHAPES = 64  # for which a function may be compiled; torch's own limit is lower

_asked: ContextVar[bool] = ContextVar("fusing", default=False)


@contextmanager
def fusing(asked: bool) -> Iterator[None]:
    """Inside, in this thread, functions marked `fused` are compiled when first called."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def fused(function: Callable[P, R]) -> Callable[P, R]:
    """A function of tensors with the member on axis 0, which may vary in number; all other sizes are constants."""
    quick: list[Callable[P, R]] = []  # the compiled function; the plain one where compiling it has failed

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _asked.get() or torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not quick:
            quick.append(torch.compile(function))
        try:
            for tensor in _tensors(args):
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
            with torch._dynamo.config.patch(recompile_limit=SHAPES):
                return quick[0](*args, **kwargs)
        except Exception as error:  # compilers fail in many ways
            if quick[0] is function or isinstance(error, torch.OutOfMemoryError):
                raise
            quick[0] = function
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"{function.__name__} is not compiled: {reason}", stacklevel=2)
            return function(*args, **kwargs)

    return call


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """Those among values and inside tuples of them, but for single numbers."""
    for value in values:
        if isinstance(value, tuple):
            yield from _tensors(value)
        elif isinstance(value, Tensor) and value.ndim:
            yield value
