"""minirocket: share of samples at which a window, convolved with fixed kernels, exceeds thresholds.

MiniRocket (Dempster et al. 2021): 84 kernels of nine weights, six of −1 and three of 2, at several dilations, each on
the sum of a few channels. Thresholds are quantiles of the convolved training windows; no labels are used. Unlike in the
paper, all kernels pad with zeros, and channels and quantiles are equal in every fit.

It is slow because it is computed for each fold, other representations once for all folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ...randomness import as_keys, key_of, uniform
from ..transform import FittedTransform, Rows, TransformedWindows
from .base import Representation, apply_in_chunks

WEIGHTS = 9
KERNELS = tuple(combinations(range(WEIGHTS), 3))  # positions of the weight 2
DILATIONS = 4  # maximum number
THRESHOLDS = 3  # per kernel
MOST_CHANNELS = 9  # per kernel
EXAMPLES = 128  # training windows for the thresholds
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class MiniRocket(Representation):
    display_name = "MiniRocket"
    min_samples: ClassVar[int] = WEIGHTS
    depends_on_fold: ClassVar[bool] = True
    is_slow: ClassVar[bool] = True
    counts_samples: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(KERNELS) * THRESHOLDS * len(choose_dilations(times))

    def values_per_window(self, channels: int, times: int) -> int:
        return DILATIONS * (2 * WEIGHTS * channels + 2 * len(KERNELS)) * times

    def compute(self, x: Tensor) -> Tensor:
        raise AssertionError("FittedMiniRocket computes it")

    def fit(self, windows: TransformedWindows, training: Sequence[Rows]) -> FittedTransform:
        thresholds = windows.map_groups(lambda group, rows: fit_thresholds(windows.get_group(group), rows), training)
        return FittedMiniRocket(self, torch.stack(thresholds))

    def restore(self, tensors: dict[str, Tensor]) -> FittedTransform:
        return FittedMiniRocket(self, tensors["thresholds"])


class FittedMiniRocket(FittedTransform):
    statistics = ("thresholds",)
    thresholds: Tensor  # (G, D · 84, 3)

    def __init__(self, spec: MiniRocket, thresholds: Tensor) -> None:
        super().__init__(thresholds=thresholds)
        self.spec = spec

    def forward(self, x: Tensor, subjects: Tensor | None = None) -> Tensor:
        values_per_window = self.spec.values_per_window(int(x.shape[-2]), int(x.shape[-1]))
        groups = max(len(x), len(self.thresholds))
        pairs = zip(x.expand(groups, -1, -1, -1), self.thresholds.expand(groups, -1, -1), strict=True)

        def compute_shares(windows: Tensor, limits: Tensor) -> Tensor:
            return shares_above(convolve(windows), limits, torch.float64)

        return torch.cat(
            [apply_in_chunks(group[None], partial(compute_shares, limits=t), values_per_window) for group, t in pairs]
        )

    def graph(self) -> nn.Module:
        return MiniRocketGraph(self.thresholds)


class MiniRocketGraph(nn.Module):
    thresholds: Tensor

    def __init__(self, thresholds: Tensor) -> None:
        super().__init__()
        self.register_buffer("thresholds", thresholds)

    def forward(self, x: Tensor) -> Tensor:
        """Map (P or 1, N, C, T) to (P, N, 1, features)."""
        responses = [convolve(windows) for windows in x]  # once if groups have equal windows
        groups = len(self.thresholds)
        both = zip(responses if len(responses) == groups else responses * groups, self.thresholds, strict=True)
        return torch.stack([shares_above(response, limits) for response, limits in both])


def shares_above(responses: Tensor, thresholds: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Map responses (n, D · 84, T) and thresholds (D · 84, 3) to shares of samples above (n, 1, D · 84 · 3)."""
    # float32 represents counts of samples exactly and halves the memory traffic of float64.
    above = responses[..., None, :] > thresholds[..., None].to(responses.device)
    return (above.to(dtype).sum(-1) / responses.shape[-1]).flatten(-2)[..., None, :]


def convolve(x: Tensor) -> Tensor:
    """Map windows (n, C, T) to responses (n, D · 84, T), float64, dilation by dilation."""
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    spans, middle = choose_dilations(times), WEIGHTS // 2
    beyond = middle * spans[-1]
    padded = nn.functional.pad(x.to(torch.float64), (beyond, beyond))
    # Slices, because exported graphs gather single samples slowly.
    shifted = [
        torch.cat(
            [padded[..., first : first + times] for first in range(beyond - middle * d, beyond + middle * d + 1, d)], -2
        )
        for d in spans
    ]
    stacked = torch.stack(shifted, -3)  # (n, D, 9 · C, T)
    return (draw_kernels(channels, len(spans)).to(x.device) @ stacked).flatten(1, 2)


@cache
def choose_dilations(times: int) -> tuple[int, ...]:
    """Return up to DILATIONS dilations, evenly spaced in logarithms, the largest of which spans the window."""
    largest = max(1.0, (times - 1) / (WEIGHTS - 1))
    return tuple(sorted({int(d) for d in np.geomspace(1, largest, DILATIONS) + 1e-9}))


@cache
def draw_kernels(channels: int, count: int) -> Tensor:
    """Return kernels (D, 84, 9 · C) for `count` dilations, each on channels drawn for it, more often few than many."""
    matrix = np.zeros((count, len(KERNELS), WEIGHTS, channels))
    for place, k in np.ndindex(count, len(KERNELS)):
        drawn = uniform(as_keys([key_of("minirocket", channels, place, k)]), channels + 1)[0].numpy()
        most = int(2 ** (float(drawn[0]) * math.log2(min(channels, MOST_CHANNELS) + 1)))
        chosen = np.argsort(drawn[1:], kind="stable")[:most]
        matrix[place, k][:, chosen] = -1.0
        matrix[place, k][np.ix_(np.array(KERNELS[k]), chosen)] = 2.0
    return torch.from_numpy(matrix.reshape(count, len(KERNELS), -1))


def fit_thresholds(windows: TransformedWindows, rows: Rows) -> Tensor:
    """Return thresholds (D · 84, 3): quantiles of the kernels' responses to some training windows."""
    examples = rows[np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(np.int64))]
    ranked = convolve(windows.load(torch.from_numpy(examples))).transpose(0, 1).flatten(1).sort(1).values
    level = np.arange(1, THRESHOLDS * len(ranked) + 1) * GOLDEN % 1
    at = torch.from_numpy((level * (ranked.shape[1] - 1)).astype(np.int64)).view(-1, THRESHOLDS)
    return ranked.gather(1, at.to(ranked.device))
