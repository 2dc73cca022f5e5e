"""A model on disk: weights as safetensors, everything else it needs to know as JSON, and a page for people."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from ..files import sync_folder, write_atomically
from .binding import digest_of
from .card import DIGEST, Card
from .model_page import model_page, regression_page
from .regression_card import RegressionCard

WEIGHTS, NEXT = "model.safetensors", "model.next.safetensors"  # the second until the card of the same model is there


def write_model(folder: Path, card: Card | RegressionCard, tensors: dict[str, Tensor]) -> None:
    """The folder of a model: model.json, model.safetensors and README.md, each replaced whole."""
    folder.mkdir(parents=True, exist_ok=True)
    body = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    values = json.loads(json.dumps(asdict(card)))
    # Whoever loads it meanwhile, or after a kill, finds the weights of whichever card is there (see loading.py).
    write_atomically(folder / NEXT, body)
    write_atomically(folder / "model.json", json.dumps(values | {DIGEST: digest_of(values, body)}, indent=1))
    os.replace(folder / NEXT, folder / WEIGHTS)
    sync_folder(folder)
    page = regression_page(card) if isinstance(card, RegressionCard) else model_page(card)
    write_atomically(folder / "README.md", page)
