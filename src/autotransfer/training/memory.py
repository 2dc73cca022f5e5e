"""Running out of memory: how it shows, and what is said when nothing smaller can be tried."""

from __future__ import annotations

import torch

from ..errors import UserError

# The words of allocators, and of CUDA's libraries, which have no memory left for a workspace of their own.
WORDS = ("allocate memory", "out of memory", "alloc_failed", "cublascreate", "cusolverdncreate")


def out_of_memory(error: BaseException) -> bool:
    """Whether this is a device's, the allocator's or Python's way of saying that there is no memory left."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in text for words in WORDS)


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def no_room(reason: str) -> UserError:
    return UserError(f"not even one training fits into memory ({reason}); use a smaller batch_size or shorter windows")
