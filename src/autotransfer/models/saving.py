"""A model on disk: weights as safetensors, everything else it needs to know as JSON, and a page for people."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ..files import sync_folder, write_atomically
from .binding import model_digests
from .card import DIGEST, Card
from .model_page import model_page, regression_page
from .regression_card import RegressionCard

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError)


class Files(NamedTuple):
    """The files in the folder of a model."""

    card: str
    weights: str
    next_weights: str  # those of a new model until its card is there
    page: str


MODEL = Files("model.json", "model.safetensors", "model.next.safetensors", "README.md")


def write_folder(folder: Path, files: Files, values: dict[str, Any], tensors: dict[str, Tensor], page: str) -> None:
    """Write card, weights and page, each replaced whole. Whoever opens the folder meanwhile, or after a kill, finds the
    old model or the new one: see `read_folder`.

    values: those of the card, as JSON holds them
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    write_atomically(folder / files.next_weights, weights)
    write_atomically(folder / files.card, json.dumps(values | {DIGEST: model_digests(values, weights)}, indent=1))
    os.replace(folder / files.next_weights, folder / files.weights)
    sync_folder(folder)
    write_atomically(folder / files.page, page)


def read_folder(folder: Path, files: Files, read: Callable[[Path], T]) -> T:
    """What `read` makes of the path of the weights; of the next weights where those do not fit the card."""
    try:
        return read(folder / files.weights)
    except UNREADABLE:
        # A run that is at work, or was killed, may be between the card and the weights of a new model.
        after = folder / files.next_weights
        return read(after if after.exists() else folder / files.weights)


def as_json(card: Any) -> dict[str, Any]:
    """The values of a card as JSON holds them."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(card)))
    return values


def write_model(folder: Path, card: Card | RegressionCard, tensors: dict[str, Tensor]) -> None:
    """The folder of a model: model.json, model.safetensors and README.md."""
    values = as_json(card)
    page = regression_page(card) if isinstance(card, RegressionCard) else model_page(card)
    write_folder(folder, MODEL, values, tensors, page)
