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
    shortest: ClassVar[int] = WEIGHTS
    by_fold: ClassVar[bool] = True
    costly: ClassVar[bool] = True

    def shape(self, channels: int, times: int) -> tuple[int, int]:
        return 1, len(KERNELS) * THRESHOLDS * len(dilations(times))

    def room(self, channels: int, times: int) -> int:
        return (WEIGHTS * channels + 3 * len(KERNELS)) * times

    def numbers(self, x: Tensor) -> Tensor:
        raise AssertionError("it is fitted")

    def fit(self, stage: Stage, training: Sequence[Rows]) -> Fitted:
        return FittedMiniRocket(
            self, torch.stack([thresholds(stage.of_group(g), rows) for g, rows in enumerate(training)])
        )

    def restore(self, tensors: dict[str, Tensor]) -> Fitted:
        return FittedMiniRocket(self, tensors["thresholds"])


class FittedMiniRocket(Fitted):
    thresholds: Tensor  # (G, D · 84, 3)

    def __init__(self, spec: MiniRocket, thresholds: Tensor) -> None:
        super().__init__()
        self.spec = spec
        self.register_buffer("thresholds", thresholds)

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        room = self.spec.room(int(x.shape[-2]), int(x.shape[-1]))
        groups = max(len(x), len(self.thresholds))
        pairs = zip(x.expand(groups, -1, -1, -1), self.thresholds.expand(groups, -1, -1), strict=True)
        return torch.cat([in_pieces(own[None], partial(exceeding, thresholds=limits), room) for own, limits in pairs])

    def graph(self) -> nn.Module:
        return MiniRocketGraph(self.thresholds)


class MiniRocketGraph(nn.Module):
    thresholds: Tensor

    def __init__(self, thresholds: Tensor) -> None:
        super().__init__()
        self.register_buffer("thresholds", thresholds)

    def forward(self, x: Tensor) -> Tensor:
        """(P or 1, N, C, T) -> (P, N, 1, numbers)."""
        windows = x.expand(len(self.thresholds), -1, -1, -1)
        return torch.stack([exceeding(own, limits) for own, limits in zip(windows, self.thresholds, strict=True)]).to(
            torch.float32
        )


def exceeding(x: Tensor, thresholds: Tensor) -> Tensor:
    """Windows (n, C, T), thresholds (D · 84, 3) -> shares of samples above (n, 1, D · 84 · 3), float64."""
    shares = []
    for responses, own in zip(convolved(x), thresholds.to(x.device).split(len(KERNELS)), strict=True):
        shares += [(responses > own[:, j, None]).to(torch.float64).mean(-1) for j in range(THRESHOLDS)]
    return torch.stack(shares, -1).unflatten(-1, (-1, THRESHOLDS)).transpose(-3, -2).flatten(-3)[..., None, :]


def convolved(x: Tensor) -> list[Tensor]:
    """Windows (n, C, T) -> for each dilation (n, 84, T), float64."""
    channels, times = int(x.shape[-2]), int(x.shape[-1])
    exact = x.to(torch.float64)
    found = []
    for place, dilation in enumerate(dilations(times)):
        padded = nn.functional.pad(exact, (WEIGHTS // 2 * dilation,) * 2)
        shifted = torch.cat([padded[..., k * dilation : k * dilation + times] for k in range(WEIGHTS)], -2)
        found.append(kernels(channels, place).to(x.device) @ shifted)
    return found


@cache
def dilations(times: int) -> tuple[int, ...]:
    """Up to DILATIONS, evenly spaced in their logarithms, the largest of which spans the window."""
    largest = max(1.0, (times - 1) / (WEIGHTS - 1))
    return tuple(sorted({int(d) for d in np.geomspace(1, largest, DILATIONS) + 1e-9}))


@cache
def kernels(channels: int, place: int) -> Tensor:
    """(84, 9 · C), weight by weight, for the dilation at a place: a kernel sums channels that are drawn for it, more
    often few than many."""
    matrix = np.zeros((len(KERNELS), WEIGHTS, channels))
    for k, twos in enumerate(KERNELS):
        drawn = uniform(as_keys([key_of("minirocket", channels, place, k)]), channels + 1)[0].numpy()
        count = int(2 ** (float(drawn[0]) * math.log2(min(channels, MOST_CHANNELS) + 1)))
        chosen = np.argsort(drawn[1:], kind="stable")[:count]
        matrix[k][:, chosen] = -1.0
        matrix[k][np.ix_(twos, chosen)] = 2.0
    return torch.from_numpy(matrix.reshape(len(KERNELS), -1))


def thresholds(stage: Stage, rows: Rows) -> Tensor:
    """(D · 84, 3): quantiles of what each kernel gives for some of these windows, at levels that fill (0, 1) evenly."""
    some = rows[np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(np.int64))]
    found = []
    for place, responses in enumerate(convolved(stage.windows(torch.from_numpy(some)))):
        ranked = responses.transpose(0, 1).flatten(1).sort(1).values
        first = place * len(KERNELS) * THRESHOLDS
        level = (np.arange(1, len(KERNELS) * THRESHOLDS + 1) + first) * GOLDEN % 1
        at = torch.from_numpy((level * (ranked.shape[1] - 1)).astype(np.int64)).view(-1, THRESHOLDS)
        found.append(ranked.gather(1, at.to(ranked.device)))
    return torch.cat(found)
