"""Encoders that are fitted in closed form, without an optimizer.

Latents are standardized by their mean and standard deviation over training windows. training/closed_form.py fits the
linear classifier to the latents.
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

Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]  # yields all training windows (B, C, T) with classes (B,)


@dataclass(frozen=True, kw_only=True)
class ClosedFormOptions(EncoderOptions):
    """Hyperparameters that all closed-form encoders share."""

    shrinkage: float | str = "auto"  # shrinkage of the pooled class covariance; "auto": Ledoit-Wolf

    is_closed_form: ClassVar[bool] = True
    per_member: ClassVar[tuple[str, ...]] = ("shrinkage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.shrinkage
        if share != "auto" and (isinstance(share, str) or not 0 <= share <= 1):
            raise UserError(f"shrinkage is {shown(share)}; it must be 'auto' or lie in [0, 1]")

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        """Return an upper bound on the bytes of the latents of a batch, the classifier and checkpoints."""
        return itemsize * self.latent_dim(size) * (2 * batch + 8 * size.classes + 8)

    @abstractmethod
    def latent_dim(self, size: Size) -> int: ...


class ClosedFormEncoder(Stack):
    """Stack of P closed-form encoders."""

    def __init__(self, members: int, latent_dim: int) -> None:
        super().__init__()
        self.members, self.latent_dim = members, latent_dim
        self.shift = nn.Buffer(torch.zeros(members, latent_dim))  # means of the raw latents of training windows
        self.inv_std = nn.Buffer(torch.ones(members, latent_dim))  # 1 / standard deviations, 0 for constant latents

    @abstractmethod
    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        """Map windows (M or 1, B, C, T) of M members to latents before standardization (M or 1, B, D)."""

    def raw_latents_for_export(self, x: Tensor) -> Tensor:
        """Compute `raw_latents` of all members with operations that every export format supports."""
        return self.raw_latents(x)

    def fit(self, members: Sequence[int], batches: Batches) -> None:
        """Fit the buffers that `raw_latents` reads on the training windows of these members."""

    def fit_standardization(self, members: Sequence[int], raw: Tensor) -> Tensor:
        """Fit shift and scale to raw latents (n, D) of training windows; return standardized latents in float64."""
        exact = raw.double()
        shift = exact.mean(0)
        spread = (exact - shift).square().mean(0).sqrt()
        is_varying = (exact.amin(0) < exact.amax(0)) & (spread > 0)
        inv_std = torch.where(is_varying, 1 / spread, 0.0).clamp(max=torch.finfo(self.inv_std.dtype).max)
        for member in members:
            self.shift[member], self.inv_std[member] = shift.to(self.shift), inv_std.to(self.inv_std)
        # The stored values are used, so that latents are equal in training and prediction.
        first = members[0]
        return (exact - self.shift[first].double()) * self.inv_std[first].double()

    def head(self) -> Tensor | None:
        """Return the weights (K, D) of the classifier, or None if training fits the classifier."""
        return None

    def forward(self, x: Tensor, *, group: Tensor | None = None, **_: Any) -> Tensor:
        """Return latents (P, B, D); other keywords of `EEGNet.forward` are ignored."""
        if x.dim() == 3:
            x = x[None]
        elif group is not None:
            x = x[group]
        # Members run one after another, because intermediate signals may be much larger than latents. For a single
        # window all members run together, which is faster.
        step = len(self.shift) if x.shape[1] == 1 else 1
        members = [slice(member, member + step) for member in range(0, len(self.shift), step)]
        raw = [self.raw_latents(x if len(x) == 1 else x[member], member) for member in members]
        return self.standardize(raw[0] if len(raw) == 1 else torch.cat(raw))

    def standardize(self, raw: Tensor) -> Tensor:
        """Map raw latents (P or 1, B, D) to latents (P, B, D)."""
        return (raw - self.shift[:, None]) * self.inv_std[:, None]

    def graph(self) -> nn.Module:
        return ClosedFormGraph(self)


@dataclass(frozen=True, kw_only=True)
class LinearOptions(ClosedFormOptions):
    """Options of the identity: latents are the values of the window or of the representation."""

    def latent_dim(self, size: Size) -> int:
        return size.channels * size.times

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Flattened:
        return Flattened(members, self.latent_dim(size))


class Flattened(ClosedFormEncoder):
    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        return x.flatten(2)


class ClosedFormGraph(nn.Module):
    """Graph for export: windows (P or 1, N, C, T) -> latents (P, N, D)."""

    def __init__(self, net: ClosedFormEncoder) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net.standardize(self.net.raw_latents_for_export(x))
