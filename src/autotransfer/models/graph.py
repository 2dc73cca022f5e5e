"""Model as one module of plain operations, for export."""

from __future__ import annotations

from torch import Tensor, nn

from .ensemble import CandidateStack, Ensemble


class Graph(nn.Module):
    """Module from raw windows (N, channels, times) float32 of one subject, N ≥ 1, to the output of `predict_proba`."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(map(StackGraph, ensemble.stacks))
        self.combination = ensemble.combination

    def forward(self, windows: Tensor) -> Tensor:
        log_p: Tensor = self.combination([stack(windows) for stack in self.stacks])
        return log_p.softmax(-1).float()


class StackGraph(nn.Module):
    """Module from raw windows (N, channels, times) to the latents (P, N, D) of a stack."""

    group: Tensor  # (P,) index of each member's preprocessed windows

    def __init__(self, stack: CandidateStack) -> None:
        super().__init__()
        self.preprocessing, self.encoder = stack.preprocessing.graph(), stack.network.graph()
        self.register_buffer("group", stack.group)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.preprocessing(windows[None])
        z: Tensor = self.encoder(x if x.shape[0] == 1 else x.index_select(0, self.group))
        return z
