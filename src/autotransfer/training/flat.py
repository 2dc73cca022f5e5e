"""All parameters of a stacked module as one matrix: (P, n), with the member on axis 0.

Optimiser steps, best snapshots, checkpoints and the leaving of members are then single operations on
whole rows. The module's own parameters and buffers become views of the matrices, so it runs as before.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Flat:
    """Views of one or more stacked modules' parameters and floating buffers."""

    values: Tensor  # (P, n) parameters
    stats: Tensor  # (P, m) floating buffers, such as running statistics

    def __init__(self, **modules: nn.Module) -> None:
        self.modules = modules
        parameters = [parameter.detach() for _, _, _, parameter in self._slots("_parameters")]
        buffers = [buffer for _, _, _, buffer in self._slots("_buffers")]
        self.values = torch.cat([tensor.flatten(1) for tensor in parameters], 1)
        members = self.values.shape[0]
        self.stats = torch.cat([self.values.new_empty(members, 0), *(t.reshape(members, -1) for t in buffers)], 1)
        self._point()

    def _slots(self, kind: str) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
        """(full name, owner, attribute, tensor) of every parameter or floating buffer, in a fixed order."""
        for prefix, root in self.modules.items():
            for path, module in root.named_modules(prefix=prefix):
                for name, tensor in getattr(module, kind).items():
                    if tensor is not None and tensor.is_floating_point():
                        yield f"{path}.{name}", module, name, tensor

    def _point(self) -> None:
        """Make every parameter and buffer a view of its columns."""
        members, start = self.values.shape[0], 0
        for _, _, _, parameter in self._slots("_parameters"):
            shape = (members, *parameter.shape[1:])
            stop = start + parameter[0].numel()
            parameter.data = self.values[:, start:stop].view(shape)
            start = stop
        start = 0
        for _, module, name, buffer in list(self._slots("_buffers")):
            stop = start + buffer[0].numel()
            module._buffers[name] = self.stats[:, start:stop].view(members, *buffer.shape[1:])
            start = stop

    def select(self, keep: Tensor) -> None:
        """Keep only these members (k,)."""
        self.values, self.stats = self.values[keep], self.stats[keep]
        self._point()

    def gradient(self, loss: Tensor) -> Tensor:
        """∂loss/∂values (P, n); parameters that the loss does not read get 0."""
        parameters = [parameter for _, _, _, parameter in self._slots("_parameters")]
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
        return torch.cat([grad.flatten(1) for grad in grads], 1)

    def load(self, values: Tensor, stats: Tensor) -> None:
        """Overwrite parameters and buffers with (P, n) and (P, m)."""
        self.values.copy_(values)
        self.stats.copy_(stats)

    def unflatten(self, values: Tensor, stats: Tensor) -> dict[str, Tensor]:
        """One member's rows (n,), (m,) as named tensors without a member axis."""
        named: dict[str, Tensor] = {}
        for kind, row in (("_parameters", values), ("_buffers", stats)):
            start = 0
            for name, _, _, tensor in self._slots(kind):
                stop = start + tensor[0].numel()
                named[name] = row[start:stop].view(tensor.shape[1:]).clone()
                start = stop
        return named
