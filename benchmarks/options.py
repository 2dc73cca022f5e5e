"""What was asked for: where to measure, how much, how long."""

from __future__ import annotations

from dataclasses import dataclass

# Seconds that the rounds of a section may take on top of its warm-ups: the whole stays below 15 minutes on two cores.
BUDGET = {
    "full": {"encoder": 150.0, "candidates": 60.0, "censors": 180.0, "growth": 90.0},
    "quick": {"encoder": 3.0, "candidates": 3.0, "censors": 5.0, "growth": 3.0},
    "tiny": {"encoder": 0.0, "candidates": 0.0, "censors": 0.0, "growth": 0.0},
}
CUDA_SHARE = 0.12  # of those seconds on a GPU, where a round is short: the whole stays below 3 minutes


@dataclass(frozen=True)
class Options:
    """One run of the benchmarks."""

    device: str = "cpu"
    size: str = "full"  # a result to quote; quick: a look in under a minute; tiny: the suite's check that all runs
    rounds: int = 7  # at most; a section whose budget is spent stops after two
    members: tuple[int, ...] | None = None  # sizes of populations in place of those that a section has

    def budget(self, section: str, parts: int) -> float:
        """Seconds for the rounds of one of the `parts` that a section measures."""
        share = CUDA_SHARE if self.device == "cuda" else 1.0
        return BUDGET[self.size][section] * share / max(parts, 1)
