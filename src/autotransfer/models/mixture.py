"""A delivered model of several kinds: ensembles with settings of their own, averaged in log-probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import shown
from ..model.encoders import Encoders
from ..preprocessing import strongest
from .card import MixtureCard
from .ensemble import TINY
from .graph import Graph
from .interface import BaseModel
from .saved_model import SavedModel


class Mixture(BaseModel):
    """log p(class | window) = Σ exponent · log p of each part, normalised. Takes raw windows; every part prepares them
    in its own way.

    parts: ensembles (K,), which agree in channels, classes, rate and length of windows
    exponents: (K,), at least 0: weights times the sharpness of a calibration, so they need not sum to 1
    """

    card: MixtureCard

    def __init__(
        self, parts: Sequence[SavedModel], exponents: Sequence[float] | Tensor, scores: dict[str, Any] | None = None
    ) -> None:
        self.parts = list(parts)
        self.card = MixtureCard.of([part.card for part in self.parts], exponents, scores or {})
        self.exponents = self.card.exponents

    @classmethod
    def restore(cls, card: MixtureCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """From what `tensors()` gave."""
        own: list[dict[str, Tensor]] = [{} for _ in card.parts]
        places = {f"{number}": found for number, found in enumerate(own)}
        for name, tensor in tensors.items():
            word, _, rest = name.partition(".")
            number, _, rest = rest.partition(".")
            if word != "parts" or number not in places:
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(own)} parts")
            places[number][rest] = tensor
        parts = [SavedModel(one, found, encoders) for one, found in zip(card.parts, own, strict=True)]
        mixture = cls(parts, card.exponents, card.scores)
        mixture.card = card
        return mixture

    def tensors(self) -> dict[str, Tensor]:
        """Copies: parts may share statistics, and a file cannot hold a tensor twice."""
        own = [part.tensors() for part in self.parts]
        return {f"parts.{k}.{name}": tensor.clone() for k, found in enumerate(own) for name, tensor in found.items()}

    @property
    def heaviest(self) -> SavedModel:
        """The part with the largest exponent; the first of equals."""
        return self.parts[int(np.argmax(self.exponents))]

    @property
    def adaptation(self) -> str:
        """As of a setting: that of the part that uses most of a new person's windows."""
        return strongest(part.adaptation for part in self.parts)

    def predict_checked(self, X: Tensor, subject: Tensor | None = None) -> NDArray[np.float64]:
        return combine([part.predict_checked(X, subject) for part in self.parts], self.exponents)

    def latents(self, X: Tensor, subject: Tensor | None = None) -> list[Tensor]:
        """Windows that `check` gave -> the codes of each part (members, N, D), whose D differ."""
        return [part.latents(X, subject) for part in self.parts]

    def features_checked(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        return torch.cat([part.features_checked(X, subject) for part in self.parts], 1)

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def graph(self) -> Graph:
        """As of `SavedModel`."""
        return Graph(self.parts, self.exponents).eval()


Model = SavedModel | Mixture


def combine(probabilities: Sequence[NDArray[np.float64]], exponents: Sequence[float]) -> NDArray[np.float64]:
    """K times (N, classes) -> (N, classes): the product of powers, normalised."""
    total = np.zeros(probabilities[0].shape)
    for probability, exponent in zip(probabilities, exponents, strict=True):
        total += exponent * np.log(np.maximum(probability, TINY))
    power: NDArray[np.float64] = np.exp(total - total.max(1, keepdims=True))
    normalised: NDArray[np.float64] = power / power.sum(1, keepdims=True)
    return normalised
