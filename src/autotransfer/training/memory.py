"""Recognition of memory errors, and messages for the user."""

from __future__ import annotations

import torch

from ..errors import UserError

# Parts of the messages of allocators, and of CUDA libraries that cannot allocate a workspace
MESSAGES = ("allocate memory", "out of memory", "alloc_failed", "cublascreate", "cusolverdncreate")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device, an allocator or Python ran out of memory."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(part in text for part in MESSAGES)


def first_line(error: BaseException) -> str:
    """Return the first line of an error message, or the type of an error without a message."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def make_memory_error(reason: str) -> UserError:
    """Return the error to raise if a single fit does not fit into memory."""
    return UserError(f"a single fit does not fit into memory ({reason}); reduce batch_size or shorten the windows")
