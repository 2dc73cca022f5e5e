"""Weights of the average for sessions: over the candidates and the closed forms that centre people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..runs.run import Run
from ..settings import Setting
from .average import Nested, Weights, find_nested, find_weights
from .held_out import HeldOutLogProbs, trained_candidates
from .validation import finished_entries


class OnlineWeights(NamedTuple):
    """settings: candidates, then closed forms that centre people, held-out people in the order of recording."""

    settings: list[Setting]
    weights: Weights
    nested: Nested


def find_online(run: Run, candidates: Sequence[Setting], centred: Sequence[Setting]) -> OnlineWeights | None:
    """None where no form centres people, or none of these has a weight."""
    if not centred:
        return None
    settings = [*candidates, *centred]
    entries = finished_entries(run, settings, run.folds())
    held_out = HeldOutLogProbs.of(run, settings, entries)
    among = trained_candidates(settings, entries)
    weights = find_weights(held_out, among)
    if not weights.exponents[len(candidates) :].any():
        return None
    return OnlineWeights(settings, weights, find_nested(held_out, among))
