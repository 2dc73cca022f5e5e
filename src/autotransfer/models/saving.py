"""Folders of models: weights as safetensors, the card as JSON, and a page as Markdown.

Digests of card and weights detect damage and careless edits, such as classes in another order. They are not signatures,
because they can be computed again after a deliberate change. Shapes are checked before memory is allocated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from ..errors import shown
from ..files import check_plain, read_plain, sync_folder, write_atomically
from ..model.encoders import ENCODERS
from ..preprocessing.transform import select_prefix
from ..recordings.npz import check_memory
from ..schema import to_json
from ..settings import Setting
from ..training.members import Members
from .candidate import size_of_candidate
from .card import DIGEST, ModelCard
from .model_page import model_page

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError)
CARD, WEIGHTS, PAGE = "model.json", "model.safetensors", "README.md"
NEXT_WEIGHTS = "model.next.safetensors"  # weights of a new model until its card is written
COPIES = 3  # copies of the weights while a model is loaded: the file, its tensors, the networks
Shapes = dict[str, tuple[int, ...]]  # by name of a tensor


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
        # If writing stopped between card and weights, only the next weights fit the card.
        next_weights = folder / NEXT_WEIGHTS
        return read(next_weights if next_weights.exists() else folder / WEIGHTS)


def model_digests(card: Mapping[str, Any], weights: bytes) -> dict[str, str]:
    """Return the digests of a card, as JSON values, and of a safetensors file without the metadata in its header."""
    header, body = split_file(weights)
    tensors = {k: v for k, v in json.loads(header).items() if k != "__metadata__"}
    weights_digest = _hash(_write_canonical_json(tensors), body)
    values = {k: v for k, v in card.items() if k != DIGEST}
    return {"weights": weights_digest, "card": _hash(_write_canonical_json(values), weights_digest.encode())}


def split_file(content: bytes) -> tuple[bytes, bytes]:
    """Split the content of a safetensors file into header and body. The first eight bytes are the header's length."""
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


def check_digest(values: Mapping[str, Any], weights: bytes) -> None:
    """Raise if a card or its weights changed after they were saved."""
    stored, computed = values.get(DIGEST), model_digests(values, weights)
    if not isinstance(stored, dict) or set(stored) != set(computed):
        raise ValueError(f"its card has no valid {DIGEST}")
    for name in computed:
        if stored[name] != computed[name]:
            raise ValueError(f"its {name} changed after it was saved")


def _write_canonical_json(values: object) -> bytes:
    """Return values as JSON with sorted keys and without spaces, so that equal values give equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _hash(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def read_weights(path: Path) -> bytes:
    """Read a file of weights; refuse one that is too large for memory or not a plain file, such as a pipe."""
    status = path.stat()
    check_memory(COPIES * status.st_size, "the model", path, "use a machine with more memory")
    check_plain(status, path)
    return read_plain(path)


def check_shapes(shapes: Shapes, card: ModelCard) -> None:
    """Raise if the shapes of tensors do not fit the card. No memory is allocated for tensors."""
    for prefix, candidate in card.candidate_cards().items():
        expected = _find_expected_shapes(Setting.from_dict(candidate.setting), card)
        for name, shape in select_prefix(prefix, shapes).items():
            if not shape or shape[0] != candidate.members:
                raise ValueError(f"the tensor {shown(name)} has the shape {shape} for {candidate.members} members")
            if name in expected and shape[1:] != expected[name]:
                expected_shape = (candidate.members, *expected[name])
                raise ValueError(f"the tensor {shown(name)} has the shape {shape}, not {expected_shape}")


def _find_expected_shapes(setting: Setting, card: ModelCard) -> Shapes:
    """Return the shapes of a member's tensors; empty for a user's module, which may allocate memory."""
    if setting.encoder not in ENCODERS:
        return {}
    try:
        with torch.device("meta"):
            member = Members(setting, size_of_candidate(setting, card, card.n_outputs), [0], device="meta")
    except (NotImplementedError, RuntimeError):
        return {}
    return {name: tuple(tensor.shape[1:]) for name, tensor in member.tensors().items()}
