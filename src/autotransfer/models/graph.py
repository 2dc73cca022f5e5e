"""A model as one plain module: raw windows in, probabilities out, ordinary operations only."""

from __future__ import annotations

from torch import Tensor, nn

from .ensemble import CandidateStack, Ensemble


class Graph(nn.Module):
    """Module of plain operations: raw windows (N, channels, times) float32, N ≥ 1 -> probabilities (N, classes) as of
    `predict_proba`.

    Preprocessing happens inside. If it is transductive, the windows of one call are taken as one person's, as
    `predict_proba` does when it is not told whose they are. What plain operations cannot do is refused.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(map(StackGraph, ensemble.stacks))
        self.combination = ensemble.combination

    def forward(self, windows: Tensor) -> Tensor:
        log_p: Tensor = self.combination([stack(windows) for stack in self.stacks])
        return log_p.softmax(-1).float()


class StackGraph(nn.Module):
    """Module of a stack: windows (N, channels, times) -> latents (P, N, D)."""

    group: Tensor  # (P,) which of the prepared windows a member reads

    def __init__(self, stack: CandidateStack) -> None:
        super().__init__()
        self.preprocessing, self.encoder = stack.preprocessing.graph(), stack.network.graph()
        self.register_buffer("group", stack.group)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.preprocessing(windows[None])
        z: Tensor = self.encoder(x if x.shape[0] == 1 else x.index_select(0, self.group))
        return z
