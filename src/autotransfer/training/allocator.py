"""Allocator settings under which the process keeps freed memory while a population trains.

All steps need temporary tensors of the same sizes. If the allocator returned this memory to the system, every step
would cause page faults, which take as long as the arithmetic in large stacks. This module configures glibc (torch on
x86). `cli.main` configures mimalloc (torch on ARM), which reads its settings when it is loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Names and numbers of parameters of mallopt in malloc.h
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NO_TRIMMING = -1  # value of TRIM_THRESHOLD
# glibc's largest dynamic threshold and its default number of mapped blocks
LARGEST_THRESHOLD, DEFAULT_MMAP_MAX = 2**25, 2**16

_n_training = 0  # number of populations that train in this process


@cache
def _find_glibc() -> Any:
    """Return the C library if it is glibc and no environment variable configures its allocator."""
    is_configured = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if sys.platform != "linux" or is_configured:
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process inside this context, and return it to the system at the end."""
    global _n_training
    library = _find_glibc()
    if library is None:
        yield
        return
    _n_training += 1
    library.mallopt(MMAP_MAX, 0)  # no separately mapped blocks, which would be unmapped when they are freed
    library.mallopt(TRIM_THRESHOLD, NO_TRIMMING)
    try:
        yield
    finally:
        _n_training -= 1
        if not _n_training:
            library.mallopt(MMAP_MAX, DEFAULT_MMAP_MAX)
            library.mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)
            library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_THRESHOLD)
            library.malloc_trim(0)
