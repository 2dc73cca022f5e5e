"""How long the trainings of a run take on this machine. Every estimate of time rests on this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..model.solved import SolvedOptions
from ..recordings import Recordings
from ..runs.executor import DTYPE
from ..runs.preparation import Preparation
from ..settings import NetworkSpec, Setting
from ..training.allocator import memory_kept
from ..training.batches import n_batches
from ..training.timing import SolvingSpeed, Speed, time_network, time_solving
from ..training.windows import release

PENALTY = 1.4  # times longer with a penalty than without
WRITING = 0.01  # seconds for each training in the ledger


@dataclass(frozen=True)
class Costs:
    """Seconds of a run's trainings, from the speed of each network and of each closed form."""

    recordings: Recordings
    speeds: dict[NetworkSpec, Speed | SolvingSpeed]

    @classmethod
    def measure(cls, prepared: Preparation, settings: Sequence[Setting]) -> Costs:
        """Time these settings; later questions may be about other epochs and folds."""
        recordings, encoders = prepared.recordings, prepared.encoders
        device, folds = prepared.device, prepared.folds
        sample = {setting.network_spec: setting for setting in reversed(settings)}  # the first, without a penalty
        speeds: dict[NetworkSpec, Speed | SolvingSpeed] = {}
        try:
            with memory_kept():
                for alike in _alike(sample).values():
                    forms = [sample[spec] for spec in alike]
                    if forms[0].network.closed_form:
                        speed: Speed | SolvingSpeed = time_solving(recordings, forms, folds, device, DTYPE, encoders)
                    else:
                        speed = time_network(recordings, forms[0], folds, device, DTYPE, encoders)
                    speeds |= dict.fromkeys(alike, speed)
        finally:
            release(recordings)
        return cls(recordings, speeds)

    def training(self, setting: Setting, held_out: int) -> float:
        """Seconds of one training that holds out so many people."""
        n, people = self.recordings.n_trials, self.recordings.n_subjects
        speed = self.speeds[setting.network_spec]
        if isinstance(speed, SolvingSpeed):
            return speed.fold + n * speed.row + WRITING
        rows = n * held_out / people
        steps = n_batches(int(n - rows), setting.training.batch_size)
        factor = 1.0 if setting.penalty is None else PENALTY
        return setting.max_epochs * (steps * factor * speed.step + rows * speed.row) + WRITING

    def stage(self, settings: Sequence[Setting], groups: Sequence[Sequence[int]]) -> float:
        """Seconds of a training of each setting on every fold. Work that is done once for all folds is done once for
        settings that share it, too. groups: who are held out together."""
        speeds = [self.speeds.get(spec) for spec in {setting.network_spec for setting in settings}]
        once = sum(speed.once for speed in speeds if isinstance(speed, SolvingSpeed))
        held_out = sum(map(len, groups[:2]))
        return once + len(groups) * sum(self.training(setting, held_out) for setting in settings)


def _alike(specs: Iterable[NetworkSpec]) -> dict[object, list[NetworkSpec]]:
    """Closed forms that differ in their shrinkage only, and share all other work, in one group; each network in its
    own."""
    alike: dict[object, list[NetworkSpec]] = {}
    for spec in specs:
        solved = isinstance(spec.network, SolvedOptions)
        alike.setdefault((spec.encoder, spec.preprocessing) if solved else spec, []).append(spec)
    return alike
