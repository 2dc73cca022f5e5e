"""The interface of a stack of P members, for training, use and export."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .moments import Moments


class Size(NamedTuple):
    """The windows that an encoder is for."""

    channels: int
    times: int
    classes: int
    sfreq: float | None  # Hz


# Windows (G, n, C, T), and how many members read each of the G groups, in their order -> codes (P, n, D).
Quick = Callable[[Tensor, Sequence[int]], Tensor]


class Stack(Protocol):
    """P members of one encoder, an nn.Module whose parameters and floating buffers have the member on axis 0."""

    members: int | None
    latent_dim: int
    capturable: bool  # whether a step can be a CUDA graph: no waiting for the device, no shapes that depend on values

    def __call__(
        self,
        x: Tensor,
        *,
        group: Tensor | None = None,
        moments: Moments | None = None,
        noise: Tensor | None = None,
        drop: Tensor | None = None,
        active: Tensor | None = None,
    ) -> Tensor:
        """Codes (P, B, D) of windows (B, C, T), (P, B, C, T), or (G, B, C, T) with group (P,)."""

    def constrain_(self) -> None:
        """What is enforced on the parameters after every step."""

    def input_scale(self) -> Tensor:
        """Standard deviation of raw windows that the members know, as far as their statistics tell; else 1."""

    def graph(self) -> nn.Module:
        """Windows (P or 1, N, C, T) -> codes (P, N, D) in plain operations, in eval mode, for export."""


def member_of(stack: nn.Module, member: int) -> nn.Module:
    """One member of a module whose parameters and floating buffers have members on axis 0."""
    alone = copy.deepcopy(stack)
    for layer in alone.modules():
        for key, parameter in layer._parameters.items():
            if parameter is not None:
                layer._parameters[key] = nn.Parameter(parameter.detach()[member].clone(), requires_grad=False)
        for key, buffer in layer._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                layer._buffers[key] = buffer[member].clone()
    return alone


def quick(stack: nn.Module, n_constant: int = 0) -> Quick:
    """Members in eval mode for a few windows on a CPU: by the method `quick` of the stack, if it has one.

    n_constant: how many channels, the last ones, have one value throughout every window.
    """
    make: Callable[[int], Quick] | None = getattr(stack, "quick", None)
    return (lambda x, sizes: stack(x, group=group_of(sizes))) if make is None else make(n_constant)


def group_of(sizes: Sequence[int]) -> Tensor:
    """The group (P,) of each member, for groups of these sizes in their order."""
    return torch.from_numpy(_groups(tuple(sizes)))


@cache
def _groups(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Kept as an array: a tensor that is made while torch traces could not be."""
    return np.repeat(np.arange(len(sizes)), sizes)


class InTurn(nn.Module):
    """For export: copies of the members, one after the other."""

    def __init__(self, stack: nn.Module, members: int) -> None:
        super().__init__()
        networks = [member_of(stack, member) for member in range(members)]
        # A network may have a plainer form for export.
        self.networks = nn.ModuleList(getattr(network, "merged", lambda n=network: n)() for network in networks)

    def forward(self, x: Tensor) -> Tensor:
        """(P or 1, N, C, T) -> (P, N, D)."""
        last = x.shape[0] - 1
        return torch.stack([network(x[min(k, last)]).flatten(1) for k, network in enumerate(self.networks)])
