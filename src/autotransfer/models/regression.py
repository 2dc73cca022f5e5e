"""A delivered model of a continuous target: the average of linear models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import shown
from ..preprocessing import FittedPreprocessing, strongest
from ..preprocessing.transform import with_prefix
from ..recordings.windows import people_of_windows
from ..settings import Setting
from ..training.conformal import around, radius_at
from .card import RegressionCard
from .interface import WindowModel

Floats = NDArray[np.float64]
WEIGHT, BIAS, PREPROCESSING = "weight", "bias", "preprocessing"


class RidgePart(NamedTuple):
    """A closed form: fitted preprocessing, and a linear function of its codes."""

    preprocessing: FittedPreprocessing
    weight: Tensor  # (D,) float64
    bias: Tensor  # () float64

    def predict(self, X: Tensor, subject: Tensor | None) -> Floats:
        """Raw windows (N, channels, times) of people (N,), None: of one -> (N,)."""
        prediction: Floats = (closed_form_codes(self.preprocessing, X, subject) @ self.weight + self.bias).numpy()
        return prediction

    def tensors(self) -> dict[str, Tensor]:
        """What is saved, by name."""
        fitted = {f"{PREPROCESSING}.{name}": t.clone() for name, t in self.preprocessing.state_dict().items()}
        return fitted | {WEIGHT: self.weight.clone(), BIAS: self.bias.clone()}


def closed_form_codes(preprocessing: FittedPreprocessing, X: Tensor, subject: Tensor | None, start: int = 0) -> Tensor:
    """Return the codes (N, D) float64 of windows (N, channels, times) of people (N,), None: of one, in their order, on
    whom the linear model was not fitted. start: how many of the transforms they have been through."""
    X = X.to(torch.float32)
    if subject is None or preprocessing.spec.adaptation == "none":
        return preprocessing.follow(start).feed(X)[0].flatten(1).double()
    people = [(subject == person).nonzero()[:, 0] for person in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    found = torch.cat([preprocessing.follow(start).feed(X[rows])[0].flatten(1) for rows in people])
    codes = torch.empty_like(found, dtype=torch.float64)
    codes[torch.cat(people)] = found.double()
    return codes


class RegressionModel(WindowModel):
    """target = mean + Σ weight · (prediction of a part − mean). Takes raw windows; every part prepares them in
    its own way."""

    card: RegressionCard

    def __init__(self, card: RegressionCard, parts: Sequence[RidgePart]) -> None:
        self.card, self.parts = card, list(parts)

    @property
    def adaptation(self) -> str:
        """As of a setting: that of the part that uses most of a new person's windows."""
        return strongest(part.preprocessing.spec.adaptation for part in self.parts)

    def predict(self, X: object, subject: object = None) -> Floats:
        """Raw windows (N, channels, times), an array or a tensor -> the target of each (N,).

        subject (N,): the subject of each window, which matters to models that adapt to people: everybody by
        themselves, in the order of the rows. Without it all windows are one person's.
        """
        windows = self.check(X)
        return self.predict_checked(windows, people_of_windows(subject, len(windows)))

    def predict_checked(self, X: Tensor, subject: Tensor | None = None) -> Floats:
        """As `predict`, for windows that `check` gave, and people as numbers (N,)."""
        prediction = np.full(len(X), self.card.mean)
        for part, card in zip(self.parts, self.card.parts, strict=True):
            prediction += card.weight * (part.predict(X.to(torch.float32), subject) - self.card.mean)
        return prediction

    def predict_interval(self, X: object, coverage: float = 0.9, subject: object = None) -> Floats:
        """Low and high end (N, 2) of an interval for each window; X and subject as of `predict`. It holds the target
        of a new person's window with about the probability `coverage`, in the mean over people like those left out."""
        radius = radius_at(self.card.radii, coverage)  # refused before any work
        return around(self.predict(X, subject), radius)

    def tensors(self) -> dict[str, Tensor]:
        return {f"parts.{k}.{name}": t for k, part in enumerate(self.parts) for name, t in part.tensors().items()}

    @classmethod
    def restore(cls, card: RegressionCard, tensors: dict[str, Tensor]) -> Self:
        """From what `tensors()` gave; whatever is wrong raises."""
        parts = []
        for k, part in enumerate(card.parts):
            part_tensors = with_prefix(f"parts.{k}.", tensors)
            spec = Setting.from_dict(part.setting).preprocessing
            weight, bias = part_tensors.pop(WEIGHT), part_tensors.pop(BIAS)
            rows, columns = spec.shape(len(card.channels), card.n_times)
            if weight.shape != (rows * columns,) or bias.shape != () or weight.dtype != torch.float64:
                raise ValueError(f"part {k} has weights of the shape {tuple(weight.shape)}, not ({rows * columns},)")
            parts.append(RidgePart(spec.restore(with_prefix(f"{PREPROCESSING}.", part_tensors)), weight, bias))
        known = {f"parts.{k}." for k in range(len(parts))}
        if stray := [name for name in tensors if not any(name.startswith(start) for start in known)]:
            raise ValueError(f"the tensor {shown(stray[0])} belongs to none of its {len(parts)} parts")
        if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("a tensor is not finite")
        return cls(card, parts)
