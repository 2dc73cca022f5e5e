"""Populations as tasks on a Dask cluster: the other place where a run can be trained.

Recordings travel to every worker once. What a worker returns is written into the same ledger as at home, so killing
this process, a worker or all of them costs the populations in flight and nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .errors import UserError
from .model.encoders import Encoders
from .recordings import Recordings
from .runs.here import worse_half
from .runs.ledger import FINISHED, Entry, OpenPopulation
from .runs.place import DTYPE, Work
from .runs.records import record_of, tensors_of
from .runs.run import job_of, versions
from .training.packing import resolve_device
from .training.population import Population
from .training.progress import Progress
from .training.train import run as train_population
from .training.train import windows_for

if TYPE_CHECKING:
    from distributed import Client, Future

TRIES = 3  # of a population, each lost with its worker
MATTERS = ("autotransfer", "torch")  # packages whose versions must agree everywhere


class Finished(NamedTuple):
    """A job that a worker has finished, ready for the ledger."""

    key: str
    record: dict[str, Any]
    tensors: bytes
    max_epochs: int


def train_task(
    recordings: Recordings,
    entries: Sequence[Entry],
    prune_at: int | None,
    device: str,
    encoders: Encoders | None,
) -> list[Finished]:
    """What runs on a worker: one population from its first epoch to its last."""
    place = _device_of_worker(device)
    jobs = [job_of(recordings, entry) for entry in entries]
    members = {id(job): entry.key for job, entry in zip(jobs, entries, strict=True)}
    windows = windows_for(recordings, jobs[0], {}, device=place, dtype=DTYPE)
    population = Population(recordings, jobs, windows, DTYPE, encoders)
    pruned: set[str] = set()

    def give_up(population: Population) -> list[int]:
        if population.epoch != prune_at:
            return []
        keys = [members[id(job)] for job in population.jobs]
        pruned.update(worse_half(population, keys))
        return [position for position, key in enumerate(keys) if key in pruned]

    finished = []
    for outcome in train_population(population, give_up=give_up):
        key = members[id(outcome.job)]
        record = record_of(outcome) | {"pruned": key in pruned}
        finished.append(Finished(key, record, tensors_of(outcome), outcome.job.setting.max_epochs))
    return finished


def _device_of_worker(asked: str) -> torch.device:
    """The device asked for; workers of one host that see several GPUs take one each."""
    device = resolve_device(asked)
    if device.type != "cuda" or device.index is not None or torch.cuda.device_count() < 2:
        return device
    from distributed import get_worker

    name = str(get_worker().name)  # a local cluster counts its workers
    number = int(name) if name.isdigit() else hash(name)
    return torch.device("cuda", number % torch.cuda.device_count())


class Cluster:
    """A place with many workers. `address`: a Dask scheduler's, or local:N for N processes on this machine."""

    def __init__(self, address: str) -> None:
        self.client = _connect(address)
        self.workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        _check_versions(self.client)
        self._data: Future | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.client.cluster is not None:
            self.client.cluster.close()

    def device(self, asked: str) -> torch.device:
        """The worst that a worker has: populations are packed before it is known who trains them."""
        kinds = self.client.run(_kind_of_device, asked)
        if not kinds:
            raise UserError("the cluster has no workers; start some, or leave --cluster away")
        return torch.device("cpu" if "cpu" in kinds.values() else "cuda")

    def train(self, run: Work, bar: Progress) -> None:
        from distributed import as_completed

        waiting: dict[Future, OpenPopulation] = {}
        failures: dict[int, int] = {}
        for found in run.ledger.open_populations():
            self._submit(run, found, waiting)
        arriving = as_completed(list(waiting), raise_errors=False)
        try:
            for future in arriving:
                found = waiting.pop(future)
                if future.status == "finished":
                    arrived: list[Finished] = future.result()
                    for finished in arrived:
                        run.ledger.finish(finished.key, finished.record, finished.tensors)
                    bar.elsewhere([finished.max_epochs for finished in arrived])
                    run.ledger.end_population(found.number)
                    future.release()
                    continue
                failures[found.number] = failures.get(found.number, 0) + 1
                if not _was_lost(future) or failures[found.number] >= TRIES:
                    raise UserError(
                        f"population {found.number} failed on the cluster {failures[found.number]} times: "
                        f"{_reason(future)}; continue with: autotransfer resume {run.folder} --cluster …"
                    )
                self._data = None  # it may have been lost with the worker
                again = self._submit(run, found, waiting)
                if again is not None:
                    arriving.add(again)
        finally:
            self.client.cancel(list(waiting), force=True)

    def _submit(self, run: Work, found: OpenPopulation, waiting: dict[Future, OpenPopulation]) -> Future | None:
        known = {entry.key: entry for entry in run.ledger.entries()}
        todo = [known[key] for key in found.keys if known[key].status not in FINISHED]
        if not todo:
            run.ledger.end_population(found.number)
            return None
        run.ledger.begin([entry.key for entry in todo])
        if self._data is None:
            self._data = self.client.scatter(run.recordings, broadcast=True, hash=False)
        future = self.client.submit(
            train_task, self._data, todo, found.prune_at, run.options.device, run.encoders, pure=False
        )
        waiting[future] = found
        return future


def _kind_of_device(asked: str) -> str:
    return resolve_device(asked).type


def _was_lost(future: Future) -> bool:
    """Whether a worker or the data went missing, rather than the training being at fault."""
    if future.status in ("lost", "cancelled"):
        return True
    return type(future.exception()).__name__ in ("KilledWorker", "FutureCancelledError", "CommClosedError")


def _reason(future: Future) -> str:
    if future.status in ("lost", "cancelled"):
        return f"it was {future.status}"
    text = str(future.exception())
    return text.splitlines()[0] if text else type(future.exception()).__name__


def _connect(address: str) -> Client:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise UserError("--cluster needs Dask; install it with: pip install 'autotransfer[cluster]'") from None
    # A worker that is told to stop is killed after a while anyway; nobody needs to read of it.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if address.startswith("local:"):
        number = address.removeprefix("local:")
        if not number.isdigit() or int(number) < 1:
            raise UserError(f"the cluster is {address!r}; give local:N with N at least 1, or a scheduler's address")
        threads = max(1, (os.cpu_count() or 1) // int(number))
        cluster = LocalCluster(
            n_workers=int(number), threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
            env={"OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        return Client(cluster)
    try:
        client = Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot reach a Dask scheduler at {address!r} ({reason}); give host:port or local:N") from None
    return client


def _check_versions(client: Client) -> None:
    """A worker with other code would give other results without a word."""
    own = versions()
    for worker, theirs in client.run(versions).items():
        for package in MATTERS:
            if theirs.get(package) != own[package]:
                raise UserError(
                    f"the worker {worker} has {package} {theirs.get(package)}, this process has {own[package]}; "
                    "install the same version everywhere"
                )
