"""Windows that come to a session: checked, and with their channels in the order of the model."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..models.mixture import Model
from ..models.montage import Arrangement
from ..recordings.labels import as_list
from ..recordings.windows import LARGEST, channel_places, missing_words, window_array


class WindowCheck:
    """channels: names of the windows' channels, where they are not the model's in its order."""

    def __init__(self, model: Model, channels: object = None) -> None:
        self.model = model
        self.shape = (len(model.card.channels), model.card.n_times)
        self.arrangement = None if channels is None else model.arrange(channels)
        if self.arrangement is not None:
            for line in self.arrangement.notes:
                warnings.warn(line, stacklevel=3)
        elif channels is not None:
            names = [str(name) for name in as_list(channels, "channels")]
            _, missing = channel_places(names, model.card.channels)
            raise UserError(missing_words(missing[0], names))

    def __call__(self, window: object) -> tuple[Tensor, bool]:
        """Windows (n, channels, times) that the model takes, and whether a single one was given."""
        if self.arrangement is not None:
            window = _arranged(window, self.arrangement)
        # Nearly every window is such an array and needs no further check, which would take longer. A subclass does: the
        # data of a masked array include what is masked.
        if (
            type(window) is np.ndarray
            and window.dtype == np.float32
            and window.shape == self.shape
            and window.min() >= -LARGEST
            and window.max() <= LARGEST
        ):
            return torch.from_numpy(window.copy())[None], True
        single = _n_axes(window) == 2
        return self.model.check(_with_axis(window) if single else window), single


def _arranged(window: object, arrangement: Arrangement) -> object:
    """The model's channels of windows that have others."""
    single = _n_axes(window) == 2
    windows = window_array(_with_axis(window) if single else window)
    n_channels = len(arrangement.names)
    if windows.shape[1] != n_channels:
        raise UserError(f"a window has {windows.shape[1]} channels, and the session was opened with {n_channels} names")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused afterwards
        arranged = arrangement.apply(np.asarray(windows))
    return arranged[0] if single else arranged


def _n_axes(window: object) -> int | None:
    """Of an array, a tensor or nested lists; None of anything else, such as a ragged list."""
    if isinstance(window, (np.ndarray, Tensor)):
        return window.ndim
    try:
        return np.ndim(window)  # type: ignore[arg-type]  # whatever it is
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return None


def _with_axis(window: object) -> object:
    """A single window (channels, times) as (1, channels, times)."""
    return window[None] if isinstance(window, (np.ndarray, Tensor)) else [window]
