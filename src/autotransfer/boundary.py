"""The RuntimeError for a tensor that a compiled kernel does not accept.

Compiled kernels do not check addresses and sizes, so `cpu/boundary` and `gpu/loading` check tensors before each call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def make_tensor_error(
    operation: str, name: str, tensor: Tensor, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> RuntimeError:
    """Return the error for a tensor whose shape, type, device or layout a kernel does not accept."""
    actual = f"{_describe(tensor.dtype, tensor.shape)} on {tensor.device}"
    same_device = tensor.device.type == torch.device(device).type
    if same_device and tensor.layout is torch.strided and not tensor.is_contiguous():
        actual += ", not contiguous"
    expected = f"{_describe(dtype, shape)} on {device}, contiguous"
    return RuntimeError(f"autotransfer::{operation}: expected {name} to be {expected}, but it is {actual}")


def _describe(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"
