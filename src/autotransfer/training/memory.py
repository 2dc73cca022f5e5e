"""Running out of memory: how to recognize it, and the error where nothing smaller can be tried."""

from __future__ import annotations

import torch

from ..errors import UserError

# Parts of the messages of allocators and of CUDA's libraries that found no memory for a workspace.
MESSAGES = ("allocate memory", "out of memory", "alloc_failed", "cublascreate", "cusolverdncreate")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a device, the allocator or Python has no memory left."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(part in text for part in MESSAGES)


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def make_memory_error(reason: str) -> UserError:
    return UserError(f"not even one fit fits into memory ({reason}); use a smaller batch_size or shorter windows")
