"""minirocket: how often a window exceeds a threshold after convolution with kernels that are the same for all signals.

MiniRocket (Dempster et al. 2021): 84 kernels of nine weights, six of −1 and three of 2, at several dilations, each on
the sum of a few channels. Thresholds are quantiles of what the kernels give for training windows; no label enters.
Other than there, windows end in zeros for every kernel, and channels and quantiles are the same in every fit.

Costly: other representations are worked out once for all folds, this one for each of them.
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
from ..transform import Fitted, Rows, Stage
from .base import Representation, in_pieces

WEIGHTS = 9
KERNELS = tuple(combinations(range(WEIGHTS), 3))  # places of the 2s
DILATIONS = 4  # at most, from 1 to what a window can hold
THRESHOLDS = 3  # for each kernel
MOST_CHANNELS = 9  # that a kernel sums
EXAMPLES = 128  # training windows that thresholds are taken from
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class MiniRocket(Representation):
    display_names = ("MiniRocket", "MiniRocket")
    shortest: ClassVar[int] = WEIGHTS
    by_fold: ClassVar[bool] = True
    costly: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(KERNELS) * THRESHOLDS * len(dilations(times))

    def room(self, channels: int, times: int) -> int:
        return DILATIONS * (2 * WEIGHTS * channels + 2 * len(KERNELS)) * times

    def numbers(self, x: Tensor) -> Tensor:
        raise AssertionError("it is fitted")

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        of_groups = stage.of_groups(lambda group, rows: thresholds(stage.of_group(group), rows), training)
        return FittedMiniRocket(self, torch.stack(of_groups))

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        return FittedMiniRocket(self, tensors["thresholds"])


class FittedMiniRocket(Fitted):
    statistics = ("thresholds",)
    thresholds: Tensor  # (G, D · 84, 3)

    def __init__(self, spec: MiniRocket, thresholds: Tensor) -> None:
        super().__init__(thresholds=thresholds)
        self.spec = spec

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        room = self.spec.room(int(x.shape[-2]), int(x.shape[-1]))
        groups = max(len(x), len(self.thresholds))
        pairs = zip(x.expand(groups, -1, -1, -1), self.thresholds.expand(groups, -1, -1), strict=True)

        def shares(windows: Tensor, limits: Tensor) -> Tensor:
            return shares_above(convolved(windows), limits, torch.float64)

        return torch.cat([in_pieces(group[None], partial(shares, limits=t), room) for group, t in pairs])

    def graph(self) -> nn.Module:
        return MiniRocketGraph(self.thresholds)


class MiniRocketGraph(nn.Module):
    thresholds: Tensor

    def __init__(self, thresholds: Tensor) -> None:
        super().__init__()
        self.register_buffer("thresholds", thresholds)

    def forward(self, x: Tensor) -> Tensor:
        """Map (P or 1, N, C, T) to (P, N, 1, numbers)."""
        responses = [convolved(windows) for windows in x]  # once where groups have the same windows
        groups = len(self.thresholds)
        both = zip(responses if len(responses) == groups else responses * groups, self.thresholds, strict=True)
        return torch.stack([shares_above(response, limits) for response, limits in both])


def shares_above(responses: Tensor, thresholds: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Map responses (n, D · 84, T) and thresholds (D · 84, 3) to shares (n, 1, D · 84 · 3). float32 holds numbers of
    samples exactly, and half of it has to be moved."""
    above = responses[..., None, :] > thresholds[..., None].to(responses.device)
    return (above.to(dtype).sum(-1) / responses.shape[-1]).flatten(-2)[..., None, :]


def convolved(x: Tensor) -> Tensor:
    """Map windows (n, C, T) to (n, D · 84, T), float64, dilation by dilation."""
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    spans, middle = dilations(times), WEIGHTS // 2
    beyond = middle * spans[-1]
    padded = nn.functional.pad(x.to(torch.float64), (beyond, beyond))
    # Slices, because an exported graph takes longer to gather samples one by one than for the products.
    shifted = [
        torch.cat(
            [padded[..., first : first + times] for first in range(beyond - middle * d, beyond + middle * d + 1, d)], -2
        )
        for d in spans
    ]
    stacked = torch.stack(shifted, -3)  # (n, D, 9 · C, T)
    return (kernels(channels, len(spans)).to(x.device) @ stacked).flatten(1, 2)


@cache
def dilations(times: int) -> tuple[int, ...]:
    """Return up to DILATIONS dilations, evenly spaced in their logarithms, the largest of which spans the window."""
    largest = max(1.0, (times - 1) / (WEIGHTS - 1))
    return tuple(sorted({int(d) for d in np.geomspace(1, largest, DILATIONS) + 1e-9}))


@cache
def kernels(channels: int, count: int) -> Tensor:
    """Return kernels (D, 84, 9 · C), weight by weight, for so many dilations: each kernel sums channels that are
    drawn for it, more often few than many."""
    matrix = np.zeros((count, len(KERNELS), WEIGHTS, channels))
    for place, k in np.ndindex(count, len(KERNELS)):
        drawn = uniform(as_keys([key_of("minirocket", channels, place, k)]), channels + 1)[0].numpy()
        most = int(2 ** (float(drawn[0]) * math.log2(min(channels, MOST_CHANNELS) + 1)))
        chosen = np.argsort(drawn[1:], kind="stable")[:most]
        matrix[place, k][:, chosen] = -1.0
        matrix[place, k][np.ix_(np.array(KERNELS[k]), chosen)] = 2.0
    return torch.from_numpy(matrix.reshape(count, len(KERNELS), -1))


def thresholds(stage: Stage, rows: Rows) -> Tensor:
    """Return thresholds (D · 84, 3): quantiles of what each kernel gives for some of these windows, at levels that
    fill (0, 1) evenly."""
    examples = rows[np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(np.int64))]
    ranked = convolved(stage.windows(torch.from_numpy(examples))).transpose(0, 1).flatten(1).sort(1).values
    level = np.arange(1, THRESHOLDS * len(ranked) + 1) * GOLDEN % 1
    at = torch.from_numpy((level * (ranked.shape[1] - 1)).astype(np.int64)).view(-1, THRESHOLDS)
    return ranked.gather(1, at.to(ranked.device))
