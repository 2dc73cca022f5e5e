"""The interface that all models have in common."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, shown
from ..recordings.concerns import unlike_training
from ..recordings.container import check_sfreq
from ..recordings.raw import Raw
from ..recordings.windows import (
    UNNAMED,
    names_or_numbers,
    people_of_windows,
    windows_for_model,
)
from ..training.conformal import decisions, least_confidence, least_probability, sets_at, unanswered_value
from .card import Card, RegressionCard, as_array
from .hub import push_to_hub
from .saving import write_model

LEDGERS = ("ledger.sqlite", "numbers.sqlite")  # of runs, with classes and with a continuous target


def save_model(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model to a folder, from which `load_model` reads it.

    model: what `load_model` or `Outcome.model()` gave, or a fitted estimator
    path: the folder; a model that is there already is replaced
    """
    model = getattr(model, "model_", model)
    if not isinstance(model, WindowModel):
        raise UserError(f"save_model needs a model or a fitted estimator, not {shown(model)}")
    try:
        if any((Path(path) / name).exists() for name in LEDGERS):
            raise UserError(f"{path} is the folder of a run, which has a model of its own; choose another folder")
        model.save(path)
    except UserError:
        raise
    except (OSError, ValueError) as error:  # ValueError: the name holds a null character
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write to {shown(str(path))} ({reason}); choose another folder") from None


class WindowModel(ABC):
    """A model that takes raw windows and prepares them itself. `card` says what it was made for."""

    card: Card | RegressionCard

    def __repr__(self) -> str:
        """Say in a line what the model was made for."""
        card = self.card
        rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz"
        answer = "a number" if isinstance(card, RegressionCard) else f"classes {', '.join(map(str, card.classes))}"
        windows = f"windows of {len(card.channels)} channels × {card.n_times} samples{rate}"
        return f"<{type(self).__name__} of {card.name!r}: {windows} → {answer}; {card.subjects} training people>"

    def check(self, X: object, channels: object = None, sfreq: float | None = None) -> Tensor:
        """Return windows (N, channels, times) float32 that the model takes; refuse any others, naming the difference.

        channels: names of the data's channels. They are found by name, in any order and among others.
        """
        return windows_for_model(X, self.card, channels, sfreq)

    def read(self, raw: Raw) -> Tensor:
        """Return the windows (N, channels, times) of a reader that the model takes, with a warning for what the data do
        not say, and for what looks unlike training."""
        X = self.check(raw.X, raw.channels, check_sfreq(raw.sfreq))
        named = not all(UNNAMED.fullmatch(name) for name in self.card.channels)
        if named and all(UNNAMED.fullmatch(name) for name in names_or_numbers(raw.channels, X.shape[1])):
            names = shown(", ".join(self.card.channels), 100)
            warnings.warn(
                f"the data do not name their channels, which are taken to be {names}, in this order", stacklevel=2
            )
        if raw.sfreq is None and self.card.sfreq is not None:
            warnings.warn(
                f"the data do not say their sampling rate; the model expects {self.card.sfreq:g} Hz", stacklevel=2
            )
        return self.warn_of(X, raw.subject)

    def warn_of(self, X: Tensor, subject: object = None) -> Tensor:
        """Checked windows (N, channels, times) as they are, with a warning where they look unlike those of training.
        subject (N,): whose each is, None: one person's."""
        for line in unlike_training(X, self.card.channels, self.card.scale, subject):
            warnings.warn(line, stacklevel=3)
        return X

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model to a folder, which `load_model` reads; a model that is there is replaced."""
        write_model(Path(folder), self.card, self.tensors())

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what is saved beside the card, by name."""


class BaseModel(WindowModel):
    """A classifier."""

    card: Card

    @property
    def classes_(self) -> NDArray[Any]:
        """(classes,): what the columns of `predict_proba` stand for."""
        return as_array(self.card.classes)

    def predict(
        self,
        X: object,
        subject: object = None,
        abstain: float | None = None,
        *,
        adapt: str | None = None,
        channels: object = None,
    ) -> NDArray[Any]:
        """Return the likeliest class of each window (N,), one of `classes_`; X, subject, adapt and channels as of
        `predict_proba`.

        abstain: the share of a person's windows to leave unanswered, those that the model is least sure of;
        `unanswered_` stands in their place.
        """
        least = least_confidence(self.card.thresholds, abstain)
        predicted: NDArray[Any] = decisions(
            self.predict_proba(X, subject, adapt=adapt, channels=channels), self.classes_, least
        )
        return predicted

    def predict_set(self, X: object, coverage: float = 0.9, subject: object = None) -> NDArray[np.bool_]:
        """Tell whether each class is in the prediction set of each window (N, classes); X and subject as of
        `predict_proba`. The true class of a new person's window is in its set with about the probability `coverage`
        (docs/decisions.md)."""
        least = least_probability(self.card.thresholds, coverage)
        return sets_at(self.predict_proba(X, subject), least)

    @property
    def unanswered_(self) -> Any:
        """Return what `predict` gives in place of a class that it does not answer with."""
        return unanswered_value(self.card.classes)

    def predict_proba(
        self, X: object, subject: object = None, *, adapt: str | None = None, channels: object = None
    ) -> NDArray[np.float64]:
        """Map raw windows (N, channels, times), an array or a tensor, to probabilities (N, classes).

        subject (N,): the subject of each window, which matters to settings that adapt to people: everybody by
        themselves, in the order of the rows. Without it all windows are one person's.
        adapt: "all" prepares each person by all of their windows, without labels and in no order, where the model is an
        average that can. Where held-out people did not gain by that, nothing changes, and a warning says so.
        channels: names of the channels of X, as of `check`. Without them they must be those of the model, in its order.
        """
        windows = self.check(X, channels)
        return self.predict_checked(windows, people_of_windows(subject, len(windows)), adapt)

    def features(self, X: object, subject: object = None) -> Tensor:
        """Return the codes of all members of all parts side by side (N, n_features): all that a prediction
        depends on. X and subject as of `predict_proba`."""
        windows = self.check(X)
        return self.features_checked(windows, people_of_windows(subject, len(windows)))

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload the model to Hugging Face's hub, USER/NAME, with a page that has its score on people left out: see
        `models.hub.push_to_hub`, which has the options private, token and message. Returns the address."""
        return push_to_hub(self, repository, **options)

    @abstractmethod
    def predict_checked(
        self, X: Tensor, subject: Tensor | None = None, adapt: str | None = None
    ) -> NDArray[np.float64]:
        """Do what `predict_proba` does, for windows that `check` gave, and people as numbers (N,)."""

    @abstractmethod
    def features_checked(self, X: Tensor, subject: Tensor | None = None) -> Tensor:
        """Do what `features` does, for windows that `check` gave."""
