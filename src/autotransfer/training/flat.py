"""All parameters of stacked modules as one matrix (P, n), with the member on axis 0.

Optimizer steps, checkpoints and the removal of members are then single operations on rows. Parameters and buffers of
the modules become views of the matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


class ColumnRange(NamedTuple):
    """Columns of a tensor in the matrix: matrix[:, start:stop].view(P, *shape)."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]


def split_columns(matrix: Tensor, columns: list[ColumnRange]) -> dict[str, Tensor]:
    """Return columns of a matrix (P, n) by name, as views (P, *shape)."""
    return {c.name: matrix[:, c.start : c.stop].view(matrix.shape[0], *c.shape) for c in columns}


class FlatParameters:
    """Parameters and floating-point buffers of stacked modules as two matrices."""

    values: Tensor  # (P, n) parameters
    stats: Tensor  # (P, m) floating-point buffers, such as running statistics

    def __init__(self, **modules: nn.Module) -> None:
        self.modules = modules
        parameters = [parameter.detach() for _, _, _, parameter in self._list_named_tensors("_parameters")]
        buffers = [buffer for _, _, _, buffer in self._list_named_tensors("_buffers")]
        self.values = torch.cat([tensor.flatten(1) for tensor in parameters], 1)
        members = self.values.shape[0]
        self.stats = torch.cat([self.values.new_empty(members, 0), *(t.reshape(members, -1) for t in buffers)], 1)
        self.parameter_columns, self.buffer_columns = self._find_columns("_parameters"), self._find_columns("_buffers")
        self._bind_views()

    def _list_named_tensors(self, attribute: str) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
        """Yield (path, module, name, tensor) of all floating-point "_parameters" or "_buffers" in a fixed order."""
        for prefix, root in self.modules.items():
            for path, module in root.named_modules(prefix=prefix):
                for name, tensor in getattr(module, attribute).items():
                    if tensor is not None and tensor.is_floating_point():
                        yield f"{path}.{name}", module, name, tensor

    def _find_columns(self, attribute: str) -> list[ColumnRange]:
        columns, start = [], 0
        for name, _, _, tensor in self._list_named_tensors(attribute):
            stop = start + tensor[0].numel()
            columns.append(ColumnRange(name, start, stop, tuple(tensor.shape[1:])))
            start = stop
        return columns

    def _bind_views(self) -> None:
        """Make every parameter and buffer a view of its columns."""
        parameters = split_columns(self.values, self.parameter_columns)
        buffers = split_columns(self.stats, self.buffer_columns)
        for path, _, _, parameter in self._list_named_tensors("_parameters"):
            parameter.data = parameters[path]
        for path, module, name, _ in list(self._list_named_tensors("_buffers")):
            module._buffers[name] = buffers[path]

    def select(self, members: Tensor) -> None:
        """Keep only these members (k,)."""
        self.values, self.stats = self.values[members], self.stats[members]
        self._bind_views()

    def gradient(self, loss: Tensor) -> Tensor:
        """Return ∂loss/∂values (P, n); 0 for parameters that the loss does not depend on."""
        parameters = [parameter for _, _, _, parameter in self._list_named_tensors("_parameters")]
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
        return torch.cat([grad.flatten(1) for grad in grads], 1)

    def load(self, values: Tensor, stats: Tensor) -> None:
        """Overwrite parameters with values (P, n), and buffers with stats (P, m)."""
        self.values.copy_(values)
        self.stats.copy_(stats)

    def unflatten(self, values: Tensor, stats: Tensor) -> dict[str, Tensor]:
        """Return values (n,) and stats (m,) of one member as tensors by name, without a member axis."""
        tensors = split_columns(values[None], self.parameter_columns) | split_columns(stats[None], self.buffer_columns)
        return {name: tensor[0].clone() for name, tensor in tensors.items()}
