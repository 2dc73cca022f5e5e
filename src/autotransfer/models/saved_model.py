"""A trained model of one setting: an ensemble of its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, check_choice
from ..model.encoders import Encoders
from ..model.stack import Size
from ..preprocessing.transform import with_prefix
from ..settings import Setting
from ..training.centring import Centring
from ..training.effects import Effects
from ..training.members import Members
from .card import ModelCard
from .ensemble import TINY, Correction, codes_of_people, softmax
from .graph import Graph
from .interface import BaseModel


class SavedModel(BaseModel):
    """An ensemble: the mean of its members' probabilities. Takes raw windows and prepares them itself.

    effects: how people differ in the members' codes; None where nobody has looked
    centring: where the logits of training people lie; of parts that are centred by person in a session
    correction: weights (P, D, C) and bias (P, C) of what is added to the log-probabilities, the mean over members,
        because of what is known of one person; None: the model is everybody's
    """

    card: ModelCard
    exponents = (1.0,)  # as of a mixture, which has one for each part

    def __init__(self, card: ModelCard, tensors: dict[str, Tensor], encoders: Encoders | None = None) -> None:
        self.card, self.setting = card, Setting.from_dict(card.setting)
        self.preprocessing = self.setting.preprocessing.restore(with_prefix("preprocessing.", tensors))
        _check_statistics(self.preprocessing.state_dict(), card)
        channels, times = self.setting.preprocessing.shape(len(card.channels), card.n_times)
        self.size = Size(channels, times, len(card.classes), card.sfreq)
        self.members = Members(self.setting, self.size, range(card.members), encoders=encoders)
        self.members.load_stacked(tensors)
        self.net, self.classifier = self.members.net.eval(), self.members.classifier.eval()
        self.effects: Effects | None = _restored(Effects, tensors)
        self.correction: Correction | None = _restored(Correction, tensors)
        self.centring: Centring | None = _restored(Centring, tensors)
        self._check_people()

    def tensors(self) -> dict[str, Tensor]:
        tensors = self.members.tensors()
        groups = {
            "preprocessing": self.preprocessing.state_dict(), "effects": self.effects,
            "correction": self.correction, "centring": self.centring,
        }  # fmt: skip
        for prefix, group in groups.items():
            named = group._asdict() if isinstance(group, tuple) else group or {}
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in named.items()}
        return tensors

    def _check_people(self) -> None:
        """Raise where what is known of people does not fit the members."""
        members, dim, classes = self.card.members, self.members.latent_dim, len(self.card.classes)
        if self.effects is not None:
            rank = self.effects.projection.shape[-1]
            shapes = [(members, dim, rank), (members, classes, rank), (members, rank), (members, rank)]
            check_tensors(self.effects, shapes)
            if not (self.effects.shift > 0).all() or not (self.effects.interaction > 0).all():
                raise ValueError("a variance of effects is not above 0")
        if self.correction is not None:
            check_tensors(self.correction, [(members, dim, classes), (members, classes)])
        if self.centring is not None:
            check_tensors(self.centring, [(members, classes), (members, classes, classes), *[(members,)] * 3])
            if any((scale < 0).any() for scale in self.centring[2:]):
                raise ValueError("a scale of centring is below 0")

    @property
    def parts(self) -> list[SavedModel]:
        """Itself: a mixture has several."""
        return [self]

    @property
    def adaptation(self) -> str:
        """Tell what a new person's own unlabelled windows are used for: see `Preprocessing.adaptation`."""
        return self.setting.adaptation

    def predict_checked(
        self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None
    ) -> NDArray[np.float64]:
        if adapt is not None:
            check_choice("adapt", adapt, (None, "all"))
            raise UserError(
                "the model is no average that could use all windows of a person; leave --adapt all (adapt='all') out, "
                "or take the model of a run with the usual --adaptation"
            )
        z = self.latents(X, subject)
        return self._mean_probability(z) if self.correction is None else softmax(self.log_p(z))

    @torch.no_grad()
    def log_p(self, z: Tensor) -> NDArray[np.float64]:
        """Map codes (members, N, D) to log-probabilities (N, classes), up to a number for each window: a correction may
        be so steep that probabilities have no room for what it rules out."""
        log_p = np.log(np.maximum(self._mean_probability(z), TINY))
        return log_p if self.correction is None else log_p + self.correction(z).numpy()

    @torch.no_grad()
    def _mean_probability(self, z: Tensor) -> NDArray[np.float64]:
        """Return the mean probability over members, before any correction."""
        mean: NDArray[np.float64] = self.classifier(z).double().softmax(-1).mean(0).numpy()
        return mean

    def latents(self, X: Tensor, subject: Tensor | None = None, start: int = 0) -> Tensor:
        """Map windows that `check` gave, of people (N,) as numbers, to codes z (members, N, D). start: how many
        transforms the windows have been through."""
        return codes_of_people(self.net, self.preprocessing, X, subject, start)

    def features_checked(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        return self.latents(X, subject).transpose(0, 1).flatten(1)

    @property
    def n_features(self) -> int:
        return self.card.members * self.members.latent_dim

    def graph(self) -> Graph:
        """Make a module of plain operations (see `Graph`); what it cannot hold is refused."""
        return Graph(self.parts, self.exponents).eval()


def _restored(kind: type[Any], tensors: dict[str, Tensor]) -> Any:
    """Read a named tuple from the tensors of a model that have its name before theirs; None where there are none."""
    name = kind.__name__.lower()
    fields = with_prefix(f"{name}.", tensors)
    if fields and set(fields) != set(kind._fields):
        raise ValueError(f"{name} has the tensors {sorted(fields)}, not {sorted(kind._fields)}")
    return kind(**fields) if fields else None


def check_tensors(group: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise where the tensors of a named tuple are not finite, or have other shapes."""
    for part, tensor, shape in zip(group._fields, group, shapes, strict=True):
        if tuple(tensor.shape) != shape or not torch.isfinite(tensor).all():
            name = f"{type(group).__name__.lower()}.{part}"
            raise ValueError(f"the tensor {name} is not finite of the shape {shape}")


def _check_statistics(statistics: dict[str, Tensor], card: ModelCard) -> None:
    """Raise unless every member has statistics: broadcasting would hide that some are missing."""
    for name, tensor in statistics.items():
        if len(tensor) != card.members:
            shape = tuple(tensor.shape)
            raise ValueError(f"the tensor preprocessing.{name} has the shape {shape} for {card.members} members")
