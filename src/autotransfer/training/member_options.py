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
    falls: Tensor  # bool: the learning rate is divided by the square root of the epoch
    weight_decay: Tensor
    drop: Tensor  # dropout probability
    strength: Tensor  # strength of the penalty
    warm_up: Tensor  # epochs until the full strength

    @classmethod
    def from_settings(cls, settings: Sequence[Setting], device: torch.device, dtype: torch.dtype) -> Self:
        """Return the options of settings (P,) as tensors."""

        def numbers(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        training, penalties = [setting.training for setting in settings], [setting.penalty for setting in settings]
        return cls(
            lr=numbers([one.lr for one in training]),
            falls=torch.tensor([one.schedule == "inverse_sqrt" for one in training], device=device),
            weight_decay=numbers([one.weight_decay for one in training]),
            drop=numbers([getattr(setting.network, "dropout", 0.0) for setting in settings]),
            strength=numbers([0.0 if penalty is None else penalty.strength for penalty in penalties]),
            warm_up=numbers([0.0 if penalty is None else penalty.warm_up for penalty in penalties]),
        )

    def select(self, keep: Tensor) -> Self:
        """Return the options of members keep (K,)."""
        return type(self)(*(getattr(self, field.name)[keep] for field in fields(self)))

    def strength_in(self, epoch: Tensor) -> Tensor:
        """Return strengths (P,) in an epoch counted from 1: 0 in the first, full after `warm_up` epochs."""
        share = torch.where(self.warm_up > 0, ((epoch - 1) / self.warm_up.clamp(min=1)).clamp(max=1), 1.0)
        return self.strength * share
