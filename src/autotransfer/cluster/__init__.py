"""Populations as tasks on a Dask cluster: the other executor of a run.

Recordings travel to every worker once. What a worker returns is written into the same ledger as at home, so killing
this process, a worker or all of them costs the populations in flight and nothing else.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from ..errors import UserError
from ..jobs import Record
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.executor import DTYPE, Work, split, tensors_of
from ..runs.ledger import FINISHED, Entry, OpenPopulation
from ..runs.provenance import versions
from ..runs.pruning import Pruning
from ..runs.run import job_of
from ..training.closed_form import population_of
from ..training.memory import first_line, out_of_memory
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.train import run as train_population
from ..training.trainer import Trainer
from ..training.windows import release, windows_for

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed

TRIES = 3  # of a population, each lost with its worker
WORKERS_WITHIN = 60  # seconds in which one that was lost must be replaced
LOSSES = 10  # of all workers at once, without a population coming back in between
# Errors that say a worker or the data went missing, rather than that the training is at fault
LOST = ("KilledWorker", "CommClosedError", "TimeoutError")
CANCELLED = ("FutureCancelledError", "CancelledError")
MATTERS = ("autotransfer", "torch")  # packages whose versions must agree everywhere


class Finished(NamedTuple):
    """A job that a worker has finished, ready for the ledger."""

    key: str
    record: Record
    tensors: bytes
    max_epochs: int


def train_task(
    recordings: Recordings,
    entries: Sequence[Entry],
    pruning: Pruning,
    device: str,
    encoders: Encoders | None,
    folds: int | None = None,
    expected: Mapping[str, str] | None = None,
) -> list[Finished]:
    """What runs on a worker: one population from its first epoch to its last. expected: the versions at home, for a
    worker may have joined after they were compared."""
    if expected is not None:
        _refuse_others(expected, versions(), "a worker that joined later")
    place = _device_of_worker(device)
    jobs = [job_of(recordings, entry, folds) for entry in entries]
    members = {id(job): entry.key for job, entry in zip(jobs, entries, strict=True)}
    pruned: set[str] = set()

    def give_up(population: Trainer) -> list[int]:
        if not pruning.due(population.epoch):
            return []
        keys = [members[id(job)] for job in population.jobs]
        lost = pruning.losers(population, keys)
        pruned.update(lost)
        return [position for position, key in enumerate(keys) if key in lost]

    finished = []
    try:
        windows = windows_for(recordings, jobs[0], device=place, dtype=DTYPE)
        population = population_of(recordings, jobs, windows, DTYPE, encoders)
        for outcome in train_population(population, give_up=give_up):
            key = members[id(outcome.job)]
            record = outcome.record(pruned=key in pruned)
            finished.append(Finished(key, record, tensors_of(outcome), outcome.job.setting.max_epochs))
    finally:
        release(recordings)
    return finished


def _device_of_worker(asked: str) -> torch.device:
    """The device asked for; workers of one host that see several GPUs take one each."""
    device = resolve_device(asked)
    if device.type != "cuda" or device.index is not None or torch.cuda.device_count() < 2:
        return device
    from distributed import get_client, get_worker

    worker = get_worker()
    if worker.id not in _places:  # once: others may be lost and come back, and must not change it
        known = get_client().scheduler_info(n_workers=-1)["workers"]
        _places[worker.id] = _place(str(worker.name), {str(one["name"]): one["host"] for one in known.values()})
    return torch.device("cuda", _places[worker.id] % torch.cuda.device_count())


_places: dict[str, int] = {}  # of workers in this process, by their ids


def _place(name: str, hosts: Mapping[str, str]) -> int:
    """Which of the workers on its host one is, counted from 0; hosts: of all workers, by their names, which a worker
    that is started again keeps."""
    neighbours = {one for one, host in hosts.items() if host == hosts.get(name)} | {name}
    return sorted(neighbours, key=lambda one: (len(one), one)).index(name)


class Cluster:
    """An executor with many workers. `address`: a Dask scheduler's, or local:N for N processes on this machine."""

    def __init__(self, address: str) -> None:
        self.client = _connect(address)
        self.workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        _check_versions(self.client)
        self._data: Future | None = None  # the recordings where the workers are
        self._held: Recordings | None = None  # whose they are
        self._lost = 0  # populations, since one last came back

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
            raise UserError("the cluster has no workers; start some, or omit --cluster")
        return torch.device("cpu" if "cpu" in kinds.values() else "cuda")

    def train(self, run: Work, bar: Progress) -> None:
        from distributed import as_completed

        waiting: dict[Future, OpenPopulation] = {}
        failures: Counter[int] = Counter()
        arriving = as_completed(raise_errors=False)
        try:
            self._submit_open(run, waiting, arriving)
            for future in arriving:
                found = waiting.pop(future)
                try:
                    arrived: list[Finished] = future.result()
                except Exception as error:  # the training's, or of a worker that is gone
                    self._cope(run, found, error, failures)
                    self._submit_open(run, waiting, arriving)
                    continue
                for finished in arrived:
                    run.ledger.finish(finished.key, finished.record, finished.tensors)
                failed = [finished.record.failure is not None for finished in arrived]
                bar.elsewhere([finished.max_epochs for finished in arrived], failed)
                run.ledger.end_population(found.number)
                future.release()
                self._lost = 0
        finally:
            self.client.cancel(list(waiting), force=True)

    def _cope(self, run: Work, found: OpenPopulation, error: Exception, failures: Counter[int]) -> None:
        """A population that did not come back: in halves if memory was short, else once more, else an error."""
        kind, reason = type(error).__name__, first_line(error)
        statuses = run.ledger.statuses()
        several = sum(statuses[key] not in FINISHED for key in found.keys) > 1
        # A population that takes one worker after another with it has most likely met the system's memory limit.
        if out_of_memory(error) or (kind == "KilledWorker" and several):
            split(run, found, reason)
            return
        if kind in CANCELLED:  # with the last worker that had the data, and all other populations with it
            self._lost += 1
            hopeless = self._lost > LOSSES * len(run.ledger.open_populations())
        else:
            failures[found.number] += 1
            hopeless = kind not in LOST or failures[found.number] >= TRIES
        if hopeless:
            raise UserError(
                f"population {found.number} failed on the cluster: {reason}; "
                f"continue with: autotransfer resume {run.folder} --cluster …"
            )
        if self._data is not None and self._data.status != "finished":
            self._data = None

    def _submit_open(self, run: Work, waiting: dict[Future, OpenPopulation], arriving: as_completed) -> None:
        """Hand out every population that nobody is working on."""
        known = {entry.key: entry for entry in run.ledger.entries(records=False)}
        handed_out = {population.number for population in waiting.values()}
        for found in run.ledger.open_populations():
            if found.number in handed_out:
                continue
            todo = [known[key] for key in found.keys if known[key].status not in FINISHED]
            if not todo:
                run.ledger.end_population(found.number)
                continue
            run.ledger.begin([entry.key for entry in todo])
            pruning = Pruning(found.prune_at, by_method=run.options.search == "halving")
            future = self.client.submit(
                train_task, self._recordings(run), todo, pruning, run.options.device, run.encoders, run.options.n_folds,
                versions(), pure=False,
            )  # fmt: skip
            waiting[future] = found
            arriving.add(future)

    def _recordings(self, run: Work) -> Future:
        """The data where the workers are; those may be on their way back from a crash."""
        deadline = time.monotonic() + WORKERS_WITHIN
        if self._held is not run.recordings:  # another run's data must not serve this one
            self._data, self._held = None, run.recordings
        while self._data is None:
            try:
                self._data = self.client.scatter(run.recordings, broadcast=True, hash=False)
            except (OSError, KeyError) as error:  # no worker, or one that went while it was being sent the data
                if time.monotonic() > deadline:
                    raise UserError(
                        f"no worker of the cluster takes the data ({first_line(error)}); "
                        f"continue with: autotransfer resume {run.folder} --cluster …"
                    ) from None
                time.sleep(0.5)
        return self._data


