"""A saved model as one plain module: raw windows in, probabilities out, ordinary operations only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..runs.saved_model import SavedModel


def deployed(saved: SavedModel) -> nn.Module:
    """Raw windows (N, channels, times) float32, N ≥ 1 -> probabilities (N, classes): the mean over members.

    Preprocessing happens inside. Where it is transductive, the windows of one call are taken as one person's, as
    `SavedModel.predict_proba` does when it is not told whose they are. What a graph cannot do is refused.
    """
    return Deployed(saved).eval()


def refuse_what_graphs_cannot(saved: SavedModel) -> None:
    """Before any work."""
    saved.preprocessing.graph()


class Deployed(nn.Module):
    head: Tensor
    head_bias: Tensor

    def __init__(self, saved: SavedModel) -> None:
        super().__init__()
        self.preprocessing = saved.preprocessing.graph()
        self.encoder: nn.Module = saved.net.graph()  # type: ignore[operator]  # a Stack
        self.register_buffer("head", saved.classifier.weight.detach().transpose(1, 2).contiguous())
        self.register_buffer("head_bias", saved.classifier.bias.detach()[:, None].contiguous())

    def forward(self, windows: Tensor) -> Tensor:
        z = self.encoder(self.preprocessing(windows[None]))  # (P, N, D)
        return (torch.matmul(z, self.head) + self.head_bias).softmax(-1).mean(0)
