"""Where populations are trained: here, or on the workers of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from ..training.progress import Progress

if TYPE_CHECKING:
    from .run import Run

DTYPE = torch.float32


class Place(Protocol):
    workers: int  # how many populations it trains at a time

    def device(self, asked: str) -> torch.device:
        """The kind of device whose memory limits a population."""

    def train(self, run: Run, bar: Progress) -> None:
        """Train every population of the ledger that has not ended, and note each job the moment it is finished."""
