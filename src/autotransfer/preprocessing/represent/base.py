"""Base class of representations, and functions that several of them share.

A representation is a frozen dataclass with `shape` and `compute`. `required_fields` names what it needs to know of the
recordings. One with statistics of training rows overrides `fit`. Amplitudes should be logarithms, so that the gain of a
subject becomes a shift, which `center` subtracts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ...recordings.chunks import row_chunks
from ..transform import FittedTransform, Rows, TransformedWindows

POINTS = 16  # segments of a window, and bands of a spectrum
QUIET = float(np.finfo(np.float32).tiny ** 0.5)  # lower bound before logarithms


@dataclass(frozen=True)
class Representation(ABC):
    """A map of windows (..., C, T) to (..., R, S); fields are None unless `required_fields` names them."""

    sfreq: float | None = None  # Hz
    constants: tuple[float, ...] | None = None  # meaning defined by the class

    display_name: ClassVar[str | None] = None  # name in sentences of reports; None: the name in the registry
    required_fields: ClassVar[tuple[str, ...]] = ()  # fields that must be given
    min_samples: ClassVar[int] = 4  # minimum window length in samples
    min_seconds: ClassVar[float] = 0.0  # minimum window length for which a run tries it
    depends_on_fold: ClassVar[bool] = False  # whether it has statistics of training rows
    is_slow: ClassVar[bool] = False  # whether a run tries it in a later stage only
    counts_samples: ClassVar[bool] = False  # whether rounding can change a value by a whole sample

    @property
    def rate(self) -> float:
        """Return sfreq, which the representation must require."""
        assert self.sfreq is not None, "required_fields has sfreq"
        return self.sfreq

    @abstractmethod
    def shape(self, channels: int, times: int) -> tuple[int, int]:
        """Return R and S; R is C if each channel has features of its own, otherwise 1."""

    @abstractmethod
    def compute(self, x: Tensor) -> Tensor:
        """Map windows (..., C, T) of any floating dtype to (..., R, S) float64."""

    def compute_in_graph(self, x: Tensor) -> Tensor:
        """Compute the same in operations that all export formats have; override it if `compute` uses others."""
        return self.compute(x)

    def values_per_window(self, channels: int, times: int) -> int:
        """Return the working memory per window in values, which limits how many windows are processed at once."""
        return 4 * channels * max(channels, times)

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        """Fit as `Transform.fit` does; override it with `restore` and `depends_on_fold` if there are statistics."""
        return FittedRepresentation(self)

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        return FittedRepresentation(self)


class FittedRepresentation(FittedTransform):
    """A representation without statistics, as a fitted transform."""

    def __init__(self, spec: Representation) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return apply_in_chunks(x, self.spec.compute, self.spec.values_per_window(int(x.shape[-2]), int(x.shape[-1])))

    def graph(self) -> nn.Module:
        return RepresentationGraph(self.spec.compute_in_graph)


class RepresentationGraph(nn.Module):
    """Representation for export: windows (G, N, C, T) to (G, N, R, S).

    compute: of windows (n, C, T), with n = G · N; with that axis first the export takes much less time
    """

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        values = self.compute(x.flatten(0, 1)).to(torch.float32)
        return values.view(x.shape[0], -1, *values.shape[1:])


def apply_in_chunks(x: Tensor, work: Callable[[Tensor], Tensor], values_per_window: int) -> Tensor:
    """Apply a function to windows (G, B, C, T) in chunks, given its values per window; returns the dtype of x."""
    groups, batch = (int(n) for n in x.shape[:2])
    rows = x.flatten(0, 1)
    pieces = [work(rows[piece]).to(x.dtype) for piece in row_chunks(groups * batch, values_per_window)]
    values = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    return values.view(groups, batch, *values.shape[1:])


# ---- functions that several representations share --------------------------------------------------------------------


def segment_means(x: Tensor, most: int = POINTS) -> Tensor:
    """Return means (..., S) of `most` consecutive segments of (..., T), or of T segments if that is less."""
    times = int(x.shape[-1])  # not the other sizes: an exported graph does not know the number of windows
    count = min(most, times)
    length, longer = divmod(times, count)
    end = longer * (length + 1)
    parts = [x[..., :end].reshape(*x.shape[:-1], longer, length + 1)] if longer else []
    parts += [x[..., end:].reshape(*x.shape[:-1], count - longer, length)]
    return torch.cat([part.mean(-1) for part in parts], -1)


def subtract_means(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows (..., C, T) minus their means, float64, exactly 0 if flat, and the means (..., C, 1)."""
    exact = x.to(torch.float64)
    first = exact[..., :1]  # subtracted first, so that flat channels have no rounding errors
    moved = exact - first
    mean = moved.mean(-1, keepdim=True)
    return moved - mean, first + mean


def deviation(x: Tensor) -> Tensor:
    """Return the standard deviation (...) of (..., T)."""
    return subtract_means(x)[0].square().mean(-1).sqrt()


def log(x: Tensor) -> Tensor:
    """Return the logarithm of values ≥ 0, finite for 0."""
    return x.clamp(min=QUIET).log()


def log_power(x: Tensor) -> Tensor:
    """Return the logarithm of squares, finite for 0; the bound is the square of that in `log`."""
    return x.clamp(min=QUIET**2).log()
