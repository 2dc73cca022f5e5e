"""Typed calls of torch.autograd.Function."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def apply(function: type[Function], *arguments: Any) -> tuple[Tensor, ...]:
    """Call function.apply, which returns several tensors."""
    outputs: tuple[Tensor, ...] = function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's
    return outputs


def apply_one(function: type[Function], *arguments: Any) -> Tensor:
    """Call function.apply, which returns one tensor."""
    output: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's
    return output


class _WithGradient(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(grad)
        return values.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        (grad,) = ctx.saved_tensors
        return grad, None


def attach_gradient(values: Tensor, grad: Tensor) -> Tensor:
    """Return 0 with the gradient `grad` for `values`; values.backward(grad) would import torch's symbolic algebra."""
    return apply_one(_WithGradient, values, grad)
