"""Where populations are trained: here, or on the workers of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from ..jobs import Job
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..training.progress import Progress
from .ledger import Entry, Ledger
from .options import RunOptions

DTYPE = torch.float32


class Work(Protocol):
    """What a place needs to know of a run."""

    folder: Path
    ledger: Ledger
    recordings: Recordings
    options: RunOptions
    encoders: Encoders | None

    def job(self, entry: Entry) -> Job: ...


class Place(Protocol):
    workers: int  # how many populations it trains at a time

    def device(self, asked: str) -> torch.device:
        """The kind of device whose memory limits a population."""

    def train(self, run: Work, bar: Progress) -> None:
        """Train every population of the ledger that has not ended, and note each job the moment it is finished."""
