"""Weights averaged over the last steps: what is measured, kept and delivered where a setting asks for it.

Single steps throw a small network about; with a critic as opponent all the more. The epoch that a validation subject
likes best is then partly luck, and the luck does not carry over to the next person. A mean over steps wanders less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from .flat import Flat


class Average:
    """Exponential means of parameters and running statistics, m ← m + (w − m) · max(1 − rate, 1/steps).

    A member with rate 0 has its present weights for a mean, to the last bit; where all have, nothing is done.
    """

    def __init__(self, flat: Flat, rates: Sequence[float]) -> None:
        self.flat, self.used = flat, any(rates)
        if not self.used:
            return
        self.values, self.stats = flat.values.clone(), flat.stats.clone()
        self.rate = torch.tensor(rates, dtype=flat.values.dtype, device=flat.values.device)  # (P,)
        self.steps = torch.zeros_like(self.rate)

    def update(self, active: Tensor) -> None:
        """After a step of the active members (P,)."""
        if not self.used:
            return
        self.steps += active
        share = torch.maximum(1 - self.rate, 1 / self.steps.clamp(min=1))
        share = torch.where(active, share, 0.0)[:, None]
        self.values.copy_(torch.lerp(self.values, self.flat.values, share))
        self.stats.copy_(torch.lerp(self.stats, self.flat.stats, share))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The network has the means for its weights."""
        if not self.used:
            yield
            return
        values, stats = self.flat.values.clone(), self.flat.stats.clone()
        self.flat.load(self.values, self.stats)
        try:
            yield
        finally:
            self.flat.load(values, stats)

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        """What is delivered: parameters (P, n) and running statistics (P, m)."""
        return (self.values, self.stats) if self.used else (self.flat.values, self.flat.stats)

    def select(self, keep: Tensor) -> None:
        if self.used:
            self.rate = self.rate[keep]
        for name, tensor in self.state().items():
            setattr(self, name, tensor[keep])

    def state(self) -> dict[str, Tensor]:
        return {"values": self.values, "stats": self.stats, "steps": self.steps} if self.used else {}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
