"""Windows that come to a session: checked, and with their channels in the order of the model."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..models.mixture import Model
from ..recordings.labels import as_list
from ..recordings.windows import LARGEST, channel_names, channel_places, missing_words, window_array


class WindowCheck:
    """channels: names of the windows' channels, where they are not the model's in its order."""

    def __init__(self, model: Model, channels: object = None) -> None:
        self.model = model
        self.shape = (len(model.card.channels), model.card.n_times)
        self.places: list[int] | None = None  # of the model's channels among those of the windows
        if channels is not None:
            names = channel_names(channels, len(as_list(channels, "channels")))
            self.n_channels = len(names)
            self.places, missing = channel_places(names, model.card.channels)
            if missing:
                raise UserError(missing_words(missing[0], names))

    def __call__(self, window: object) -> tuple[Tensor, bool]:
        """Windows (n, channels, times) that the model takes, and whether a single one was given."""
        if self.places is not None:
            window = _arranged(window, self.places, self.n_channels)
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


def _arranged(window: object, places: list[int], n_channels: int) -> object:
    """Return the channels at these places of windows with n_channels of them."""
    single = _n_axes(window) == 2
    windows = window_array(_with_axis(window) if single else window)
    if windows.shape[1] != n_channels:
        raise UserError(f"a window has {windows.shape[1]} channels, and the session was opened with {n_channels} names")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused afterwards
        arranged = np.asarray(windows)[:, places].astype(np.float32)
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
