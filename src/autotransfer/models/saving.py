"""A model on disk: weights as safetensors, everything else it needs to know as JSON, and a page for people."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ..files import sync_folder, write_atomically
from .binding import model_digests
from .card import DIGEST, ModelCard
from .model_page import model_page

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError)
CARD, WEIGHTS, PAGE = "model.json", "model.safetensors", "README.md"
NEXT_WEIGHTS = "model.next.safetensors"  # those of a new model until its card is there


def write_model(folder: Path, card: ModelCard, tensors: dict[str, Tensor]) -> None:
    """Write card, weights and page, each replaced whole. Whoever opens the folder meanwhile, or after a kill, finds the
    old model or the new one: see `read_folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = json.loads(json.dumps(asdict(card)))
    weights = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    write_atomically(folder / NEXT_WEIGHTS, weights)
    write_atomically(folder / CARD, json.dumps(values | {DIGEST: model_digests(values, weights)}, indent=1))
    os.replace(folder / NEXT_WEIGHTS, folder / WEIGHTS)
    sync_folder(folder)
    write_atomically(folder / PAGE, model_page(card))


def read_folder(folder: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the path of the weights; of the next weights where those do not fit the card."""
    try:
        return read(folder / WEIGHTS)
    except UNREADABLE:
        # A run that is at work, or was killed, may be between the card and the weights of a new model.
        after = folder / NEXT_WEIGHTS
        return read(after if after.exists() else folder / WEIGHTS)
