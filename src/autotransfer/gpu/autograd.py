"""torch.autograd.Function with types."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def apply(function: type[Function], *arguments: Any) -> Any:
    """Call function.apply, which torch leaves without types."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch's


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
    """Return a number whose gradient for `values` is `grad`. torch takes a gradient to begin with as well, but imports
    its symbolic algebra for it, which is half of the first fit."""
    number: Tensor = apply(_WithGradient, values, grad)
    return number
