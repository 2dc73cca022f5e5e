"""minirocket: share of samples at which a window, convolved with fixed kernels, exceeds thresholds.

MiniRocket (Dempster et al. 2021) has 84 kernels of nine weights, six of −1 and three of 2. A kernel is applied to the
sum of a few channels, with several dilations. Thresholds are quantiles of the convolved training windows; no labels are
used. Unlike in the paper, windows are padded with zeros, and all fits use the same channels and quantiles.

MiniRocket is slow, because it is computed for each fold, whereas other representations are computed once.
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
MAX_DILATIONS = 4
THRESHOLDS = 3  # number of thresholds per kernel
MAX_CHANNELS = 9  # largest number of channels per kernel
EXAMPLES = 128  # number of training windows for the thresholds
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class MiniRocket(Representation):
    display_name = "MiniRocket"
    min_samples: ClassVar[int] = WEIGHTS
    depends_on_fold: ClassVar[bool] = True
    is_slow: ClassVar[bool] = True
    has_sample_counts: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(KERNELS) * THRESHOLDS * len(choose_dilations(times))

    def values_per_window(self, channels: int, times: int) -> int:
        return MAX_DILATIONS * (2 * WEIGHTS * channels + 2 * len(KERNELS)) * times

    def compute(self, x: Tensor) -> Tensor:
        raise AssertionError("FittedMiniRocket computes the features")

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

        def compute_shares(windows: Tensor, thresholds: Tensor) -> Tensor:
            return shares_above(convolve(windows), thresholds, torch.float64)

        functions = ((windows[None], partial(compute_shares, thresholds=thresholds)) for windows, thresholds in pairs)
        return torch.cat([apply_in_chunks(windows, function, values_per_window) for windows, function in functions])

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
        pairs = zip(responses if len(responses) == groups else responses * groups, self.thresholds, strict=True)
        return torch.stack([shares_above(response, thresholds) for response, thresholds in pairs])


def shares_above(responses: Tensor, thresholds: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the shares (n, 1, D · 84 · 3) of samples of responses (n, D · 84, T) above thresholds (D · 84, 3)."""
    # float32 represents counts of samples exactly and needs half of the memory of float64.
    is_above = responses[..., None, :] > thresholds[..., None].to(responses.device)
    return (is_above.to(dtype).sum(-1) / responses.shape[-1]).flatten(-2)[..., None, :]


def convolve(x: Tensor) -> Tensor:
    """Map windows (n, C, T) to the responses (n, D · 84, T) of 84 kernels with D dilations, float64."""
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    dilations, middle = choose_dilations(times), WEIGHTS // 2
    margin = middle * dilations[-1]
    padded = nn.functional.pad(x.to(torch.float64), (margin, margin))
    # Slices are used, because exported graphs gather single samples slowly.
    shifted = [
        torch.cat(
            [padded[..., first : first + times] for first in range(margin - middle * d, margin + middle * d + 1, d)], -2
        )
        for d in dilations
    ]
    stacked = torch.stack(shifted, -3)  # (n, D, 9 · C, T)
    return (draw_kernels(channels, len(dilations)).to(x.device) @ stacked).flatten(1, 2)


@cache
def choose_dilations(times: int) -> tuple[int, ...]:
    """Return up to MAX_DILATIONS dilations, evenly spaced in logarithms; the largest kernel spans the window."""
    largest = max(1.0, (times - 1) / (WEIGHTS - 1))
    return tuple(sorted({int(d) for d in np.geomspace(1, largest, MAX_DILATIONS) + 1e-9}))


@cache
def draw_kernels(channels: int, count: int) -> Tensor:
    """Return kernels (D, 84, 9 · C) for D = `count` dilations; each kernel has a random number of random channels."""
    matrix = np.zeros((count, len(KERNELS), WEIGHTS, channels))
    for index, k in np.ndindex(count, len(KERNELS)):
        numbers = uniform(as_keys([key_of("minirocket", channels, index, k)]), channels + 1)[0].numpy()
        n_channels = int(2 ** (float(numbers[0]) * math.log2(min(channels, MAX_CHANNELS) + 1)))
        selected = np.argsort(numbers[1:], kind="stable")[:n_channels]
        matrix[index, k][:, selected] = -1.0
        matrix[index, k][np.ix_(np.array(KERNELS[k]), selected)] = 2.0
    return torch.from_numpy(matrix.reshape(count, len(KERNELS), -1))


def fit_thresholds(windows: TransformedWindows, rows: Rows) -> Tensor:
    """Return thresholds (D · 84, 3), which are quantiles of the responses to up to EXAMPLES training windows."""
    examples = rows[np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(np.int64))]
    ordered = convolve(windows.load(torch.from_numpy(examples))).transpose(0, 1).flatten(1).sort(1).values
    level = np.arange(1, THRESHOLDS * len(ordered) + 1) * GOLDEN_RATIO % 1
    index = torch.from_numpy((level * (ordered.shape[1] - 1)).astype(np.int64)).view(-1, THRESHOLDS)
    return ordered.gather(1, index.to(ordered.device))
