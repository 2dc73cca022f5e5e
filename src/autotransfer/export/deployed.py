"""A model as one plain module: raw windows in, probabilities out, ordinary operations only."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ..runs.mixture import Mixture, Model, refuse_parts
from ..runs.saved_model import TINY, Correction, SavedModel


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
        self.correction = None if saved.correction is None else Added(saved.correction)

    def log_proba(self, windows: Tensor) -> Tensor:
        """(N, channels, times) -> (N, classes) float64, up to a number for each window. Single precision has no room
        for the probabilities that sharp parts give to what they rule out, and other parts may outvote them."""
        z = self.encoder(self.preprocessing(windows[None]))  # (P, N, D)
        each = (torch.matmul(z, self.head) + self.head_bias).double().softmax(-1)
        found = each.mean(0).clamp(min=TINY).log()
        return found if self.correction is None else found + self.correction(z)

    def forward(self, windows: Tensor) -> Tensor:
        return self.log_proba(windows).softmax(-1).float()


class Added(nn.Module):
    """A correction for one person: codes (P, N, D) -> (N, classes)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, correction: Correction) -> None:
        super().__init__()
        self.register_buffer("weight", correction.weight)
        self.register_buffer("bias", correction.bias)

    def forward(self, z: Tensor) -> Tensor:
        return Correction(self.weight, self.bias)(z)


class DeployedMixture(nn.Module):
    """The formula of `Mixture`."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Deployed(part) for part in mixture.parts)
        self.exponents = list(mixture.exponents)

    def forward(self, windows: Tensor) -> Tensor:
        powers = [
            exponent * cast(Deployed, part).log_proba(windows)
            for part, exponent in zip(self.parts, self.exponents, strict=True)
        ]
        return torch.stack(powers).sum(0).softmax(-1).float()
