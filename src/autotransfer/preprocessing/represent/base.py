"""Base class of representations, and functions that several representations use.

A representation is a frozen dataclass with `shape` and `compute`. `required_fields` names the properties of recordings
that it needs. A representation with statistics of training rows overrides `fit`. Features of amplitude should be
logarithms. A factor between the amplitudes of subjects is then a constant, which `center` subtracts.
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

N_SEGMENTS = 16  # number of segments of a window, and of bands of a spectrum
LOG_FLOOR = float(np.finfo(np.float32).tiny ** 0.5)  # smallest value of which a logarithm is computed


@dataclass(frozen=True)
class Representation(ABC):
    """Function from windows (..., C, T) to features (..., R, S); fields not in `required_fields` are None."""

    sfreq: float | None = None  # Hz
    constants: tuple[float, ...] | None = None  # numbers whose meaning the subclass defines

    display_name: ClassVar[str | None] = None  # name in sentences of reports; None: the name in the registry
    required_fields: ClassVar[tuple[str, ...]] = ()  # fields that must not be None
    min_samples: ClassVar[int] = 4  # minimum window length in samples
    min_seconds: ClassVar[float] = 0.0  # minimum window length for which runs use the representation
    depends_on_fold: ClassVar[bool] = False  # whether `fit` computes statistics of training rows
    is_slow: ClassVar[bool] = False  # whether runs use the representation in a later stage only
    has_sample_counts: ClassVar[bool] = False  # whether values are counts of samples, see `Preprocessing`

    @property
    def rate(self) -> float:
        """Return sfreq, which `required_fields` must name."""
        assert self.sfreq is not None, "required_fields has sfreq"
        return self.sfreq

    @abstractmethod
    def shape(self, channels: int, times: int) -> tuple[int, int]:
        """Return R and S; R is C if features are computed by channel, otherwise 1."""

    @abstractmethod
    def compute(self, x: Tensor) -> Tensor:
        """Map windows (..., C, T) of any floating dtype to (..., R, S) float64."""

    def compute_in_graph(self, x: Tensor) -> Tensor:
        """Compute features with operations of all export formats; override if `compute` uses other operations."""
        return self.compute(x)

    def values_per_window(self, channels: int, times: int) -> int:
        """Return the working memory per window, in values; it limits how many windows are processed together."""
        return 4 * channels * max(channels, times)

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        """Fit statistics (see `Transform.fit`); override together with `restore` and `depends_on_fold`."""
        return FittedRepresentation(self)

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        return FittedRepresentation(self)


class FittedRepresentation(FittedTransform):
    """Fitted transform of a representation without statistics."""

    def __init__(self, spec: Representation) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        return apply_in_chunks(x, self.spec.compute, self.spec.values_per_window(int(x.shape[-2]), int(x.shape[-1])))

    def graph(self) -> nn.Module:
        return RepresentationGraph(self.spec.compute_in_graph)


class RepresentationGraph(nn.Module):
    """Representation for export, which maps windows (G, N, C, T) to (G, N, R, S).

    compute: function of windows (G · N, C, T), with one leading axis because its export takes much less time
    """

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        values = self.compute(x.flatten(0, 1)).to(torch.float32)
        return values.view(x.shape[0], -1, *values.shape[1:])


def apply_in_chunks(x: Tensor, function: Callable[[Tensor], Tensor], values_per_window: int) -> Tensor:
    """Apply a function to windows (G, B, C, T) in chunks of limited memory, and return results in the dtype of x."""
    groups, batch = (int(n) for n in x.shape[:2])
    rows = x.flatten(0, 1)
    parts = [function(rows[chunk]).to(x.dtype) for chunk in row_chunks(groups * batch, values_per_window)]
    values = parts[0] if len(parts) == 1 else torch.cat(parts)
    return values.view(groups, batch, *values.shape[1:])


# ---- functions that several representations share --------------------------------------------------------------------


def segment_means(x: Tensor, n_segments: int = N_SEGMENTS) -> Tensor:
    """Return the means (..., S) of S = min(n_segments, T) consecutive segments of signals (..., T)."""
    times = int(x.shape[-1])  # sizes of other axes are not read, because an exported graph takes any number of windows
    n_segments = min(n_segments, times)
    length, n_longer = divmod(times, n_segments)
    end = n_longer * (length + 1)
    parts = [x[..., :end].reshape(*x.shape[:-1], n_longer, length + 1)] if n_longer else []
    parts += [x[..., end:].reshape(*x.shape[:-1], n_segments - n_longer, length)]
    return torch.cat([part.mean(-1) for part in parts], -1)


def subtract_means(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return windows (..., C, T) minus their means, exactly 0 if constant, and the means (..., C, 1), in float64."""
    exact = x.to(torch.float64)
    first = exact[..., :1]  # subtracted first, so that constant channels have no rounding errors
    shifted = exact - first
    mean = shifted.mean(-1, keepdim=True)
    return shifted - mean, first + mean


def log(x: Tensor) -> Tensor:
    """Return the logarithm of values ≥ 0, finite for 0."""
    return x.clamp(min=LOG_FLOOR).log()


def log_power(x: Tensor) -> Tensor:
    """Return the logarithm of squares ≥ 0, finite for 0."""
    return x.clamp(min=LOG_FLOOR**2).log()