def _kind_of_device(asked: str) -> str:
    return resolve_device(asked).type


def _connect(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs Dask; install it with: pip install 'autotransfer[cluster]'") from None
    # A worker that is told to stop is killed after a while anyway; nobody needs to read of it.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if address.startswith("local:"):
        number = address.removeprefix("local:")
        if not number.isdigit() or int(number) < 1:
            raise UserError(f"the cluster is {address!r}; give local:N with N at least 1, or a scheduler's address")
        from .local import local_cluster

        return Client(local_cluster(int(number)))
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
        _refuse_others(own, theirs, f"the worker {worker}")
    have = client.run(has_kernels) | {"this process": has_kernels()}
    if len(set(have.values())) > 1:
        lacking = ", ".join(name for name, there in have.items() if not there)
        warnings.warn(
            f"no compiled kernels on {lacking}: what is trained there differs in its last digits; install a C compiler "
            "everywhere, or set AUTOTRANSFER_KERNELS=0 everywhere",
            stacklevel=2,
        )


def _refuse_others(own: Mapping[str, str], theirs: Mapping[str, str], worker: str) -> None:
    for package in MATTERS:
        if theirs.get(package) != own[package]:
            raise UserError(
                f"{worker} has {package} {theirs.get(package)}, this process has {own[package]}; "
                "install the same version everywhere"
            )


def has_kernels() -> bool:
    """Whether a step on a CPU runs compiled kernels in this process."""
    from ..cpu import available

    return available(torch.zeros(1))
