"""A model's card and its weights belong together: a digest binds them, and sizes are compared before memory is taken.

The digest shows accidents and careless edits, such as classes in another order. It is no signature: whoever changes
a file on purpose can compute it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import shown
from ..files import check_plain, read_plain
from ..model.encoders import ENCODERS
from ..preprocessing.transform import with_prefix
from ..recordings.npy import check_memory
from ..settings import Setting
from ..training.members import Members
from .candidate import size_of_candidate
from .card import DIGEST, ModelCard

COPIES = 3  # of the weights, while a model is loaded: the file, its tensors, the networks
Shapes = dict[str, tuple[int, ...]]  # of tensors by name


def model_digests(card: Mapping[str, Any], weights: bytes) -> dict[str, str]:
    """Return the digests of a card as JSON holds it and of a safetensors file, whatever else the file's header says."""
    header, body = split_file(weights)
    tensors = {k: v for k, v in json.loads(header).items() if k != "__metadata__"}
    weights_digest = _hash(_canonical(tensors), body)
    values = {k: v for k, v in card.items() if k != DIGEST}
    return {"weights": weights_digest, "card": _hash(_canonical(values), weights_digest.encode())}


def split_file(content: bytes) -> tuple[bytes, bytes]:
    """Split a safetensors file, which begins with eight bytes that give its header's length, into header and body."""
    length = int.from_bytes(content[:8], "little")
    return content[8 : 8 + length], content[8 + length :]


def check_digest(values: Mapping[str, Any], weights: bytes) -> None:
    """Raise unless a card and its weights are as they were saved."""
    stored, computed = values.get(DIGEST), model_digests(values, weights)
    if not isinstance(stored, dict) or set(stored) != set(computed):
        raise ValueError(f"its card has no {DIGEST}, with which every model is saved")
    for name in computed:
        if stored[name] != computed[name]:
            raise ValueError(f"its {name} changed after it was saved")


def _canonical(values: object) -> bytes:
    """Return the same bytes for equal values, however their JSON was laid out."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def _hash(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def read_weights(path: Path) -> bytes:
    """Read a model's file; raise if it is too large for memory, or no plain file, such as a pipe that never ends."""
    status = path.stat()
    check_memory(COPIES * status.st_size, "the model", path, "use a machine with more memory")
    check_plain(status, path)
    return read_plain(path)


def check_shapes(shapes: Shapes, card: ModelCard) -> None:
    """Raise where tensors have not the shapes that the card implies. Nothing is built but on the device meta."""
    for prefix, part in card.part_cards().items():
        implied = _implied(Setting.from_dict(part.setting), card)
        for name, shape in with_prefix(prefix, shapes).items():
            if not shape or shape[0] != part.members:
                raise ValueError(f"the tensor {shown(name)} has the shape {shape} for {part.members} members")
            if name in implied and shape[1:] != implied[name]:
                raise ValueError(
                    f"the tensor {shown(name)} has the shape {shape}, the card implies (…, *{implied[name]})"
                )


def _implied(setting: Setting, card: ModelCard) -> Shapes:
    """Return the shapes of a member's tensors by name; none for users' own modules, which may need memory."""
    if setting.encoder not in ENCODERS:
        return {}
    try:
        with torch.device("meta"):
            member = Members(setting, size_of_candidate(setting, card, card.n_outputs), [0], device="meta")
    except (NotImplementedError, RuntimeError):
        return {}
    return {name: tuple(tensor.shape[1:]) for name, tensor in member.tensors().items()}
