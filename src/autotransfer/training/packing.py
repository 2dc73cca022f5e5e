"""Packing of jobs into populations that fit into memory. Jobs of one program have tensors of equal shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from ..errors import UserError, shown
from ..jobs import Job
from ..machine import available_memory, count_cores
from ..model.encoders import Encoders, encoder_options
from ..preprocessing import Preprocessing
from ..recordings import Recordings
from .evaluation import CHUNK, HISTORY_COLUMNS
from .members import size_of

CPU_LIMIT = 64  # members of a population on a CPU; larger stacks are not faster
MEMORY_SHARE = 0.5  # share of the free memory that a population may use


def resolve_device(name: str | torch.device) -> torch.device:
    """Return the torch device of a name; 'auto' is the first GPU, or the CPU if there is no GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:  # unknown, missing or full
        reason = str(error).splitlines()[0][:160]
        raise UserError(f"cannot use the device {shown(str(name))} ({reason}); choose auto, cpu or cuda") from None
    return device


def free_memory(device: torch.device) -> int:
    """Return the free memory of the device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory() or 2**32


def free_values_per_window(
    recordings: Recordings, device: torch.device, dtype: torch.dtype, preprocessing: Preprocessing
) -> float:
    """Return the number of further values per window that fit on the device; negative if the windows do not fit."""
    channels, times = preprocessing.shape(recordings.n_channels, recordings.n_times)
    size = max(channels * times, recordings.n_channels * recordings.n_times)
    return MEMORY_SHARE * free_memory(device) / (recordings.n_windows * dtype.itemsize) - size


def member_bytes(recordings: Recordings, job: Job, dtype: torch.dtype, encoders: Encoders | None = None) -> int:
    """Return an upper bound on the bytes that one member needs in a training step."""
    setting, size = job.setting, size_of(recordings, job.setting)
    batch = min(setting.training.batch_size, len(job.fold.train))
    network = encoder_options(setting.encoder, setting.network, encoders)
    signals = network.member_bytes(size, batch, dtype.itemsize)
    # A step that transforms windows or computes their moments makes 5 temporary copies, according to measurements.
    preprocessing = setting.preprocessing
    is_transformed = preprocessing.is_applied_each_step or not preprocessing.has_cached_moments or setting.augmentation
    prepared = 5 * batch * size.channels * size.times if is_transformed else 0
    censor = 0 if setting.penalty is None else 16 * batch * batch
    log_probs = 3 * (len(job.fold.validation) + len(job.fold.test) + CHUNK) * recordings.n_classes
    return signals + dtype.itemsize * (prepared + censor + log_probs) + 8 * len(HISTORY_COLUMNS) * setting.max_epochs


def program_of(recordings: Recordings, job: Job) -> tuple[object, ...]:
    """Return a key that is equal for jobs of one program, which can be stacked."""
    setting, train = job.setting, job.fold.train
    return (
        setting.encoder, *setting.network.program(recordings.sfreq), setting.preprocessing, setting.augmentation,
        min(setting.training.batch_size, len(train)), len(np.unique(recordings.subject.numpy()[train])),
    )  # fmt: skip


def pack(
    recordings: Recordings, jobs: Sequence[Job], limit: int | str, *, device: torch.device, dtype: torch.dtype,
    encoders: Encoders | None = None, workers: int = 1,
) -> list[list[int]]:  # fmt: skip
    """Return the positions of the jobs of each population. Jobs of one code path are adjacent.

    limit: largest number of members, or 'auto'; workers: number of processes that need a population each
    """
    if limit != "auto" and (not isinstance(limit, int) or limit < 1):
        raise UserError(f"population is {limit!r}; give 'auto' or an integer of at least 1")
    programs: dict[tuple[object, ...], list[int]] = {}
    for position, job in enumerate(jobs):
        programs.setdefault(program_of(recordings, job), []).append(position)
    populations = []
    for positions in programs.values():
        positions.sort(key=lambda position: (str(jobs[position].setting.code_path), position))
        if limit == "auto":
            largest = max(member_bytes(recordings, jobs[position], dtype, encoders) for position in positions)
            size = max(1, int(MEMORY_SHARE * free_memory(device)) // largest)
            size = min(size, CPU_LIMIT) if device.type == "cpu" else size
            size = min(size, count_cores()) if jobs[positions[0]].setting.network.is_fitted_by_one_core else size
        else:
            size = int(limit)
        n_busy_workers = max(1, round(workers * len(positions) / len(jobs)))
        # Populations have equal sizes, because full populations would leave a small last population.
        count = max(-(-len(positions) // size), min(n_busy_workers, len(positions)))
        edges = [len(positions) * i // count for i in range(count + 1)]
        populations += [positions[start:stop] for start, stop in pairwise(edges)]
    return populations
