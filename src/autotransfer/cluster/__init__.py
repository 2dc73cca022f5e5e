"""Populations as tasks on a Dask cluster: the other executor of a run.

Recordings are a task, too, so that Dask sends them to a worker when it needs them, and makes them again where they were
lost. What a worker returns is written into the same database as in a local run, so killing this process, a worker or
all of them costs only the populations in flight.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..errors import UserError
from ..jobs import Record
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..recordings.optional import pip_install
from ..runs.database import FINISHED, Entry, OpenPopulation
from ..runs.executor import DTYPE, Work, make_job, tensors_of, train_halves
from ..training.closed_form import make_population
from ..training.memory import first_line, is_out_of_memory
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.train import run as train_population
from ..training.windows import prepare_windows, release_windows
from ..versions import versions

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed

GO_ON = "continue with: autotransfer resume {} --cluster …"
MATTERS = ("autotransfer", "torch")  # packages whose versions must agree everywhere


class Finished(NamedTuple):
    """A job that a worker has finished, ready for the database."""

    key: str
    record: Record
    tensors: bytes
    max_epochs: int


def train_task(
    recordings: Recordings,
    entries: Sequence[Entry],
    device: str,
    encoders: Encoders | None,
    folds: int | None = None,
    expected: Mapping[str, str] | None = None,
) -> list[Finished]:
    """Train one population from its first epoch to its last; runs on a worker. expected: versions of the main process,
    since a worker may have joined after they were compared."""
    if expected is not None:
        _check_same_versions(expected, versions(), "a worker that joined later")
    place = _device_of_worker(device)
    jobs = [make_job(recordings, entry, folds) for entry in entries]
    members = {id(job): entry.key for job, entry in zip(jobs, entries, strict=True)}
    finished = []
    try:
        windows = prepare_windows(recordings, jobs[0], device=place, dtype=DTYPE)
        population = make_population(jobs, windows, encoders)
        for outcome in train_population(population):
            key = members[id(outcome.job)]
            finished.append(Finished(key, outcome.record(), tensors_of(outcome), outcome.job.setting.max_epochs))
    finally:
        release_windows(recordings)
    return finished


def _device_of_worker(asked: str) -> torch.device:
    """The device asked for; where a worker sees several GPUs, the one of the number at the end of its name."""
    device = resolve_device(asked)
    if device.type != "cuda" or device.index is not None or torch.cuda.device_count() < 2:
        return device
    from distributed import get_worker

    number = re.search(r"\d+$", str(get_worker().name))
    return torch.device("cuda", int(number[0]) % torch.cuda.device_count() if number else 0)


class Cluster:
    """An executor with many workers. `address`: a Dask scheduler's."""

    def __init__(self, address: str) -> None:
        self.client = _connect(address)
        self.workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        _check_versions(self.client)
        self._device: torch.device | None = None  # the weakest of any worker

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def device(self, asked: str) -> torch.device:
        """The weakest device of any worker: populations are packed before it is known who trains them."""
        if self._device is None:
            kinds = self.client.run(_kind_of_device, asked)
            if not kinds:
                raise UserError("the cluster has no workers; start some, or omit --cluster")
            self._device = torch.device("cpu" if "cpu" in kinds.values() else "cuda")
        return self._device

    def train(self, run: Work, bar: Progress) -> None:
        from distributed import as_completed

        waiting: dict[Future, OpenPopulation] = {}
        arriving = as_completed(raise_errors=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            data = self.client.submit(_unchanged, run.recordings, pure=False)
        try:
            self._submit_open(run, data, waiting, arriving)
            for future in arriving:
                population = waiting.pop(future)
                try:
                    arrived: list[Finished] = future.result()
                except Exception as error:  # of the training, or of a lost worker
                    _handle_failure(run, population, error)
                    self._submit_open(run, data, waiting, arriving)
                    continue
                for finished in arrived:
                    run.database.finish(finished.key, finished.record, finished.tensors)
                failed = [finished.record.failure is not None for finished in arrived]
                bar.add_results([finished.max_epochs for finished in arrived], failed)
                run.database.end_population(population.number)
                future.release()
        finally:
            self.client.cancel([*waiting, data], force=True)

    def _submit_open(
        self, run: Work, data: Future, waiting: dict[Future, OpenPopulation], arriving: as_completed
    ) -> None:
        """Submit every open population that no worker has."""
        known = {entry.key: entry for entry in run.database.entries(records=False)}
        handed_out = {busy.number for busy in waiting.values()}
        for population in run.database.open_populations():
            if population.number in handed_out:
                continue
            todo = [known[key] for key in population.keys if known[key].status not in FINISHED]
            if not todo:
                run.database.end_population(population.number)
                continue
            run.database.begin([entry.key for entry in todo])
            future = self.client.submit(
                train_task, data, todo, run.options.device, run.encoders,
                run.options.n_folds, versions(), pure=False,
            )  # fmt: skip
            waiting[future] = population
            arriving.add(future)


def _unchanged(recordings: Recordings) -> Recordings:
    """Return the recordings, as a task that every population needs."""
    return recordings


def _handle_failure(run: Work, population: OpenPopulation, error: Exception) -> None:
    """Split a population for which memory was short; raise for any other error."""
    reason, statuses = first_line(error), run.database.statuses()
    several = sum(statuses[key] not in FINISHED for key in population.keys) > 1
    # A population that takes one worker after another with it has most likely met the system's memory limit.
    if is_out_of_memory(error) or (type(error).__name__ == "KilledWorker" and several):
        train_halves(run, population, reason)
        return
    raise UserError(f"population {population.number} failed on the cluster: {reason}; {GO_ON.format(run.folder)}")


def _kind_of_device(asked: str) -> str:
    return resolve_device(asked).type


def _connect(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise UserError(f"--cluster needs Dask; install it with: {pip_install('distributed')}") from None
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        return Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        reason = first_line(error)
        raise UserError(f"cannot reach a Dask scheduler at {address!r} ({reason}); give host:port") from None


def _check_versions(client: Client) -> None:
    """Refuse workers with other versions, which would silently give other results."""
    expected, others = versions(), client.run(versions)
    for worker, installed in others.items():
        _check_same_versions(expected, installed, f"the worker {worker}")
    differing = [name for name, installed in others.items() if installed["kernels"] != expected["kernels"]]
    if differing:
        warnings.warn(
            f"compiled kernels are not the same on {', '.join(differing)}: what is trained there differs in its last "
            "digits; install the same wheel everywhere and set ATEN_CPU_CAPABILITY=avx2 to avoid that",
            stacklevel=2,
        )


def _check_same_versions(expected: Mapping[str, str], installed: Mapping[str, str], worker: str) -> None:
    for package in MATTERS:
        if installed.get(package) != expected[package]:
            raise UserError(
                f"{worker} has {package} {installed.get(package)}, this process has {expected[package]}; "
                "install the same version everywhere"
            )
