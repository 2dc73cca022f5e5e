"""Executor that trains populations as tasks on a Dask cluster. The main process stores results in the run database."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ..errors import UserError
from ..jobs import Record
from ..model.encoders import Encoders
from ..recordings import Recordings
from ..runs.database import FINISHED, Entry, OpenPopulation
from ..runs.executor import DTYPE, TrainableRun, make_job, serialize_outcome, split_population
from ..training.closed_form import make_population
from ..training.memory import first_line, is_out_of_memory
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.train import train_population
from ..training.windows import prepare_windows, release_windows
from ..versions import versions

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed

RESUME = "continue with: autotransfer resume {} --cluster …"
SAME_VERSIONS = ("autotransfer", "torch")  # packages that must have the same version on all workers

JobResult = tuple[str, Record, bytes]  # key, record and tensors of a finished job, as the run database stores them


def train_task(
    recordings: Recordings,
    entries: Sequence[Entry],
    device: str,
    encoders: Encoders | None,
    folds: int | None = None,
    expected: Mapping[str, str] | None = None,
) -> list[JobResult]:
    """Train one population on a worker, and return its results. expected: versions that the worker must have."""
    if expected is not None:
        _check_same_versions(expected, versions(), "a new worker")
    jobs = [make_job(recordings, entry, folds) for entry in entries]
    keys = {id(job): entry.key for job, entry in zip(jobs, entries, strict=True)}
    results = []
    try:
        windows = prepare_windows(recordings, jobs[0], device=resolve_device(device), dtype=DTYPE)
        population = make_population(jobs, windows, encoders)
        for outcome in train_population(population):
            results.append((keys[id(outcome.job)], outcome.record(), serialize_outcome(outcome)))
    finally:
        release_windows(recordings)
    return results


class Cluster:
    """Executor on the workers of the Dask scheduler at `address`."""

    def __init__(self, address: str) -> None:
        self.client = _connect(address)
        self.workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        _check_versions(self.client)
        self._device: torch.device | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def device(self, name: str) -> torch.device:
        """Return the device for all workers, which is the CPU unless every worker has a GPU."""
        if self._device is None:
            devices = self.client.run(resolve_device, name)
            if not devices:
                raise UserError("the cluster has no workers; start some, or omit --cluster")
            self._device = torch.device(min(device.type for device in devices.values()))  # cpu before cuda
        return self._device

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        from distributed import as_completed

        entries_by_key = {entry.key: entry for entry in entries}
        populations: dict[Future, OpenPopulation] = {}
        completed = as_completed(raise_errors=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            data = self.client.submit(_get_recordings, run.recordings, pure=False)
        try:
            self._submit_open(run, entries_by_key, data, populations, completed)
            for future in completed:
                population = populations.pop(future)
                try:
                    results: list[JobResult] = future.result()
                except Exception as error:  # a failed fit or a lost worker
                    _handle_failure(run, population, error)
                    self._submit_open(run, entries_by_key, data, populations, completed)
                    continue
                for key, record, tensors in results:
                    run.database.finish(key, record, tensors)
                failed = [record.failure is not None for _, record, _ in results]
                scores = [record.validation_score for _, record, _ in results]
                bar.add_results([entries_by_key[key].setting.max_epochs for key, *_ in results], failed, scores)
                run.database.end_population(population.number)
                future.release()
        finally:
            self.client.cancel([*populations, data], force=True)

    def _submit_open(
        self, run: TrainableRun, entries: dict[str, Entry], data: Future, populations: dict[Future, OpenPopulation],
        completed: as_completed,
    ) -> None:  # fmt: skip
        """Submit every open population that is not submitted yet."""
        statuses = run.database.statuses()
        submitted = {population.number for population in populations.values()}
        for population in run.database.open_populations():
            if population.number in submitted:
                continue
            unfinished = [entries[key] for key in population.keys if statuses[key] not in FINISHED]
            if not unfinished:
                run.database.end_population(population.number)
                continue
            run.database.begin([entry.key for entry in unfinished])
            future = self.client.submit(
                train_task, data, unfinished, run.options.device, run.encoders,
                run.options.n_folds, versions(), pure=False,
            )  # fmt: skip
            populations[future] = population
            completed.add(future)


def _get_recordings(recordings: Recordings) -> Recordings:
    """Return the recordings. Dask copies the result of this task to workers, and to a new worker if one is lost."""
    return recordings


def _handle_failure(run: TrainableRun, population: OpenPopulation, error: Exception) -> None:
    """Split a population that did not fit into memory; raise any other error."""
    reason, statuses = first_line(error), run.database.statuses()
    can_split = sum(statuses[key] not in FINISHED for key in population.keys) > 1
    # If several workers die with one population, it probably exceeds their memory.
    if is_out_of_memory(error) or (type(error).__name__ == "KilledWorker" and can_split):
        split_population(run, population, reason)
        return
    raise UserError(f"population {population.number} failed on the cluster: {reason}; {RESUME.format(run.folder)}")


def _connect(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError:
        raise UserError("--cluster needs Dask; install it with: pip install distributed") from None
    logging.getLogger("distributed").setLevel(logging.ERROR)
    try:
        return Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        reason = first_line(error)
        raise UserError(f"cannot reach a Dask scheduler at {address!r} ({reason}); give HOST:PORT") from None


def _check_versions(client: Client) -> None:
    """Raise if versions of a worker differ; warn if its kernels differ."""
    expected, by_worker = versions(), client.run(versions)
    for worker, installed in by_worker.items():
        _check_same_versions(expected, installed, f"the worker {worker}")
    workers = [worker for worker, installed in by_worker.items() if installed["kernels"] != expected["kernels"]]
    if workers:
        warnings.warn(
            f"the compiled kernels on {', '.join(workers)} differ, which changes the last digits of results; "
            "install the same wheel everywhere and set ATEN_CPU_CAPABILITY=avx2",
            stacklevel=2,
        )


def _check_same_versions(expected: Mapping[str, str], installed: Mapping[str, str], worker: str) -> None:
    for package in SAME_VERSIONS:
        if installed.get(package) != expected[package]:
            raise UserError(
                f"{worker} has {package} {installed.get(package)}, this process has {expected[package]}; "
                "install the same version everywhere"
            )
