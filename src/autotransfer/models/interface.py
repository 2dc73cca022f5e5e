"""The interface that all models have in common."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from pathlib import Path

from torch import Tensor

from ..errors import UserError, shown
from ..recordings.concerns import unlike_training
from ..recordings.container import check_sfreq
from ..recordings.raw import Raw
from ..recordings.windows import UNNAMED, names_or_numbers, windows_for_model
from .card import ModelCard
from .saving import write_model

LEDGER = "ledger.sqlite"  # of a run


def save_model(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model to a folder, from which `load_model` reads it.

    model: what `load_model` or `Outcome.model()` gave, or a fitted estimator
    path: the folder; a model that is there already is replaced
    """
    model = getattr(model, "model_", model)
    if not isinstance(model, WindowModel):
        raise UserError(f"save_model needs a model or a fitted estimator, not {shown(model)}")
    try:
        if (Path(path) / LEDGER).exists():
            raise UserError(f"{path} is the folder of a run, which has a model of its own; choose another folder")
        model.save(path)
    except UserError:
        raise
    except (OSError, ValueError) as error:  # ValueError: the name holds a null character
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write to {shown(str(path))} ({reason}); choose another folder") from None


class WindowModel(ABC):
    """A model that takes raw windows and prepares them itself. `card` says what it was made for."""

    card: ModelCard

    def __repr__(self) -> str:
        """Say in a line what the model was made for."""
        card = self.card
        rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz"
        answer = f"classes {', '.join(map(str, card.classes))}" if card.classes else "a number"
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
