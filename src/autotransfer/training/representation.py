"""All windows of a data set in a representation that is the same for everybody, computed once and kept with the
recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..preprocessing import Preprocessing
from ..recordings import Recordings
from ..recordings.chunks import window_chunks
from . import packing


def find_representation(recordings: Recordings, preprocessing: Preprocessing) -> tuple[int, Tensor] | None:
    """Return how many transforms lead to a representation that is the same for everybody, and all windows after these,
    to use a model on the recordings it was trained on. None where there is no such representation, or no memory for
    it."""
    device, dtype = torch.device("cpu"), torch.float32
    if (
        not preprocessing.n_until_representation
        or packing.free_values_per_window(recordings, device, dtype, preprocessing) < 0
    ):
        return None
    return compute_representation(recordings, preprocessing, device, dtype)


@torch.no_grad()
def compute_representation(
    recordings: Recordings, preprocessing: Preprocessing, device: torch.device, dtype: torch.dtype
) -> tuple[int, Tensor]:
    """Return the representation on any device, where there is memory. It is computed once for every preprocessing that
    begins with the same transforms. All that are kept need less memory than the recordings."""
    chain = Preprocessing(preprocessing.transforms[: preprocessing.n_until_representation])
    kept: dict[Any, Tensor] = recordings.derived.setdefault("represented", {})
    key = (chain, str(device), dtype)
    if key not in kept:
        X, subject = recordings.X.to(device=device, dtype=dtype), recordings.subject.to(device)
        fitted = chain.fit(X, subject, [np.arange(len(X))])
        made = torch.cat([fitted(X[rows][None], subject[rows][None])[0] for rows in window_chunks(X)])
        while kept and sum(windows.numel() for windows in kept.values()) + made.numel() > X.numel():
            del kept[next(iter(kept))]
        kept[key] = made
    return preprocessing.n_until_representation, kept[key]
