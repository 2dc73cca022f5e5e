"""A model as one plain module: raw windows in, probabilities out, ordinary operations only."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ..runs.mixture import TINY, Mixture, Model, refuse_parts
from ..runs.saved_model import SavedModel


def deployed(model: Model) -> nn.Module:
    """Raw windows (N, channels, times) float32, N ≥ 1 -> probabilities (N, classes) as of `predict_proba`.

    Preprocessing happens inside. Where it is transductive, the windows of one call are taken as one person's, as
    `predict_proba` does when it is not told whose they are. What a graph cannot do is refused.
    """
    if isinstance(model, SavedModel):
        return Deployed(model).eval()
    refuse_what_graphs_cannot(model)  # by name
    return DeployedMixture(model).eval()


def refuse_what_graphs_cannot(model: Model) -> None:
    """Before any work."""
    refuse_parts(model, lambda part: part.preprocessing.graph())


class Deployed(nn.Module):
    """An ensemble: the mean over its members."""

    head: Tensor
    head_bias: Tensor

    def __init__(self, saved: SavedModel) -> None:
        super().__init__()
        self.preprocessing = saved.preprocessing.graph()
        self.encoder: nn.Module = saved.net.graph()  # type: ignore[operator]  # a Stack
        self.register_buffer("head", saved.classifier.weight.detach().transpose(1, 2).contiguous())
        self.register_buffer("head_bias", saved.classifier.bias.detach()[:, None].contiguous())

    def logits(self, windows: Tensor) -> Tensor:
        """(N, channels, times) -> (P, N, classes)."""
        z = self.encoder(self.preprocessing(windows[None]))  # (P, N, D)
        return torch.matmul(z, self.head) + self.head_bias

    def forward(self, windows: Tensor) -> Tensor:
        return self.logits(windows).softmax(-1).mean(0)


class DeployedMixture(nn.Module):
    """The formula of `Mixture`. float64 from the logits on: single precision has no room for the probabilities that
    sharp parts give to what they rule out, and other parts may outvote them."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Deployed(part) for part in mixture.parts)
        self.exponents = list(mixture.exponents)

    def forward(self, windows: Tensor) -> Tensor:
        powers = [
            exponent * cast(Deployed, part).logits(windows).double().softmax(-1).mean(0).clamp(min=TINY).log()
            for part, exponent in zip(self.parts, self.exponents, strict=True)
        ]
        return torch.stack(powers).sum(0).softmax(-1).float()
