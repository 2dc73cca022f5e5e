"""File of an online session: tensors of its state, and a header that identifies the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from ..errors import UserError
from ..files import read_plain, write_atomically
from ..models.card import DIGEST
from ..models.model import Model
from ..models.saving import serialize, split_file
from ..preprocessing.transform import select_prefix
from ..schema import parse_json

State = dict[str, Tensor]
NEVER_NEGATIVE = ("counts", "count", "squares", "classes")  # tensors in the state of adaptation
# Allowed types; torch cannot check all other types for finite numbers.
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
MARK = "autotransfer_session"  # key of the header in the metadata


def write_session(path: Path, header: dict[str, Any], state: State) -> None:
    tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}
    try:
        write_atomically(path, save(tensors, {MARK: json.dumps(header)}))
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}); choose another file") from None


def read_session(path: Path) -> tuple[dict[str, Any], State]:
    """Read header and tensors; ValueError, TypeError, KeyError or SafetensorError if the file is no session."""
    try:
        content = read_plain(path)
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from None
    state = load(content)
    header = parse_json(parse_json(split_file(content)[0]).get("__metadata__", {})[MARK])
    if (
        not isinstance(header, dict)
        or type(header["n_windows"]) is not int
        or header["n_windows"] < 0
        or type(header["adapts"]) is not bool
    ):
        raise ValueError("its header is damaged")
    for name, tensor in state.items():
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name} holds {tensor.dtype}")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} is not finite")
    return header, state


def model_digest(model: Model) -> str:
    """Return a digest of all weights and the card of a model."""
    digest: str = serialize(model.card, model.tensors())[0][DIGEST]["card"]
    return digest


def check_state(state: State, expected: State, prefix: str) -> State:
    """Return the tensors with a prefix; ValueError if names, shapes or dtypes differ from `expected`."""
    tensors = select_prefix(prefix, state)
    for name, like in expected.items():
        tensor = tensors.get(name, torch.empty(0))
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise ValueError(f"{prefix}{name} has the shape {tuple(tensor.shape)}, not {tuple(like.shape)}")
        if name in NEVER_NEGATIVE and (tensor < 0).any():
            raise ValueError(f"{prefix}{name} is below 0")
    return tensors
