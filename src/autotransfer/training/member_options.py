"""Options in which members of one population differ, as tensors with one value per member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from ..settings import Setting


@dataclass(frozen=True)
class MemberOptions:
    """Options of P members as tensors (P,)."""

    lr: Tensor
    is_inverse_sqrt: Tensor  # bool: whether the learning rate is divided by the square root of the epoch
    weight_decay: Tensor
    drop: Tensor  # dropout probability
    strength: Tensor  # strength of the penalty
    warm_up: Tensor  # epochs until the full strength

    @classmethod
    def from_settings(cls, settings: Sequence[Setting], device: torch.device, dtype: torch.dtype) -> Self:
        """Return the options of settings (P,) as tensors."""

        def as_tensor(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        training, penalties = [setting.training for setting in settings], [setting.penalty for setting in settings]
        return cls(
            lr=as_tensor([options.lr for options in training]),
            is_inverse_sqrt=torch.tensor([options.schedule == "inverse_sqrt" for options in training], device=device),
            weight_decay=as_tensor([options.weight_decay for options in training]),
            drop=as_tensor([getattr(setting.network, "dropout", 0.0) for setting in settings]),
            strength=as_tensor([0.0 if penalty is None else penalty.strength for penalty in penalties]),
            warm_up=as_tensor([0.0 if penalty is None else penalty.warm_up for penalty in penalties]),
        )

    def select(self, members: Tensor) -> Self:
        """Return the options of these members."""
        return type(self)(*(getattr(self, field.name)[members] for field in fields(self)))

    def strength_at(self, epoch: Tensor) -> Tensor:
        """Return strengths (P,) at an epoch, counted from 1: 0 at the first, `strength` after `warm_up` epochs."""
        share = torch.where(self.warm_up > 0, ((epoch - 1) / self.warm_up.clamp(min=1)).clamp(max=1), 1.0)
        return self.strength * share
