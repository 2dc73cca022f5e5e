"""Folders of models: weights as safetensors, the card as JSON, and a page to read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ..files import sync_folder, write_atomically
from ..schema import to_json
from .card import DIGEST, ModelCard
from .integrity import model_digests
from .model_page import model_page

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError)
CARD, WEIGHTS, PAGE = "model.json", "model.safetensors", "README.md"
NEXT_WEIGHTS = "model.next.safetensors"  # weights of a new model until its card is written


def serialize(card: ModelCard, tensors: dict[str, Tensor]) -> tuple[dict[str, Any], bytes]:
    """Return the card as JSON values with its digests, and the weights as the content of a safetensors file."""
    values: dict[str, Any] = json.loads(to_json(card))
    weights = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    return values | {DIGEST: model_digests(values, weights)}, weights


def write_model(folder: Path, card: ModelCard, tensors: dict[str, Tensor]) -> None:
    """Write card, weights and page. At any time, also after a kill, `read_folder` reads the old or the new model."""
    folder.mkdir(parents=True, exist_ok=True)
    values, weights = serialize(card, tensors)
    write_atomically(folder / NEXT_WEIGHTS, weights)
    write_atomically(folder / CARD, json.dumps(values, indent=1))
    os.replace(folder / NEXT_WEIGHTS, folder / WEIGHTS)
    sync_folder(folder)
    write_atomically(folder / PAGE, model_page(card))


def read_folder(folder: Path, read: Callable[[Path], T]) -> T:
    """Call `read` with the path of the weights, or of the next weights if the first call fails."""
    try:
        return read(folder / WEIGHTS)
    except UNREADABLE:
        # Between card and weights of a new model, the next weights are the ones that fit the card.
        next_weights = folder / NEXT_WEIGHTS
        return read(next_weights if next_weights.exists() else folder / WEIGHTS)
