"""Memory that a step frees is kept for the next step, for as long as a population trains.

A step's temporaries are as large as those of the step before. An allocator that returns them to the system gets them
again page by page, and every page costs a fault: with large stacks that took as long as the arithmetic. glibc (torch on
x86) is configured here. torch for ARM brings mimalloc, which is configured when it is loaded, only in the processes of
our own commands: see `cli.main`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Parameters of mallopt, as malloc.h has them.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER = -1
# What glibc comes to by itself at most, and how many blocks it maps by default.
LARGEST_THRESHOLD, MAPPED = 2**25, 2**16

_training = 0  # populations in this process


@cache
def _glibc() -> Any:
    """Return the C library if it is glibc and no variable of the environment configures its memory."""
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if sys.platform != "linux" or chosen:
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory in the process inside this context; what is free at the end goes back to the system."""
    global _training
    library = _glibc()
    if library is None:
        yield
        return
    _training += 1
    library.mallopt(MMAP_MAX, 0)  # no block has a mapping of its own, which would end with the block
    library.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        _training -= 1
        if not _training:
            library.mallopt(MMAP_MAX, MAPPED)
            library.mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)
            library.mallopt(TRIM_THRESHOLD, 2 * LARGEST_THRESHOLD)
            library.malloc_trim(0)
