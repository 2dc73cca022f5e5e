"""Executor that trains populations as tasks on a Dask cluster; this process stores results in the run database."""

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
from ..recordings.optional import pip_install
from ..runs.database import FINISHED, Entry, OpenPopulation
from ..runs.executor import DTYPE, TrainableRun, make_job, split_population, tensors_of
from ..training.closed_form import make_population
from ..training.memory import first_line, is_out_of_memory
from ..training.packing import resolve_device
from ..training.progress import Progress
from ..training.train import run as train_population
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
    """Train one population on a worker. expected: versions of the main process, compared if the worker joined late."""
    if expected is not None:
        _check_same_versions(expected, versions(), "a new worker")
    jobs = [make_job(recordings, entry, folds) for entry in entries]
    members = {id(job): entry.key for job, entry in zip(jobs, entries, strict=True)}
    finished = []
    try:
        windows = prepare_windows(recordings, jobs[0], device=resolve_device(device), dtype=DTYPE)
        population = make_population(jobs, windows, encoders)
        for outcome in train_population(population):
            finished.append((members[id(outcome.job)], outcome.record(), tensors_of(outcome)))
    finally:
        release_windows(recordings)
    return finished


class Cluster:
    """Executor on the workers of the Dask scheduler at `address`."""

    def __init__(self, address: str) -> None:
        self.client = _connect(address)
        self.workers = max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))
        _check_versions(self.client)
        self._device: torch.device | None = None  # the weakest device of all workers

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def device(self, asked: str) -> torch.device:
        """Return the weakest device of all workers, because any of them may train a population."""
        if self._device is None:
            devices = self.client.run(resolve_device, asked)
            if not devices:
                raise UserError("the cluster has no workers; start some, or omit --cluster")
            self._device = torch.device(min(device.type for device in devices.values()))  # cpu before cuda
        return self._device

    def train(self, run: TrainableRun, entries: Sequence[Entry], bar: Progress) -> None:
        from distributed import as_completed

        known = {entry.key: entry for entry in entries}
        waiting: dict[Future, OpenPopulation] = {}
        arriving = as_completed(raise_errors=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            data = self.client.submit(_unchanged, run.recordings, pure=False)
        try:
            self._submit_open(run, known, data, waiting, arriving)
            for future in arriving:
                population = waiting.pop(future)
                try:
                    arrived: list[JobResult] = future.result()
                except Exception as error:  # of the fit, or of a lost worker
                    _handle_failure(run, population, error)
                    self._submit_open(run, known, data, waiting, arriving)
                    continue
                for key, record, tensors in arrived:
                    run.database.finish(key, record, tensors)
                failed = [record.failure is not None for _, record, _ in arrived]
                scores = [record.validation_score for _, record, _ in arrived]
                bar.add_results([known[key].setting.max_epochs for key, *_ in arrived], failed, scores)
                run.database.end_population(population.number)
                future.release()
        finally:
            self.client.cancel([*waiting, data], force=True)

    def _submit_open(
        self, run: TrainableRun, known: dict[str, Entry], data: Future, waiting: dict[Future, OpenPopulation],
        arriving: as_completed,
    ) -> None:  # fmt: skip
        """Submit every open population that no worker has."""
        statuses = run.database.statuses()
        submitted = {population.number for population in waiting.values()}
        for population in run.database.open_populations():
            if population.number in submitted:
                continue
            todo = [known[key] for key in population.keys if statuses[key] not in FINISHED]
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
    """Return the recordings; a task, so that Dask distributes them, and recomputes them if they are lost."""
    return recordings


def _handle_failure(run: TrainableRun, population: OpenPopulation, error: Exception) -> None:
    """Split a population that did not fit into memory; raise any other error."""
    reason, statuses = first_line(error), run.database.statuses()
    several = sum(statuses[key] not in FINISHED for key in population.keys) > 1
    # A population that kills one worker after another most likely exceeds the memory limit of the system.
    if is_out_of_memory(error) or (type(error).__name__ == "KilledWorker" and several):
        split_population(run, population, reason)
        return
    raise UserError(f"population {population.number} failed on the cluster: {reason}; {RESUME.format(run.folder)}")


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
        raise UserError(f"cannot reach a Dask scheduler at {address!r} ({reason}); give HOST:PORT") from None


def _check_versions(client: Client) -> None:
    """Raise if a worker has other versions, because results would silently differ."""
    expected, others = versions(), client.run(versions)
    for worker, installed in others.items():
        _check_same_versions(expected, installed, f"the worker {worker}")
    differing = [name for name, installed in others.items() if installed["kernels"] != expected["kernels"]]
    if differing:
        warnings.warn(
            f"compiled kernels differ on {', '.join(differing)}, and so do the last digits of results; "
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
