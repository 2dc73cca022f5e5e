"""Interface of stacks of P encoders, for training, prediction and export."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import nn


class Size(NamedTuple):
    """Size of the windows for which an encoder is built, and the number of classes."""

    channels: int
    times: int
    classes: int
    sfreq: float | None  # Hz


class Stack(nn.Module):
    """Stack of P encoders of one architecture; parameters and floating buffers have the member on axis 0.

    `forward` maps windows (B, C, T), (P, B, C, T), or (G, B, C, T) with group (P,) to latents (P, B, D). EEGNet.forward
    documents the keywords for training.
    """

    members: Any  # P; None: a single network, whose parameters have no member axis
    latent_dim: int
    is_capturable: ClassVar[bool] = True  # whether a training step can be captured as a CUDA graph

    @abstractmethod
    def graph(self) -> nn.Module:
        """Return a module for export that maps windows (P or 1, N, C, T) to latents (P, N, D) in evaluation mode."""
