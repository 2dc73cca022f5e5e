"""Channel rotation: the channels of a window turned by some places around their ring, as an armband may be worn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from ..preprocessing import Preprocessing
from ..preprocessing.turn import in_order, sources
from ..randomness import uniform
from ..recordings import Recordings
from ..recordings.ring import check_ring
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class ChannelRotation(Augmentation):
    places: int = 1  # at most so many to either side, all of them equally often

    needs_ring: ClassVar[bool] = True
    name, rule = "channel_rotation", "be at least 1, a number of places"

    def bound(self, recordings: Recordings, preprocessing: Preprocessing, device: torch.device) -> Augmentation:
        """Bind the ring. Channels that a transform appends turn, too: they are copies of the original channels."""
        ring = check_ring(recordings.ring, f"channel_rotation={self.places}")
        channels, times = recordings.n_channels, recordings.n_times
        seen, _ = preprocessing.shape(channels, times)
        if seen % channels:
            raise UserError(
                f"channel_rotation turns channels, and of {channels} the preprocessing leaves {seen}; leave out the "
                "transform that mixes them, such as represent='tangent'"
            )
        turned = sources(torch.tensor(ring, device=device), channels)
        copies = torch.arange(0, seen, channels, device=device)
        return Rotation(self.places, (copies[:, None] + turned[:, None, :]).flatten(1))

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        check_ring(None, f"channel_rotation={self.places}")
        raise AssertionError("it is bound to recordings first")


@dataclass(frozen=True, eq=False)
class Rotation(Augmentation):
    """Channel rotation of windows whose ring is known."""

    places: int
    sources: Tensor = field(repr=False)  # (R, C): which channel each shows after 0 .. R − 1 places

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        ring = len(self.sources)
        positions = min(2 * self.places + 1, ring)
        draw = (uniform(key, 1)[..., 0] * positions).long().clamp(max=positions - 1)
        return in_order(x, (draw - min(self.places, ring // 2)) % ring, self.sources)
