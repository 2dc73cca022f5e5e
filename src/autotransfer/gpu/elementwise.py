"""Launchers of elementwise kernels. Each kernel replaces ten or more operations of torch."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from . import is_available as has_kernels
from .loading import CONTIGUOUS, Argument, load_kernels

_BLOCK = 256
_kernels = partial(load_kernels, "elementwise_kernels")


def is_available(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Return whether elementwise kernels can replace torch operations on a tensor.

    torch.compile, torch.func and subclasses of Tensor need torch operations.
    """
    return (
        not torch.compiler.is_compiling()  # first, because torch.compile cannot trace the other conditions
        and has_kernels(tensor, dtype)
        and type(tensor) in (Tensor, torch.nn.Parameter)
        and torch._C._functorch.peek_interpreter_stack() is None  # for example vmap
    )


def fold_in(keys: Tensor, values: Tensor | int) -> Tensor:
    """Compute randomness.fold_in of int32 keys and integers, which are broadcast."""
    if isinstance(values, int):
        return _launch_fold_in(keys, keys, values, -1)
    is_scalar = values.numel() == 1
    keys, broadcast = torch.broadcast_tensors(keys, values)  # type: ignore[no-untyped-call]  # torch's
    return _launch_fold_in(keys, values if is_scalar else broadcast, 0, 0 if is_scalar else 1)


def _launch_fold_in(keys: Tensor, values: Tensor, number: int, stride: int) -> Tensor:
    out = torch.empty_like(keys, memory_format=torch.contiguous_format)
    _kernels().fold_in[(-(-keys.numel() // _BLOCK),)](
        Argument(keys, keys.shape, torch.int32), Argument(values, values.shape, values.dtype), out, keys.numel(),
        number, STRIDE=stride, BLOCK=_BLOCK,
    )  # fmt: skip
    return out


def bits(keys: Tensor, n: int) -> Tensor:
    """Compute randomness.bits: (...,) -> (..., n) int32."""
    out = torch.empty(*keys.shape, n, dtype=torch.int32, device=keys.device)
    if out.numel():
        block = 4 * _BLOCK
        grid = keys.numel(), -(-n // block)
        _kernels().bits[grid](Argument(keys, keys.shape, torch.int32), out, n, BLOCK=block)
    return out


def adamw(
    values: Tensor, first: Tensor, second: Tensor, steps: Tensor, grads: Tensor, lr: Tensor, weight_decay: Tensor,
    active: Tensor, betas: tuple[float, float], eps: float,
) -> None:  # fmt: skip
    """Compute training.optimizer.update in place."""
    members, n = values.shape
    block = 4 * _BLOCK
    _kernels().adamw[(members, -(-n // block))](
        *(Argument(tensor, (members, n), layout=CONTIGUOUS) for tensor in (values, first, second)),
        Argument(steps, (members,), torch.float64), Argument(grads, (members, n)), Argument(lr, (members,)),
        Argument(weight_decay, (members,)), Argument(active, (members,), torch.bool),
        n, LOG_1=math.log(betas[0]), LOG_2=math.log(betas[1]), BETA_1=betas[0], BETA_2=betas[1], EPS=eps,
        BLOCK=block,
    )  # fmt: skip
