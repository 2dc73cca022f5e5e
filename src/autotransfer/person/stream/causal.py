"""Filters that never look ahead, for a stream of samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, iirnotch, sosfilt, sosfilt_zi, tf2sos

from ...recordings.filters import Filter

ORDER = 4  # of the Butterworth filter
QUALITY = 30.0  # of a notch: its frequency over its width


class Causal:
    """The filter that recordings had, as far as one that cannot look ahead can be it: the same band, later."""

    def __init__(self, spec: Filter | None, sfreq: float, n_channels: int) -> None:
        self.sections = np.concatenate(_sections(spec, sfreq)) if spec is not None else None
        self.n_channels = n_channels
        self.reset()

    def reset(self) -> None:
        """The next sample begins a recording; it is taken to have had its value for long."""
        self.state: NDArray[np.float64] | None = None

    def feed(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The next samples (n, channels), n ≥ 1."""
        if self.sections is None:
            return values
        if self.state is None:
            start = sosfilt_zi(self.sections)  # (sections, 2)
            self.state = start[:, :, None] * values[0].astype(np.float64)
        found, self.state = sosfilt(self.sections, values.astype(np.float64), axis=0, zi=self.state)
        filtered: NDArray[np.float32] = found.astype(np.float32)
        return filtered


def _sections(spec: Filter, sfreq: float) -> list[NDArray[np.float64]]:
    found = []
    if spec.highpass is not None and spec.lowpass is not None:
        found.append(butter(ORDER, [spec.highpass, spec.lowpass], "bandpass", fs=sfreq, output="sos"))
    elif spec.highpass is not None:
        found.append(butter(ORDER, spec.highpass, "highpass", fs=sfreq, output="sos"))
    elif spec.lowpass is not None:
        found.append(butter(ORDER, spec.lowpass, "lowpass", fs=sfreq, output="sos"))
    found += [tf2sos(*iirnotch(hz, QUALITY, fs=sfreq)) for hz in spec.notch]
    return found
