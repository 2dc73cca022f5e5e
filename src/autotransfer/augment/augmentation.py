"""What an augmentation is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import check_types
from ..preprocessing import Preprocessing
from ..recordings import Recordings


@dataclass(frozen=True)
class Augmentation(ABC):
    """Hyperparameters. A subclass is a frozen dataclass whose first field is given to a Setting under the
    augmentation's own name in the registry, and every other field under its own."""

    def __post_init__(self) -> None:
        check_types(self)

    def bound(self, recordings: Recordings, preprocessing: Preprocessing, device: torch.device) -> Augmentation:
        """The same for these recordings, prepared in this way: asked once before training, of what must know more
        than a minibatch."""
        return self

    @abstractmethod
    def __call__(self, x: Tensor, key: Tensor) -> Tensor:
        """Windows (G, B, C, T) changed; key (G, B) int32 is all that may be random (see randomness)."""
