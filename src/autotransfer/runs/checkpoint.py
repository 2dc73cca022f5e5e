"""A population in flight, on disk: safetensors with a checksum, replaced atomically."""

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
class Note:
    """Facts about the population of a checkpoint."""

    keys: list[str]  # of its members, in order
    epoch: int
    seconds: list[float]  # by member
    size: int  # members that it began with


def save_checkpoint(path: Path, population: Trainer, keys: list[str]) -> None:
    """Write a population that is being trained. keys: names of its members in the run database, in order."""
    note = schema.to_json(Note(keys, population.epoch, population.seconds, population.size))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in population.state().items()}
    body = save(tensors, metadata={"population": note})
    write_atomically(path, hashlib.blake2b(body, digest_size=32).digest() + body)


def load_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], Note] | None:
    """Return tensors and note of a checkpoint; None if there is no checkpoint or it is damaged, and training starts
    again."""
    try:
        content = read_plain(path)
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.blake2b(body, digest_size=32).digest() != digest:
        return None
    try:
        length = int.from_bytes(body[:8], "little")
        note = schema.from_json(Note, json.loads(body[8 : 8 + length])["__metadata__"]["population"])
        return load(body), note
    except (SafetensorError, ValueError, KeyError, TypeError, UserError):
        return None


def restore(
    jobs: dict[str, Job], windows: Windows, path: Path, encoders: Encoders | None = None
) -> tuple[Trainer, list[str]] | None:
    """Return the population of a checkpoint and the keys of its members, all in `jobs`; None if it does not fit."""
    checkpoint = load_checkpoint(path)
    if checkpoint is None:
        return None
    tensors, note = checkpoint
    if not note.keys or not set(note.keys) <= set(jobs) or len(note.keys) > note.size:
        return None
    if len(note.seconds) != len(note.keys) or not all(0 <= spent < math.inf for spent in note.seconds):
        return None
    population = make_population([jobs[key] for key in note.keys], windows, encoders)
    if not _fits(population, tensors, note.epoch):
        return None
    population.load(tensors, note.epoch, note.seconds)
    population.size = note.size
    return population, note.keys


def _fits(population: Trainer, tensors: dict[str, torch.Tensor], epoch: int) -> bool:
    """Return whether these tensors can be the population's state. Copying would silently stretch a tensor of one row
    over all members."""
    expected = population.state()
    if set(tensors) != set(expected):
        return False
    longest = max(job.setting.max_epochs for job in population.jobs)
    for name, tensor in expected.items():
        restored = tensors[name]
        shape = list(tensor.shape)
        if name == "snapshots.history":  # as long as members needed that have left since
            shape[1] = max(longest, restored.shape[1] if restored.ndim > 1 else 0)
        if list(restored.shape) != shape or restored.dtype != tensor.dtype:
            return False
    return 1 <= epoch <= longest
