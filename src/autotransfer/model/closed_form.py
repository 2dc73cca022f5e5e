"""Encoders without an optimizer: their statistics are computed from the training windows in closed form.

A code is a fixed function of the window, every number of it standardized with mean and deviation of the training rows.
A classifier on such latents has a solution: see training/closed_form.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError, shown
from .encoder import EncoderOptions
from .stack import Size, Stack

Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]  # all training windows (B, C, T) and classes (B,), in pieces


@dataclass(frozen=True, kw_only=True)
class ClosedFormOptions(EncoderOptions):
    """Hyperparameters of every `ClosedFormEncoder`."""

    shrinkage: float | str = "auto"  # of the classes' common covariance; auto: by Ledoit and Wolf

    closed_form: ClassVar[bool] = True
    per_member: ClassVar[tuple[str, ...]] = ("shrinkage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.shrinkage
        if share != "auto" and (isinstance(share, str) or not 0 <= share <= 1):
            raise UserError(f"shrinkage is {shown(share)}; it must be 'auto' or lie in [0, 1]")

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        """Estimate the bytes of latents of a batch, and of the classifier with its snapshots."""
        return itemsize * self.latent_dim(size) * (2 * batch + 8 * size.classes + 8)

    @abstractmethod
    def latent_dim(self, size: Size) -> int: ...


class ClosedFormEncoder(Stack):
    """P members; x: (B, C, T), (P or 1, B, C, T), or (G, B, C, T) with group (P,) -> latents (P, B, D)."""

    shift: Tensor  # (P, D) of the training rows
    inv_std: Tensor

    def __init__(self, members: int, latent_dim: int) -> None:
        super().__init__()
        self.members, self.latent_dim = members, latent_dim
        self.register_buffer("shift", torch.zeros(members, latent_dim))
        self.register_buffer("inv_std", torch.ones(members, latent_dim))

    @abstractmethod
    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        """Map windows (M or 1, B, C, T) of M members to latents before they are standardized (M or 1, B, D)."""

    def raw_latents_for_export(self, x: Tensor) -> Tensor:
        """Compute `raw_latents` of all members with operations that every export format has."""
        return self.raw_latents(x)

    def fit(self, members: Sequence[int], batches: Batches) -> None:
        """Estimate what `raw_latents` needs from the training windows of these members."""

    def fit_standardization(self, members: Sequence[int], rows: Tensor) -> Tensor:
        """Standardize by the raw latents (n, D) of the training rows of these members; return these rows standardized,
        float64. A number that is the same in all of them becomes 0."""
        exact = rows.double()
        shift = exact.mean(0)
        spread = (exact - shift).square().mean(0).sqrt()
        varies = (exact.amin(0) < exact.amax(0)) & (spread > 0)
        inv_std = torch.where(varies, 1 / spread, 0.0).clamp(max=torch.finfo(self.inv_std.dtype).max)
        for member in members:
            self.shift[member], self.inv_std[member] = shift.to(self.shift), inv_std.to(self.inv_std)
        # With the numbers as they are stored, so that training sees the latents that a prediction will.
        first = members[0]
        return (exact - self.shift[first].double()) * self.inv_std[first].double()

    def head(self) -> Tensor | None:
        """Return weights (K, D) of the classifier where the latents imply them; None: it is solved."""
        return None

    def forward(self, x: Tensor, *, group: Tensor | None = None, **_: Any) -> Tensor:
        """Return latents (P, B, D). The other keywords of a Stack serve training and are ignored."""
        if x.dim() == 3:
            x = x[None]
        elif group is not None:
            x = x[group]
        # One member after the other: intermediate signals may be much larger than latents.
        members = [slice(member, member + 1) for member in range(len(self.shift))]
        raw = [self.raw_latents(x if len(x) == 1 else x[member], member) for member in members]
        return self.standardize(raw[0] if len(raw) == 1 else torch.cat(raw))

    def standardize(self, raw: Tensor) -> Tensor:
        """Map raw latents (P or 1, B, D) to latents (P, B, D)."""
        return (raw - self.shift[:, None]) * self.inv_std[:, None]

    def graph(self) -> nn.Module:
        return ClosedFormGraph(self)


@dataclass(frozen=True, kw_only=True)
class LinearOptions(ClosedFormOptions):
    """No encoder: the classifier sees the prepared window, or its representation, number by number."""

    def latent_dim(self, size: Size) -> int:
        return size.channels * size.times

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Flattened:
        return Flattened(members, self.latent_dim(size))


class Flattened(ClosedFormEncoder):
    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        return x.flatten(2)


class ClosedFormGraph(nn.Module):
    """For graphs: windows (P or 1, N, C, T) -> latents (P, N, D)."""

    def __init__(self, net: ClosedFormEncoder) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net.standardize(self.net.raw_latents_for_export(x))
