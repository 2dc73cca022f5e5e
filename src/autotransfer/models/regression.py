"""A delivered model of a continuous target: closed forms, averaged."""

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
from ..training.continuous import around, radius_at
from .interface import WindowModel
from .regression_card import RegressionCard

Floats = NDArray[np.float64]
WEIGHT, BIAS, PREPROCESSING = "weight", "bias", "preprocessing"


class Form(NamedTuple):
    """A closed form: fitted preprocessing, and a linear function of its codes."""

    preprocessing: FittedPreprocessing
    weight: Tensor  # (D,) float64
    bias: Tensor  # () float64

    def predict(self, X: Tensor, subject: Tensor | None) -> Floats:
        """Raw windows (N, channels, times) of people (N,), None: of one -> (N,)."""
        prediction: Floats = (codes_of(self.preprocessing, X, subject) @ self.weight + self.bias).numpy()
        return prediction


@torch.no_grad()
def codes_of(preprocessing: FittedPreprocessing, X: Tensor, subject: Tensor | None, start: int = 0) -> Tensor:
    """Windows (N, channels, times) of people nobody has trained on, each in their order -> (N, D) float64. start: how
    many of the transforms they have been through; 0: they are raw."""
    if subject is None or preprocessing.spec.adaptation == "none":
        return preprocessing.follow(start).feed(X)[0].flatten(1).double()
    people = [(subject == person).nonzero()[:, 0] for person in subject.unique()]  # type: ignore[no-untyped-call]  # torch's
    parts = torch.cat([preprocessing.follow(start).feed(X[rows])[0].flatten(1).double() for rows in people])
    codes = torch.empty_like(parts)
    codes[torch.cat(people)] = parts
    return codes


class RegressionModel(WindowModel):
    """target = mean + Σ weight · (prediction of a closed form − mean). Takes raw windows; every part prepares them in
    its own way."""

    card: RegressionCard

    def __init__(self, card: RegressionCard, forms: Sequence[Form]) -> None:
        self.card, self.forms = card, list(forms)

    @property
    def adaptation(self) -> str:
        """As of a setting: that of the part that uses most of a new person's windows."""
        return strongest(form.preprocessing.spec.adaptation for form in self.forms)

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
        for form, part in zip(self.forms, self.card.parts, strict=True):
            prediction += part.weight * (form.predict(X.to(torch.float32), subject) - self.card.mean)
        return prediction

    def predict_interval(self, X: object, coverage: float = 0.9, subject: object = None) -> Floats:
        """Low and high end (N, 2) of an interval for each window; X and subject as of `predict`. It holds the target
        of a new person's window with about the probability `coverage`, in the mean over people like those left out."""
        radius = radius_at(self.card.radii, coverage)  # refused before any work
        return around(self.predict(X, subject), radius)

    def tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for k, form in enumerate(self.forms):
            tensors |= {f"parts.{k}.{WEIGHT}": form.weight.clone(), f"parts.{k}.{BIAS}": form.bias.clone()}
            tensors |= {f"parts.{k}.{PREPROCESSING}.{n}": t.clone() for n, t in form.preprocessing.state_dict().items()}
        return tensors

    @classmethod
    def restore(cls, card: RegressionCard, tensors: dict[str, Tensor]) -> Self:
        """From what `tensors()` gave; whatever is wrong raises."""
        forms = []
        for k, part in enumerate(card.parts):
            part_tensors = with_prefix(f"parts.{k}.", tensors)
            spec = Setting.from_dict(part.setting).preprocessing
            weight, bias = part_tensors.pop(WEIGHT), part_tensors.pop(BIAS)
            rows, columns = spec.shape(len(card.channels), card.n_times)
            if weight.shape != (rows * columns,) or bias.shape != () or weight.dtype != torch.float64:
                raise ValueError(f"part {k} has weights of the shape {tuple(weight.shape)}, not ({rows * columns},)")
            statistics = {name.removeprefix(f"{PREPROCESSING}."): t for name, t in part_tensors.items()}
            forms.append(Form(spec.restore(statistics), weight, bias))
        known = {f"parts.{k}." for k in range(len(forms))}
        if stray := [name for name in tensors if not any(name.startswith(start) for start in known)]:
            raise ValueError(f"the tensor {shown(stray[0])} belongs to none of its {len(forms)} parts")
        if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("a tensor is not finite")
        return cls(card, forms)
