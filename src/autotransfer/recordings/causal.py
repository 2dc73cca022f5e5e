"""Filters that never look ahead: of a stream, and of recordings that are cut as a stream would be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .filters import Filter


class Causal:
    """A filter whose state is kept from samples to samples. Where only a band is known of the filter that recordings
    had, it is as near to that as one can be that does not look ahead: the same band, later."""

    def __init__(self, spec: Filter | None, sfreq: float, n_channels: int) -> None:
        self.sections = None if spec is None else np.array(spec.designed(sfreq).sections)
        self.n_channels = n_channels
        self.reset()

    def reset(self) -> None:
        """The next sample begins a recording; it is taken to have had its value for long."""
        self.state: NDArray[np.float64] | None = None

    def feed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The next samples (n, channels), n ≥ 1."""
        if self.sections is None:
            return values
        from scipy.signal import sosfilt, sosfilt_zi  # takes long to import, and few filter

        if self.state is None:
            start = sosfilt_zi(self.sections)  # (sections, 2)
            self.state = start[:, :, None] * values[0].astype(np.float64)
        filtered, self.state = sosfilt(self.sections, values.astype(np.float64), axis=0, zi=self.state)
        return np.asarray(filtered, dtype=np.float32)
