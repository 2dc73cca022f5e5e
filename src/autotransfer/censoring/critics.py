"""Critics, the networks inside censors: multilayer perceptrons with the member on axis 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import check_at_most, check_positive
from ..randomness import fold_in, uniform
from .printed import PrintedOptions


@dataclass(frozen=True, kw_only=True)
class CriticOptions(PrintedOptions):
    """Options of methods with a critic; if `as_printed`, the critic has the learning rate of the encoder."""

    critic_lr: float | None = 1e-2  # ten times the encoder's default, to follow the encoder; None: the encoder's rate
    critic_steps: int = 1  # critic updates per main step
    critic_hidden: int = 64  # width of the critic's hidden layer

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "critic_lr", "critic_steps", "critic_hidden")
        check_at_most(self, critic_hidden=10**5, critic_steps=10**4)
        if self.as_printed and self.critic_lr == CriticOptions.critic_lr:
            object.__setattr__(self, "critic_lr", None)


class MLP(nn.Module):
    """Perceptrons with one hidden ReLU layer, one per member.

    Weights are (P, outputs, inputs) and biases (P, outputs), or without axis P for a single network. Both are drawn
    from U(−1/√inputs, 1/√inputs) as in nn.Linear, and depend only on the member's key.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int, *, keys: Tensor, members: int | None) -> None:
        super().__init__()
        lead = () if members is None else (members,)

        def draw(index: int, fan_in: int, *shape: int) -> nn.Parameter:
            values = 2 * uniform(fold_in(keys, index), math.prod(shape)) - 1
            return nn.Parameter((values / math.sqrt(fan_in)).reshape(*lead, *shape))

        self.weight1, self.bias1 = draw(1, inputs, hidden, inputs), draw(2, inputs, hidden)
        self.weight2, self.bias2 = draw(3, hidden, outputs, hidden), draw(4, hidden, outputs)

    def forward(self, x: Tensor, *, frozen: bool) -> Tensor:
        """Map x (P, B, inputs) to (P, B, outputs); if `frozen`, parameters have no gradient."""

        def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            if frozen:
                weight, bias = weight.detach(), bias.detach()
            weight = weight.reshape(-1, *weight.shape[-2:]).to(x.dtype)
            return torch.baddbmm(bias.reshape(-1, 1, bias.shape[-1]).to(x.dtype), x, weight.mT)

        hidden = layer(x, self.weight1, self.bias1).relu()
        return layer(hidden, self.weight2, self.bias2)


def append_labels(z: Tensor, *labels: tuple[Tensor, int]) -> Tensor:
    """Append one-hot columns to z (P, B, D) for each pair of ids (P, B) and a number of ids > 1."""
    one_hot = [(ids[..., None] == torch.arange(n, device=z.device)).to(z.dtype) for ids, n in labels if n > 1]
    return torch.cat([z, *one_hot], -1)


def label_width(*counts: int) -> int:
    """Return the number of columns that `append_labels` appends."""
    return sum(n for n in counts if n > 1)


def to_unit_variance(z: Tensor, weight: Tensor) -> Tensor:
    """Standardize the dimensions of z (P, B, D), with row weights (P, B) that sum to 1."""
    centered = z - (weight[..., None] * z).sum(-2, keepdim=True)
    variance = (weight[..., None] * centered.square()).sum(-2, keepdim=True)
    return centered * (variance + 1e-6).rsqrt()  # constant dimensions become 0
