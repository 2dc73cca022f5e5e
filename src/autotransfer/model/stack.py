"""The interface of a stack of P members, for training, use and export."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn


class Size(NamedTuple):
    """The windows that an encoder is for."""

    channels: int
    times: int
    classes: int
    sfreq: float | None  # Hz


class Stack(nn.Module):
    """P members of one encoder: parameters and floating buffers have the member on axis 0.

    Windows (B, C, T), (P, B, C, T), or (G, B, C, T) with group (P,) -> latents (P, B, D). What other keywords `forward`
    takes in training: see EEGNet.
    """

    members: Any  # P; None: a single network, whose parameters have no member axis
    latent_dim: int
    # Whether a step can be a CUDA graph: no waiting for the device, no shapes that depend on values.
    capturable: ClassVar[bool] = True

    @abstractmethod
    def graph(self) -> nn.Module:
        """Map windows (P or 1, N, C, T) to latents (P, N, D) in plain operations, in eval mode, for export."""


def extract_member(stack: nn.Module, member: int) -> nn.Module:
    """Return one member of a module whose parameters and floating buffers have members on axis 0."""
    alone = copy.deepcopy(stack)
    for layer in alone.modules():
        for key, parameter in layer._parameters.items():
            if parameter is not None:
                layer._parameters[key] = nn.Parameter(parameter.detach()[member].clone(), requires_grad=False)
        for key, buffer in layer._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                layer._buffers[key] = buffer[member].clone()
    return alone


class AnyModuleGraph(nn.Module):
    """For export: copies of the members, one after the other."""

    def __init__(self, stack: nn.Module, members: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(extract_member(stack, member) for member in range(members))

    def forward(self, x: Tensor) -> Tensor:
        """Map (P or 1, N, C, T) to (P, N, D)."""
        last = x.shape[0] - 1
        return torch.stack([network(x[min(k, last)]).flatten(1) for k, network in enumerate(self.networks)])
