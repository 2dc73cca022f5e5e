"""How a training step runs the encoder, forward and backward: as it is, or compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call

from ..model.eegnet import EEGNet
from ..model.encoders import Encoder
from ..model.moments import Moments
from .flat import Columns, Flat, views
from .program import quick_products

# What the compiler saves of a step by fusing its elementwise work, and what it costs, on a recent GPU.
SAVED_PER_ELEMENT, COMPILING = 60e-12, 20.0  # seconds


class Inputs(NamedTuple):
    """What a step gives the encoder beside its weights; the fields as in EEGNet.forward."""

    x: Tensor
    group: Tensor | None
    moments: Moments | None
    noise: Tensor
    drop: Tensor
    active: Tensor


class Encoding:
    """z (P, B, D) of a step, and afterwards the gradient of the encoder's parameters."""

    def __init__(self, net: Encoder, flat: Flat) -> None:
        self.net, self.flat = net, flat
        self.columns, self.stats = flat.of("encoder")

    def forward(self, inputs: Inputs) -> Tensor:
        with quick_products(inputs.x.device):
            return self._forward(inputs)

    def backward(self, z: Tensor, grad: Tensor) -> Tensor:
        """∂/∂parameters (P, n) of (z · grad).sum()."""
        with quick_products(z.device):
            return self._backward(z, grad)

    def _forward(self, inputs: Inputs) -> Tensor:
        x, *_ = inputs
        z: Tensor = self.net(x, **{name: value for name, value in inputs._asdict().items() if name != "x"})
        return z

    def _backward(self, z: Tensor, grad: Tensor) -> Tensor:
        grads = torch.autograd.grad(z, list(self.net.parameters()), grad, materialize_grads=True)
        return torch.cat([one.flatten(1) for one in grads], 1)


Step = Callable[..., tuple[Tensor, Tensor]]
_compiled: dict[tuple[object, ...], Step] = {}


class CompiledEncoding(Encoding):
    """EEGNet through torch.compile: one compilation serves every number of members and of groups.

    The weights go in as one matrix, so that their gradient comes out as one, and the running statistics come
    out new. If the compiler fails, because there is none, the encoder runs as it is.
    """

    def __init__(self, net: EEGNet, flat: Flat) -> None:
        super().__init__(net, flat)
        self.step: Step | None = _compiled_step(net, self.columns, self.stats)

    def _forward(self, inputs: Inputs) -> Tensor:
        if self.step is None:
            return super()._forward(inputs)
        self.weights = self.flat.values[:, : self.columns[-1].stop].detach().requires_grad_()
        x, group, moments, noise, drop, active = inputs
        assert moments is not None
        tensors = [self.weights, self.flat.stats, x, group, moments.mean, moments.covariance, noise, drop, active]
        for tensor in tensors:
            if tensor is not None:
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        try:
            z, stats = self.step(*tensors, moments.positions)
        except Exception as error:  # compilers fail in many ways
            if isinstance(error, torch.OutOfMemoryError):
                raise
            warnings.warn(f"the encoder is not compiled: {str(error).strip().splitlines()[0]}", stacklevel=2)
            self.step = None
            return super()._forward(inputs)
        with torch.no_grad():
            self.flat.stats.copy_(stats)
        return z

    def _backward(self, z: Tensor, grad: Tensor) -> Tensor:
        if self.step is None:
            return super()._backward(z, grad)
        (gradient,) = torch.autograd.grad(z, self.weights, grad)
        return gradient


def _compiled_step(net: EEGNet, columns: list[Columns], stats: list[Columns]) -> Step:
    """(weights (P, n), stats (P, m), inputs …) -> z and the new stats; one for all networks of a shape."""
    key = (*net.shape, tuple(columns))
    if key not in _compiled:
        skeleton = net.skeleton().train()

        def step(
            weights: Tensor, running: Tensor, x: Tensor, group: Tensor | None, mean: Tensor, covariance: Tensor,
            noise: Tensor, drop: Tensor, active: Tensor, positions: int,
        ) -> tuple[Tensor, Tensor]:  # fmt: skip
            moved = {name: view.clone() for name, view in views(running, stats).items()}
            inputs = Inputs(x, group, Moments(mean, covariance, positions), noise, drop, active)._asdict()
            z = functional_call(skeleton, (views(weights, columns), moved), (inputs.pop("x"),), inputs)
            return z, torch.cat([moved[c.name].flatten(1) for c in stats], 1)

        _compiled[key] = torch.compile(step)
    return _compiled[key]


def encoding_for(net: Encoder, flat: Flat, *, elements: float) -> Encoding:
    """elements: of signal, (filters × batch × times), that all members together will work through in training."""
    worth = elements * SAVED_PER_ELEMENT > COMPILING
    if isinstance(net, EEGNet) and flat.values.device.type == "cuda" and worth:
        return CompiledEncoding(net, flat)
    return Encoding(net, flat)
