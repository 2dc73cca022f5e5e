"""A candidate of a model: members of one setting, with the preprocessing that each was fitted with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..model.encoders import Encoders
from ..model.stack import Size
from ..preprocessing import FittedPreprocessing
from ..preprocessing.transform import with_prefix
from ..recordings.windows import ModelInput
from ..settings import Setting
from ..training.centering import Centering
from ..training.effects import Effects
from ..training.members import Members
from .card import CandidateCard


class Correction(NamedTuple):
    """Knowledge of one person as an addition to the log-probabilities of a candidate: its mean over members of weight ·
    code + bias."""

    weight: Tensor  # (P, D, C)
    bias: Tensor  # (P, C)


@dataclass(frozen=True, eq=False)
class Candidate:
    """P members of one setting.

    effects: how people differ in the members' latents; None where nobody has looked
    centering: where the logits of training people lie; of candidates that are centered by person in a session
    correction: what is known of one person; None: the model is everybody's
    """

    setting: Setting
    size: Size  # of the windows that its encoder sees
    preprocessing: FittedPreprocessing
    members: Members
    effects: Effects | None = None
    centering: Centering | None = None
    correction: Correction | None = None

    @classmethod
    def restore(
        cls, card: CandidateCard, size: Size, tensors: dict[str, Tensor], encoders: Encoders | None = None
    ) -> Self:
        """Make a candidate from what `tensors()` gave; whatever is wrong raises. size: see `size_of_candidate`."""
        setting = Setting.from_dict(card.setting)
        preprocessing = setting.preprocessing.restore(with_prefix("preprocessing.", tensors))
        head = tensors.get("classifier.weight", torch.empty(0))
        dtype = torch.float64 if head.dtype == torch.float64 else torch.float32  # double if it predicts a number
        members = Members(setting, size, range(card.members), encoders=encoders, dtype=dtype)
        members.load_stacked(tensors)
        members.net.eval()
        known: dict[str, Any] = {
            kind.__name__.lower(): _restored(kind, tensors) for kind in (Effects, Centering, Correction)
        }
        candidate = cls(setting, size, preprocessing, members, **known)
        candidate._check_people(size.classes)
        return candidate

    @property
    def card(self) -> CandidateCard:
        return CandidateCard(self.setting.to_dict(), len(self.members))

    def tensors(self) -> dict[str, Tensor]:
        """Return what is saved, by name."""
        tensors = self.members.tensors()
        groups = {
            "preprocessing": self.preprocessing.state_dict(), "effects": self.effects, "centering": self.centering,
            "correction": self.correction,
        }  # fmt: skip
        for prefix, group in groups.items():
            named = group._asdict() if isinstance(group, tuple) else group or {}
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in named.items()}
        return tensors

    def _check_people(self, classes: int) -> None:
        """Raise where what is known of people does not fit the members."""
        members, dim = len(self.members), self.members.latent_dim
        if self.effects is not None:
            rank = self.effects.projection.shape[-1]
            shapes = [(members, dim, rank), (members, classes, rank), (members, rank), (members, rank)]
            check_tensors(self.effects, shapes)
            if not (self.effects.shift > 0).all() or not (self.effects.interaction > 0).all():
                raise ValueError("a variance of effects is not above 0")
        if self.correction is not None:
            check_tensors(self.correction, [(members, dim, classes), (members, classes)])
        if self.centering is not None:
            check_tensors(self.centering, [(members, classes), (members, classes, classes), *[(members,)] * 3])
            if any((scale < 0).any() for scale in self.centering[2:]):
                raise ValueError("a scale of centering is below 0")


def size_of_candidate(setting: Setting, made_for: ModelInput, n_outputs: int) -> Size:
    """Return the size of the windows that a candidate's encoder sees, with the number of its outputs."""
    channels, times = setting.preprocessing.shape(len(made_for.channels), made_for.n_times)
    return Size(channels, times, n_outputs, made_for.sfreq)


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
