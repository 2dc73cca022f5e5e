"""Adapters: a foundation encoder that learns on, by a matrix of low rank beside each of its weights (LoRA, Hu et al.
2022).

A weight W of a linear, convolutional or attention layer becomes W + B A. A (rank, inputs) is random and B (outputs,
rank) is 0, so that a network starts as the frozen encoder. A, B and the classifier are trained, and nothing else. W is
the same for all members and stays where frozen encoders are (preprocessing/represent/foundation.py): a state has A and
B alone, and a saved model holds each encoder once.

A setting names the encoder and the rank, encoder="tuned_foundation:0123456789abcdef:8"; tuned_random_foundation is the
same with weights that nobody has trained.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..errors import UserError, shown
from ..preprocessing.represent.foundation import HEADS, features, opened
from ..preprocessing.represent.pretrained import at_one_scale
from ..recordings.layout import starts
from .any_module import Factory

RANK = 8
PREFIX = "tuned_"  # before the kind of the frozen encoder
KIND_NAMES = {  # as a label, and inside a sentence
    f"{PREFIX}foundation": ("Fine-tuned foundation encoder", "the fine-tuned foundation encoder"),
    f"{PREFIX}random_foundation": ("Fine-tuned untrained encoder", "the fine-tuned encoder with untrained weights"),
}
NAME = re.compile(rf"{PREFIX}(?:random_)?foundation:([0-9a-f]{{16}}):([1-9][0-9]{{0,3}})")
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention)


def is_adapted(encoder: str) -> bool:
    """Whether an encoder has this name because it is a foundation encoder that learns on."""
    return encoder.startswith((f"{PREFIX}foundation:", f"{PREFIX}random_foundation:"))


def adapted_factory(encoder: str) -> Factory:
    """What makes the network of this name."""
    parts = NAME.fullmatch(encoder)
    if parts is None:
        raise UserError(
            f"the encoder is {shown(encoder)}; one that learns on is written as {PREFIX}foundation:DIGEST:RANK"
        )
    return lambda n_channels, n_times: Adapted(parts[1], int(parts[2]))


class Adapted(nn.Module):
    """The foundation encoder of a digest, with adapters, for windows (n, C, T) in its layout."""

    def __init__(self, digest: str, rank: int) -> None:
        super().__init__()
        self.digest = digest
        module = opened(digest).module
        self.weights = [
            name
            for name, _ in module.named_parameters()
            if name.endswith("weight") and not name.startswith(HEADS)
            and isinstance(module.get_submodule(name.rpartition(".")[0]), LAYERS)
        ]  # fmt: skip
        self.down, self.up = nn.ParameterList(), nn.ParameterList()
        for name in self.weights:
            outputs, inputs = module.get_parameter(name).flatten(1).shape
            most = min(rank, outputs, inputs)
            self.down.append(torch.empty(most, inputs).uniform_(-(inputs**-0.5), inputs**-0.5))
            self.up.append(torch.zeros(outputs, most))
        if not self.weights:
            raise UserError("the foundation encoder has no linear, convolutional or attention layer to learn on")

    def forward(self, x: Tensor) -> Tensor:
        encoder = opened(self.digest).on(x.device)
        return mean_features(encoder.module, x, encoder.rates[2], self.adapted())

    def adapted(self) -> dict[str, Tensor]:
        """W + B A by the name of W."""
        module = opened(self.digest).module
        frozen = [module.get_parameter(name) for name in self.weights]
        pairs = zip(self.weights, frozen, self.down, self.up, strict=True)
        return {name: weight + (up @ down).view(weight.shape) for name, weight, down, up in pairs}

    def merged(self) -> nn.Module:
        """The same network with plain weights, for export."""
        encoder = opened(self.digest)
        return Merged(encoder.module, encoder.rates[2], self.adapted())


class Merged(nn.Module):
    """A foundation encoder with other weights by name, for windows (n, C, T) in its layout."""

    def __init__(self, module: nn.Module, times: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.module, self.times = copy.deepcopy(module), times
        self.module.load_state_dict({name: weight.detach() for name, weight in weights.items()}, strict=False)

    def forward(self, x: Tensor) -> Tensor:
        return mean_features(self.module, x, self.times)


def mean_features(module: nn.Module, x: Tensor, times: int, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    """Windows (n, C, T) -> features (n, D), the mean over pieces of so many samples."""
    begins = starts(int(x.shape[-1]), times)
    pieces = [x[..., at : at + times] for at in begins]
    if len(begins) > 1:  # a window has one scale already, its pieces have others
        pieces = [at_one_scale(piece)[0] for piece in pieces]
    return torch.stack([features(module, piece, weights) for piece in pieces]).mean(0)
