"""Causal filters, for streams and for recordings that are filtered like a stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .filters import Filter


class Causal:
    """A causal filter that keeps its state between calls. Where only the band of the recordings' filter is known, it
    has the same band, but delays the signal."""

    def __init__(self, spec: Filter | None, sfreq: float, n_channels: int) -> None:
        self.sections = None if spec is None else np.array(spec.designed(sfreq).sections)
        self.n_channels = n_channels
        self.reset()

    def reset(self) -> None:
        """Begin a new recording: the state becomes that of a signal that always had the value of the next sample."""
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
