"""Which members of a population are given up early, decided by validation scores alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..training.evaluation import MEASURED
from ..training.trainer import Trainer


def losers(population: Trainer, keys: Sequence[str]) -> list[str]:
    """Return the keys of the worse half by the present validation score. Members without a penalty always stay."""
    scores = population.snapshots.history[:, population.epoch - 1].tolist()
    columns = [MEASURED.index(f"score_{population.side(member)}") for member in range(len(keys))]
    members = [
        member
        for member, job in enumerate(population.jobs)
        if job.setting.method is not None and member not in population.over
    ]
    members.sort(key=lambda member: (scores[member][columns[member]], keys[member]))
    return [keys[member] for member in members[: len(members) // 2]]
