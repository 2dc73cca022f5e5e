"""The boundary to compiled code. A kernel trusts addresses and sizes; all that it reads or writes is checked before.

What does not fit is refused as torch refuses arguments of its operations: with a RuntimeError that names operation,
tensor and difference. A check takes less than a microsecond a tensor. `cpu/boundary` hands addresses to C functions,
`gpu/loading` launches Triton kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def refusal(
    operation: str, name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> RuntimeError:
    """Return the error for a tensor that is not the contiguous one that a kernel expects."""
    is_given = f"{_words(tensor.dtype, tensor.shape)} on {tensor.device}"
    is_there = tensor.device.type == torch.device(device).type
    if is_there and tensor.layout is torch.strided and not tensor.is_contiguous():
        is_given += ", not contiguous"
    wanted = f"{_words(dtype, shape)} on {device}, contiguous"
    return RuntimeError(f"autotransfer::{operation}: expected {name} to be {wanted}, but it is {is_given}")


def _words(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"
