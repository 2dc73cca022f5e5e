"""A piece of a stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Chunk(NamedTuple):
    """Samples in the order in which they were recorded."""

    times: NDArray[np.float64]  # (n,) seconds, on the clock of the source
    values: NDArray[np.float32]  # (n, channels)
    fresh: bool = False  # whether another recording begins here
