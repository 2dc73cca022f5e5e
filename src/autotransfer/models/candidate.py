"""Candidate of a model: members of one setting, with their fitted preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ..model.encoders import Encoders
from ..model.stack import Size
from ..preprocessing import FittedPreprocessing
from ..preprocessing.transform import select_prefix
from ..recordings.windows import ModelInput
from ..settings import Setting
from ..training.centering import Centering
from ..training.effects import Effects
from ..training.members import Members
from .card import CandidateCard


class Correction(NamedTuple):
    """Correction for one subject: the mean over members of weight · latents + bias is added to log-probabilities."""

    weight: Tensor  # (P, D, C)
    bias: Tensor  # (P, C)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Candidate of a model: P members of one setting, with their fitted preprocessing."""

    setting: Setting
    size: Size  # of a window after preprocessing
    preprocessing: FittedPreprocessing
    members: Members
    effects: Effects | None = None  # subject effects in the latents; None: not fitted
    centering: Centering | None = None  # centers of the training subjects' logits; None: not centered by subject
    correction: Correction | None = None  # for one subject; None: the model is not calibrated

    @classmethod
    def restore(
        cls, card: CandidateCard, size: Size, tensors: dict[str, Tensor], encoders: Encoders | None = None
    ) -> Self:
        """Restore a candidate from the result of `tensors()`; raise if it is invalid. size: see `size_of_candidate`."""
        setting = Setting.from_dict(card.setting)
        preprocessing = setting.preprocessing.restore(select_prefix("preprocessing.", tensors))
        dtype = torch.float64 if size.classes == 1 else torch.float32  # double precision for regression
        members = Members(setting, size, range(card.members), encoders=encoders, dtype=dtype)
        members.load_stacked(tensors)
        members.net.eval()
        effects, centering, correction = (_read_tuple(kind, tensors) for kind in (Effects, Centering, Correction))
        n, dim, classes = len(members), members.latent_dim, size.classes
        if effects is not None:
            rank = effects.projection.shape[-1]
            check_tensors(effects, [(n, dim, rank), (n, classes, rank), (n, rank), (n, rank)])
            if not (effects.shift > 0).all() or not (effects.interaction > 0).all():
                raise ValueError("a variance of effects is not above 0")
        if correction is not None:
            check_tensors(correction, [(n, dim, classes), (n, classes)])
        if centering is not None:
            check_tensors(centering, [(n, classes), (n, classes, classes), (n,), (n,), (n,)])
            if any((scale < 0).any() for scale in centering[2:]):
                raise ValueError("a scale of centering is below 0")
        return cls(setting, size, preprocessing, members, effects, centering, correction)

    @property
    def card(self) -> CandidateCard:
        return CandidateCard(self.setting.to_dict(), len(self.members))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save, by name."""
        tensors = self.members.tensors()
        groups = {
            "preprocessing": self.preprocessing.state_dict(), "effects": self.effects, "centering": self.centering,
            "correction": self.correction,
        }  # fmt: skip
        for prefix, group in groups.items():
            named = group._asdict() if isinstance(group, tuple) else group or {}
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in named.items()}
        return tensors


def size_of_candidate(setting: Setting, made_for: ModelInput, n_outputs: int) -> Size:
    """Return the size of windows after preprocessing, with the number of outputs."""
    channels, times = setting.preprocessing.shape(len(made_for.signal.channels), made_for.n_times)
    return Size(channels, times, n_outputs, made_for.signal.sfreq)


def _read_tuple(kind: type[Any], tensors: dict[str, Tensor]) -> Any:
    """Read a named tuple from the tensors with its name as prefix; return None if there are no such tensors."""
    name = kind.__name__.lower()
    fields = select_prefix(f"{name}.", tensors)
    if fields and set(fields) != set(kind._fields):
        raise ValueError(f"{name} has the tensors {sorted(fields)}, not {sorted(kind._fields)}")
    dtype = torch.float64 if kind is Centering else torch.float32  # for sums over all windows of a subject
    return kind(**{name: tensor.to(dtype) for name, tensor in fields.items()}) if fields else None


def check_tensors(group: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise if a tensor of a named tuple has another shape or is not finite."""
    for field, tensor, shape in zip(group._fields, group, shapes, strict=True):
        if tuple(tensor.shape) != shape or not torch.isfinite(tensor).all():
            name = f"{type(group).__name__.lower()}.{field}"
            raise ValueError(f"the tensor {name} is not finite or has not the shape {shape}")
