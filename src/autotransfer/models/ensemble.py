"""The interface of an ensemble that is part of a model, for stacks, graphs and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..model.stack import Size, Stack
from ..preprocessing import FittedPreprocessing, Person
from ..settings import Setting
from ..training.centring import Centring
from ..training.effects import Effects
from ..training.members import Members
from .card import ModelCard

CHUNK = 256  # windows at once
TINY = 1e-300  # probabilities below count as this: 0 has no logarithm


class Correction(NamedTuple):
    """What is known of one person, as something to add to the log-probabilities of an ensemble."""

    weight: Tensor  # (P, D, C)
    bias: Tensor  # (P, C)

    def __call__(self, z: Tensor) -> Tensor:
        """Map codes (P, n, D) to (n, C), the mean over members, float64."""
        return (torch.matmul(z, self.weight) + self.bias[:, None]).double().mean(0)


def softmax(log_p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-probabilities (..., classes), up to a number for each row -> probabilities. SciPy's softmax takes three times
    as long for one window."""
    power: NDArray[np.float64] = np.exp(log_p - log_p.max(-1, keepdims=True))
    power /= power.sum(-1, keepdims=True)
    return power


class Ensemble(Protocol):
    """`SavedModel`, as far as it is read: members of one setting, with the preprocessing that each was fitted with."""

    card: ModelCard
    setting: Setting
    size: Size
    preprocessing: FittedPreprocessing
    members: Members
    net: Stack
    effects: Effects | None
    correction: Correction | None
    centring: Centring | None


Network = Callable[[Tensor], Tensor]  # prepared windows (n, C, T) or (members, n, C, T) -> codes (members, n, D)


@torch.no_grad()
def codes_of_people(
    net: Network, preprocessing: FittedPreprocessing, X: Tensor, subject: Tensor | None, start: int = 0
) -> Tensor:
    """Compute the codes (members, N, D) of windows (N, channels, times) of people (N,), None: of one, in their order.
    start: how many of the transforms they have been through; 0: they are raw."""
    if subject is None or preprocessing.spec.adaptation == "none":
        return _codes_of_person(net, X, preprocessing.follow(start))
    people = [(subject == person).nonzero()[:, 0] for person in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    parts = torch.cat([_codes_of_person(net, X[rows], preprocessing.follow(start)) for rows in people], 1)
    codes = torch.empty_like(parts)
    codes[:, torch.cat(people)] = parts
    return codes


def _codes_of_person(net: Network, X: Tensor, person: Person) -> Tensor:
    X = X.to(torch.float32)
    at_once = person.feed(X) if person.at_once else None
    parts = []
    for start in range(0, len(X), CHUNK):
        rows = slice(start, start + CHUNK)
        x = person.feed(X[rows]) if at_once is None else at_once[:, rows]
        parts.append(net(x[0] if len(x) == 1 else x))
    return torch.cat(parts, 1)


def refuse_parts(parts: Sequence[Ensemble], check: Callable[[Ensemble], object]) -> None:
    """Raise where the check refuses a part, which the message names where there are several."""
    for part in parts:
        try:
            check(part)
        except UserError as error:
            if len(parts) == 1:
                raise
            raise UserError(f"{error} (the part {part_name(part.setting)!r})") from None


def part_name(setting: Setting) -> str:
    """Name a part by its encoder, penalty, preprocessing and augmentation."""
    plain = Setting(encoder=setting.encoder, network=setting.network, training=setting.training)
    return f"{setting.encoder} {setting.name_relative_to(plain)}"
