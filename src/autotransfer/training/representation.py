"""Representations that are equal in all folds, computed once for all windows and cached with the recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..preprocessing import Preprocessing
from ..recordings import Recordings
from ..recordings.chunks import window_chunks
from . import packing

MAX_CACHED_VALUES = 2**26  # 256 MB in single precision


def find_representation(recordings: Recordings, preprocessing: Preprocessing) -> tuple[int, Tensor] | None:
    """Return the number of leading transforms that all folds share, and all windows after them, on the CPU.

    None if there are no such transforms, or if there is no memory for the windows.
    """
    device, dtype = torch.device("cpu"), torch.float32
    free = packing.free_values_per_window(recordings, device, dtype, preprocessing)
    if not preprocessing.n_until_representation or free < 0:
        return None
    return compute_representation(recordings, preprocessing, device, dtype)


@torch.no_grad()
def compute_representation(
    recordings: Recordings, preprocessing: Preprocessing, device: torch.device, dtype: torch.dtype
) -> tuple[int, Tensor]:
    """Return the number of leading transforms that all folds share, and all windows after them, on a device.

    The cache has one entry per list of leading transforms. Old entries are removed if it would be larger than the
    windows and than MAX_CACHED_VALUES.
    """
    chain = Preprocessing(preprocessing.transforms[: preprocessing.n_until_representation])
    cache: dict[Any, Tensor] = recordings.derived.setdefault("represented", {})
    key = (chain, str(device), dtype)
    if key not in cache:
        X, subject = recordings.X.to(device=device, dtype=dtype), recordings.subject.to(device)
        fitted = chain.fit(X, subject, [np.arange(len(X))])
        windows = torch.cat([fitted(X[rows][None], subject[rows][None])[0] for rows in window_chunks(X)])
        limit = max(X.numel(), MAX_CACHED_VALUES)
        while cache and sum(cached.numel() for cached in cache.values()) + windows.numel() > limit:
            del cache[next(iter(cache))]
        cache[key] = windows
    return preprocessing.n_until_representation, cache[key]
