"""Checkpoint files of populations in training: safetensors with a checksum, replaced atomically."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from .. import schema
from ..errors import UserError
from ..files import read_plain, write_atomically
from ..jobs import Job
from ..model.encoders import Encoders
from ..training.closed_form import make_population
from ..training.trainer import Trainer
from ..training.windows import Windows


@dataclass(frozen=True)
class CheckpointInfo:
    """Facts about the population in a checkpoint file."""

    keys: list[str]  # job keys of its members, in order
    epoch: int
    seconds: list[float]  # training time by member
    size: int  # number of members at the start


def save_checkpoint(path: Path, population: Trainer, keys: list[str]) -> None:
    """Write a population in training to a file. keys: job keys of its members, in order."""
    info = schema.to_json(CheckpointInfo(keys, population.epoch, population.seconds, population.size))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in population.state().items()}
    body = save(tensors, metadata={"population": info})
    write_atomically(path, hashlib.blake2b(body, digest_size=32).digest() + body)


def load_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], CheckpointInfo] | None:
    """Return tensors and facts of a checkpoint file; None if it is missing or damaged, so that training restarts."""
    try:
        content = read_plain(path)
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.blake2b(body, digest_size=32).digest() != digest:
        return None
    try:
        length = int.from_bytes(body[:8], "little")
        info = schema.from_json(CheckpointInfo, json.loads(body[8 : 8 + length])["__metadata__"]["population"])
        return load(body), info
    except (SafetensorError, ValueError, KeyError, TypeError, UserError):
        return None


def restore_population(
    jobs: dict[str, Job], windows: Windows, path: Path, encoders: Encoders | None = None
) -> tuple[Trainer, list[str]] | None:
    """Return the population of a checkpoint file and its job keys; None if the file does not fit the jobs."""
    checkpoint = load_checkpoint(path)
    if checkpoint is None:
        return None
    tensors, info = checkpoint
    if not info.keys or not set(info.keys) <= set(jobs) or len(info.keys) > info.size:
        return None
    if len(info.seconds) != len(info.keys) or not all(0 <= seconds < math.inf for seconds in info.seconds):
        return None
    population = make_population([jobs[key] for key in info.keys], windows, encoders)
    if not _fits(population, tensors, info.epoch):
        return None
    population.load(tensors, info.epoch, info.seconds)
    population.size = info.size
    return population, info.keys


def _fits(population: Trainer, tensors: dict[str, torch.Tensor], epoch: int) -> bool:
    """Return whether tensors have the names, shapes and types of the state of a population."""
    expected = population.state()
    if set(tensors) != set(expected):
        return False
    max_epochs = max(job.setting.max_epochs for job in population.jobs)
    for name, tensor in expected.items():
        restored = tensors[name]
        shape = list(tensor.shape)
        if name == "checkpoints.history":  # finished members may have had more epochs
            shape[1] = max(max_epochs, restored.shape[1] if restored.ndim > 1 else 0)
        if list(restored.shape) != shape or restored.dtype != tensor.dtype:
            return False
    return 1 <= epoch <= max_epochs
