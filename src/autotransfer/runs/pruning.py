"""Which members of a population are given up early, and when. Decided by validation scores alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..training.evaluation import MEASURED
from ..training.trainer import Trainer

STAY = 3  # of each method at least, under successive halving: as many as the shortlist takes


class Pruning(NamedTuple):
    """`first`: the epoch after which the worse half is given up; None: nobody ever is.

    by_method: successive halving. Members are compared within each method and schedule, because after an eighth of the
    epochs scores under a falling rate and a constant one are not comparable; and there is another cut whenever the
    number of epochs has doubled.
    """

    first: int | None
    by_method: bool

    def due(self, epoch: int) -> bool:
        if self.first is None or epoch % self.first:
            return False
        doublings = epoch // self.first
        return doublings == 1 or (self.by_method and doublings & (doublings - 1) == 0)

    def losers(self, population: Trainer, keys: Sequence[str]) -> list[str]:
        """The members, by key, that do worst on their validation subjects now. Baselines always stay."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for member, job in enumerate(population.jobs):
            setting = job.setting
            if setting.method is not None and member not in population.over:
                training = setting.training
                alike = (setting.method, training.schedule, training.checkpoint) if self.by_method else ()
                groups.setdefault(alike, []).append(member)
        scores = population.snapshots.history[:, population.epoch - 1].tolist()
        columns = [MEASURED.index(f"score_{population.side(member)}") for member in range(len(keys))]
        lost: list[str] = []
        for members in groups.values():
            members.sort(key=lambda member: (scores[member][columns[member]], keys[member]))
            count = len(members) // 2
            if self.by_method:
                count = min(count, max(len(members) - STAY, 0))
            lost += [keys[member] for member in members[:count]]
        return lost
