"""Elementwise work fused by torch.compile, where a program asks for it: on a GPU, in trainings that are long enough.

A fused function gives the same numbers up to rounding. One compilation serves every number of members. Where no
compiler is to be had the functions run as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_asked = False


@contextmanager
def fusing(asked: bool) -> Iterator[None]:
    """Inside, functions marked `fused` are compiled when first called."""
    global _asked
    before, _asked = _asked, asked
    try:
        yield
    finally:
        _asked = before


def fused(function: Callable[P, R]) -> Callable[P, R]:
    quick: list[Callable[P, R]] = []  # the compiled function; the plain one where compiling it has failed

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _asked or torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if not quick:
            quick.append(torch.compile(function, dynamic=True))
        try:
            return quick[0](*args, **kwargs)
        except Exception as error:  # compilers fail in many ways
            if quick[0] is function or isinstance(error, torch.OutOfMemoryError):
                raise
            quick[0] = function
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"{function.__name__} is not compiled: {reason}", stacklevel=2)
            return function(*args, **kwargs)

    return call
