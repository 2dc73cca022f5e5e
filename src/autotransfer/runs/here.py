"""Training in this process: one population after another, each checkpointed every few seconds."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from ..training.memory import first_line, no_room, out_of_memory
from ..training.packing import resolve_device
from ..training.population import Population
from ..training.progress import Progress
from ..training.train import Prepared, windows_for
from ..training.train import run as train_population
from .checkpoint import restore, save_checkpoint
from .ledger import FINISHED, Entry, OpenPopulation
from .place import DTYPE, Work
from .pruning import Pruning
from .records import record_of, tensors_of

CHECKPOINT_EVERY = 5.0  # seconds of training that a kill may cost


class Here:
    """The default place."""

    workers = 1

    def __init__(self) -> None:
        self._prepared: Prepared = {}

    def device(self, asked: str) -> torch.device:
        return resolve_device(asked)

    def after_epoch(self) -> None:
        """For a place that may not go on for ever: whatever it raises ends the work, and what was written stays."""

    def train(self, run: Work, bar: Progress) -> None:
        device = resolve_device(run.options.device)
        while populations := run.ledger.open_populations():
            first = populations[0]
            try:
                self._train(run, first, device, bar)
                continue
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = first_line(error)
            # Only here, where nothing refers to the error and to the frames that it holds, is their memory free.
            if device.type == "cuda":
                torch.cuda.empty_cache()
            split(run, first, reason)
            (run.folder / f"population-{first.number}.checkpoint").unlink(missing_ok=True)

    def _train(self, run: Work, found: OpenPopulation, device: torch.device, bar: Progress) -> None:
        """One population, from its checkpoint if it has one."""
        path = run.folder / f"population-{found.number}.checkpoint"
        known = {entry.key: entry for entry in run.ledger.entries()}
        todo = [key for key in found.keys if known[key].status not in FINISHED]
        if todo:
            population, members = self._population(run, todo, known, path, device)
            last = time.monotonic()

            def after_epoch(population: Population) -> None:
                nonlocal last
                bar.epoch(population)
                self.after_epoch()
                # A clock that was set back makes a checkpoint due, rather than none until it has caught up.
                if population.jobs and not 0 <= time.monotonic() - last <= CHECKPOINT_EVERY:
                    save_checkpoint(path, population, [members[id(job)] for job in population.jobs])
                    last = time.monotonic()

            pruning = Pruning(found.prune_at, by_method=run.options.search == "halving")
            pruned = pruned_before(run, found)

            def give_up(population: Population) -> list[int]:
                if not pruning.due(population.epoch):
                    return []
                # Decided once and noted first, so that a kill cannot decide otherwise.
                keys = [members[id(job)] for job in population.jobs]
                name = f"pruned {found.number} {population.epoch}"
                lost: list[str] | None = run.ledger.recall(name)
                if lost is None:
                    lost = pruning.losers(population, keys)
                    run.ledger.remember(**{name: lost})
                pruned.update(lost)
                return [place for place, key in enumerate(keys) if key in lost and place not in population.over]

            for outcome in train_population(population, give_up=give_up, after_epoch=after_epoch):
                key = members[id(outcome.job)]
                run.ledger.finish(key, record_of(outcome) | {"pruned": key in pruned}, tensors_of(outcome))
                bar.finished(outcome)
        run.ledger.end_population(found.number)
        path.unlink(missing_ok=True)

    def _population(
        self, run: Work, todo: list[str], known: dict[str, Entry], path: Path, device: torch.device
    ) -> tuple[Population, dict[int, str]]:
        """The population of these jobs, and the key of each by the identity of its Job."""
        jobs = {key: run.job(known[key]) for key in todo}
        windows = windows_for(run.recordings, jobs[todo[0]], self._prepared, device=device, dtype=DTYPE)
        everyone = jobs | {
            key: run.job(entry) for key, entry in known.items() if entry.status in FINISHED and path.exists()
        }
        restored = restore(run.recordings, everyone, windows, DTYPE, path, run.encoders)
        if restored is not None and set(todo) <= set(restored[1]):
            population, keys = restored
            alive = [place for place, key in enumerate(keys) if key in jobs]  # others ended after the checkpoint
            population.select(alive)
            keys = [keys[place] for place in alive]
        else:
            run.ledger.begin(todo)
            population = Population(run.recordings, [jobs[key] for key in todo], windows, DTYPE, run.encoders)
            keys = todo
        return population, {id(job): key for job, key in zip(population.jobs, keys, strict=True)}


def pruned_before(run: Work, found: OpenPopulation) -> set[str]:
    """Members that were given up before this process began."""
    start = f"pruned {found.number} "
    return {key for name, keys in run.ledger.facts().items() if name.startswith(start) for key in keys}


def split(run: Work, found: OpenPopulation, reason: str) -> None:
    """Train the halves of a population that did not fit into memory; a single member that does not is an error."""
    statuses = run.ledger.statuses()
    todo = [key for key in found.keys if statuses[key] not in FINISHED]
    if len(todo) < 2:
        raise no_room(reason)
    run.ledger.replace_population(found.number, [todo[: len(todo) // 2], todo[len(todo) // 2 :]])
