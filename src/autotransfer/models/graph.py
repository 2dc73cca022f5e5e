"""A model as one plain module: raw windows in, probabilities out, ordinary operations only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.stack import group_of
from .ensemble import TINY, Correction, Ensemble, refuse_parts
from .stacks import PartStack, stacks_of


def refuse_what_graphs_cannot(parts: Sequence[Ensemble]) -> None:
    """Raise before any work where a part cannot be exported."""
    refuse_parts(parts, lambda part: part.preprocessing.graph())


class Graph(nn.Module):
    """Raw windows (N, channels, times) float32, N ≥ 1 -> probabilities (N, classes) as of `predict_proba`.

    Preprocessing happens inside. Where it is transductive, the windows of one call are taken as one person's, as
    `predict_proba` does when it is not told whose they are. What plain operations cannot do is refused. Parts alike in
    all but their weights are one stack, as in a session: what they do to a window stands in the graph once, and not
    once for each.
    """

    def __init__(self, parts: Sequence[Ensemble], exponents: Sequence[float]) -> None:
        refuse_what_graphs_cannot(parts)
        super().__init__()
        self.stacks = nn.ModuleList(StackGraph(*stack) for stack in stacks_of(parts, exponents))

    def forward(self, windows: Tensor) -> Tensor:
        log_p: Tensor = self.stacks[0](windows)
        for stack in self.stacks[1:]:
            log_p = log_p + stack(windows)
        return log_p.softmax(-1).float()


class StackGraph(nn.Module):
    """Windows (N, channels, times) -> what its K parts add to the log-probabilities (N, classes), float64. Single
    precision has no room for the probabilities that sharp parts give to what they rule out, and others may outvote
    them."""

    group: Tensor  # (P,) which of the preprocessed windows a member reads
    head: Tensor
    head_bias: Tensor
    mean: Tensor  # (K, P) the mean over the members of each part
    exponents: Tensor  # (K,)
    tiny: Tensor  # a buffer: exporters write a number of `clamp` in single precision, where it is 0

    def __init__(self, stack: PartStack, exponents: Tensor) -> None:
        super().__init__()
        self.preprocessing = stack.preprocessing.graph()
        self.encoder = stack.network.graph()
        self.register_buffer("group", group_of(stack.sizes))
        self.register_buffer("head", stack.weight)
        self.register_buffer("head_bias", stack.bias)
        self.register_buffer("mean", stack.mean)
        self.register_buffer("exponents", exponents)
        self.register_buffer("tiny", torch.tensor(TINY, dtype=torch.float64))
        weights = exponents @ stack.mean
        self.correction = None if stack.correction is None else Added(stack.correction, weights)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.preprocessing(windows[None])
        z = self.encoder(x if x.shape[0] == 1 else x.index_select(0, self.group))  # (P, N, D)
        probabilities = (torch.matmul(z, self.head) + self.head_bias).double().softmax(-1)  # (P, N, classes)
        classes = probabilities.shape[-1]
        parts = torch.matmul(self.mean, probabilities.flatten(1)).maximum(self.tiny).log()  # (K, N · classes)
        log_p: Tensor = torch.matmul(self.exponents, parts).view(-1, classes)
        return log_p if self.correction is None else log_p + self.correction(z)


class Added(nn.Module):
    """Corrections for one person: codes (P, N, D) -> (N, classes), each member's times its weight."""

    weight: Tensor
    bias: Tensor
    weights: Tensor

    def __init__(self, correction: Correction, weights: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", correction.weight)
        self.register_buffer("bias", correction.bias[:, None])
        self.register_buffer("weights", weights[:, None, None])

    def forward(self, z: Tensor) -> Tensor:
        return ((torch.matmul(z, self.weight) + self.bias).double() * self.weights).sum(0)
