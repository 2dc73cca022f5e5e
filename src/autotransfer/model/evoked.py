"""Encoder for signals that are locked to an event: covariances of filtered windows and mean responses of the classes.

Filters and mean responses are fitted as in `Templates`. Latents are the entries of the matrix logarithm of the
covariance of filtered window and responses (Barachant and Congedo 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..preprocessing.represent.base import subtract_means
from ..preprocessing.represent.tangent import logarithm, logarithm_by_roots, tangent_vectors
from .stack import Size
from .templates import Templates, TemplatesOptions


@dataclass(frozen=True, kw_only=True)
class EvokedOptions(TemplatesOptions):
    """Hyperparameters of `Evoked`."""

    display_name = "evoked responses"
    max_filters = 16  # the covariance has twice as many rows

    def latent_dim(self, size: Size) -> int:
        rows = 2 * self.filters(size) * size.classes
        return rows + rows * (rows + 1) // 2

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Evoked:
        return Evoked(size, members, self.filters(size), self.latent_dim(size))


class Evoked(Templates):
    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        return self.latents(x, members, logarithm)

    def latents(self, x: Tensor, members: slice, matrix_log: Callable[[Tensor], Tensor]) -> Tensor:
        """Return raw latents (M, B, D); matrix_log maps matrices (..., 2F, 2F) to logarithms."""
        signals, _ = subtract_means(self.filters[members, None].to(torch.float64) @ x.to(torch.float64))  # (M, B, F, T)
        responses = self.templates[members, None].to(torch.float64).expand_as(signals)
        channels = torch.cat([responses, signals], -2)
        return tangent_vectors(channels, int(x.shape[-1]), matrix_log)[..., 0, :].to(x.dtype)

    def raw_latents_for_export(self, x: Tensor) -> Tensor:
        return self.latents(x, slice(None), logarithm_by_roots)
