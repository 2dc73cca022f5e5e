"""A delivered model of several kinds: ensembles with settings of their own, averaged in log-probability."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_choice, shown
from ..model.encoders import Encoders
from ..preprocessing import strongest
from ..preprocessing.transform import with_prefix
from .card import UNTRIED, MixtureCard, OnlineCard
from .ensemble import softmax
from .graph import Graph
from .interface import BaseModel
from .online import ALL, Online
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
        self.online: Online | None = None

    def with_online(self, card: OnlineCard, parts: Sequence[SavedModel]) -> Self:
        """Add an average that uses a person's windows; parts: its own."""
        self.online = Online(card, self.parts, parts)
        self.card = replace(self.card, online=card)
        return self

    @classmethod
    def restore(cls, card: MixtureCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> Self:
        """Make the model from what `tensors()` gave."""
        cards = card.part_cards()
        for name in tensors:
            if not name.startswith(tuple(cards)):
                raise ValueError(f"the tensor {shown(name)} belongs to none of its {len(card.parts)} parts")
        models = [SavedModel(part, with_prefix(prefix, tensors), encoders) for prefix, part in cards.items()]
        mixture = cls(models[: len(card.parts)], card.exponents, card.scores)
        if card.online is not None:
            mixture.with_online(card.online, models[len(card.parts) :])
        mixture.card = card
        return mixture

    def tensors(self) -> dict[str, Tensor]:
        """Copies: parts may share statistics, and a file cannot hold a tensor twice."""
        groups = {"parts": self.parts, "online": [] if self.online is None else self.online.parts}
        return {
            f"{word}.{k}.{name}": tensor.clone()
            for word, parts in groups.items()
            for k, part in enumerate(parts)
            for name, tensor in part.tensors().items()
        }

    @property
    def heaviest(self) -> SavedModel:
        """Return the part with the largest exponent; the first of equals."""
        return self.parts[int(np.argmax(self.exponents))]

    @property
    def adaptation(self) -> str:
        """Return the adaptation of the part that uses most of a new person's windows."""
        return strongest(part.adaptation for part in self.parts)

    def predict_checked(
        self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None
    ) -> NDArray[np.float64]:
        online = None if adapt is None else self._for_all_windows(adapt)
        probabilities = combine([part.log_p(part.latents(X, subject)) for part in self.parts], self.exponents)
        if online is None:
            return probabilities
        people = torch.zeros(len(X), dtype=torch.int64) if subject is None else subject
        for person in people.unique():  # type: ignore[no-untyped-call]  # torch's
            rows = (people == person).nonzero()[:, 0]
            probabilities[rows] = softmax(online.all_windows(X[rows], probabilities[rows]))
        return probabilities

    def _for_all_windows(self, adapt: str) -> Online | None:
        """Return the average of all windows of a person; None, with a warning, if held-out people gained nothing."""
        check_choice("adapt", adapt, (None, ALL))
        if self.online is None and self.card.follows == UNTRIED and self.adaptation == "none":
            raise UserError(
                "the run had no time to try adaptation on held-out people, so its model has no average that could use "
                "all windows of a person; leave --adapt all (adapt='all') out, or run again with a longer --time"
            )
        if self.online is None and (self.card.follows is None or self.adaptation != "none"):
            raise UserError(
                "the model has no average that could use all windows of a person (it adapts already, or is no run's); "
                "leave --adapt all (adapt='all') out, or run again with the usual --adaptation"
            )
        if any(part.correction is not None for part in self.parts):
            raise UserError(
                "the model is one person's already; leave --adapt all (adapt='all') out, or use the model of the run"
            )
        if self.online is not None and self.online.card.all_windows:
            return self.online
        warnings.warn(
            "held-out people did not gain by --adapt all (adapt='all'): the model stays as it is", stacklevel=4
        )
        return None

    def features_checked(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        return torch.cat([part.features_checked(X, subject) for part in self.parts], 1)

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def graph(self) -> Graph:
        """Make a module of plain operations, as `SavedModel.graph` does."""
        return Graph(self.parts, self.exponents).eval()


Model = SavedModel | Mixture


def combine(log_p: Sequence[NDArray[np.float64]], exponents: Sequence[float]) -> NDArray[np.float64]:
    """K times log-probabilities (N, classes) -> probabilities (N, classes): the product of powers, normalised."""
    total = np.zeros(log_p[0].shape)
    for of_part, exponent in zip(log_p, exponents, strict=True):
        total += exponent * of_part
    return softmax(total)
