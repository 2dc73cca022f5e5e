"""Target: windows of the person who will use the model, as far as fit is given them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError
from ..models.mixture import Model
from ..person.calibration import adapt_model, calibrate_model, check_effects, check_one_person, labels_of
from ..recordings import Recordings
from ..recordings.container import check_sfreq
from ..recordings.windows import windows_for_model
from .inputs import raw_windows


class Target(NamedTuple):
    """Raw windows (n, channels, times) of one person who is not trained on."""

    unlabelled: Tensor | None
    labelled: Tensor | None
    y: Tensor | None  # (n,): places among the classes

    @classmethod
    def of(
        cls, unlabelled: object, labelled: object, y: object, recordings: Recordings, classes: NDArray[Any], named: bool
    ) -> Self:
        """Check the windows against the training recordings before any training. Errors name MOABB's arguments.

        named: whether the training channels have names
        """
        if (labelled is None) != (y is None):
            present, missing = ("X", "y") if y is None else ("y", "X")
            raise UserError(f"{present}_target_labeled was given without {missing}_target_labeled; give both")
        labels = windows = None
        if labelled is not None:
            windows = _windows("X_target_labeled", labelled, recordings, named)
            try:
                labels = labels_of(classes.tolist(), y, len(windows))
            except UserError as error:
                raise UserError(f"y_target_labeled: {error}") from None
        other = None if unlabelled is None else _windows("X_target_unlabeled", unlabelled, recordings, named)
        return cls(other, windows, labels)

    def model_for(self, model: Model) -> Model:
        """The model calibrated with the labelled windows, then adapted to the others."""
        if self.labelled is None and self.unlabelled is None:
            return model
        try:
            check_effects(model)
        except UserError:  # members may have been trained on one person each
            warnings.warn(
                "too few people to know how people differ: the target's windows are not used; train on more people",
                stacklevel=3,
            )
            return model
        if self.labelled is not None and self.y is not None:
            model = calibrate_model(model, self.labelled, self.y)
        return model if self.unlabelled is None else adapt_model(model, self.unlabelled)


def _windows(name: str, X: object, recordings: Recordings, named: bool) -> Tensor:
    """Checked windows (n, channels, times) of one person, of the same shape as the training windows."""
    try:
        raw = raw_windows(X)
        windows = windows_for_model(raw.X, recordings, raw.channels if named else None, check_sfreq(raw.sfreq))
        check_one_person(raw.subject, len(windows))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    return windows
