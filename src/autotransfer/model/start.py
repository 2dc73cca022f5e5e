"""Weights that an encoder starts from in place of random ones: of networks that were trained on other studies.

A setting names them by a digest, start="base:0123456789abcdef". They come from a base that was opened in this process
(models/base.py). A trained model does not need them: its own weights take their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..errors import UserError, shown

KIND_NAMES = {  # of networks in the layout of a base, as a label and inside a sentence
    "tuned_base": ("Fine-tuned base", "the fine-tuned base"),
    "scratch_base": ("Base's network from scratch", "the base's network from scratch"),
}
NAME = re.compile(r"base:([0-9a-f]{16})")

_opened: dict[str, Mapping[str, Tensor]] = {}  # tensors (M, ...) of the members of a base, by the name in settings


def know_start(digest: str, tensors: Mapping[str, Tensor]) -> str:
    """Register encoders, parameters and buffers (M, ...) by name, so that settings of this process can start from them.
    Returns the name that `start` takes."""
    name = f"base:{digest}"
    check_start(name)
    _opened[name] = tensors
    return name


def check_start(name: str | None) -> None:
    """Raise where this cannot be the name of weights to start from."""
    if name is not None and NAME.fullmatch(name) is None:
        raise UserError(f"start is {shown(name)}; weights of a base are written as base:DIGEST")


@torch.no_grad()
def start_from(net: nn.Module, names: Sequence[str | None], seeds: Sequence[int]) -> None:
    """Give the members of a stack the weights that they start from, in place; None: a member keeps its random ones.

    Each starts from one member of the base, by its seed, whoever else is in the stack.
    """
    there = {key: tensor for key, tensor in net.state_dict().items() if tensor.is_floating_point()}
    for member, (name, seed) in enumerate(zip(names, seeds, strict=True)):
        if name is None:
            continue
        if name not in _opened:
            raise UserError(f"the base {name} is not open here; give its folder: --base FOLDER, or base=")
        known = _opened[name]
        for key, tensor in there.items():
            if key not in known or known[key].shape[1:] != tensor.shape[1:]:
                given = tuple(known[key].shape[1:]) if key in known else "missing"
                raise UserError(
                    f"a network cannot start from {name}: {key} is {given} there and {tuple(tensor.shape[1:])} here; "
                    "choose the layout, filters and kernel of the base, or leave start out"
                )
            tensor[member] = known[key][seed % len(known[key])].to(tensor)
