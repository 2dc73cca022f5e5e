"""Chunks of rows, so that a pass over X needs little memory even if X is a file larger than memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

CHUNK_VALUES = 2**21  # 16 MiB in float64


def row_chunks(n_rows: int, values_per_row: int) -> Iterator[slice]:
    """Yield slices that cover range(n_rows) in order, each of about CHUNK_VALUES values and at least one row."""
    step = max(1, CHUNK_VALUES // max(1, values_per_row))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def window_chunks(X: Any) -> Iterator[slice]:
    """Yield slices that cover the windows of an array or tensor X (N, ...)."""
    return row_chunks(X.shape[0], math.prod(X.shape[1:]))
