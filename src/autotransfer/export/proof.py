"""Checks that an exported file computes what the model does."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..models.candidate import Candidate
from ..models.model import Model
from .formats import Predict

BATCHES = (1, 2, 125, 128, 128, 128, 128, 128, 128, 104)  # 1,000 windows, in batches that fit into memory
TOLERANCE = 1e-5
OF_ONE_PERSON = 1e-4  # where a correction may be steep, and amplifies rounding of a code
OF_COUNTS = 1e-3  # where samples above a threshold are counted, and rounding decides about some


def sample_windows(saved: Model, n: int, generator: torch.Generator) -> Tensor:
    """Draw raw windows (n, channels, times) on about the scale of the training data: noise, drifts, offsets, and a few
    flat channels."""
    size = (n, len(saved.card.channels), saved.card.n_times)
    noise = torch.randn(size, generator=generator)
    drift = torch.randn(size, generator=generator).cumsum(-1) / saved.card.n_times**0.5
    x = noise + drift + torch.randn(*size[:2], 1, generator=generator)
    fitted = next((known for known in map(_raw_scale, saved.parts) if known is not None), None)
    shift, scale = (0.0, saved.card.scale or 1.0) if fitted is None else fitted
    x = x * scale + shift
    flat = torch.rand(*size[:2], 1, generator=generator) < 0.02
    return torch.where(flat, x[..., :1], x)


def _raw_scale(part: Candidate) -> tuple[Tensor, Tensor] | None:
    """Return mean and standard deviation of raw windows (C, 1) if the candidate stores them. Any candidate will do,
    because all were trained on the same recordings."""
    steps = part.preprocessing.steps
    affine = steps[0].affine() if steps else None
    if affine is None:
        return None
    shift, inv_std = (table.mean(0) for table in affine)
    return shift[:, None], torch.where(inv_std > 0, 1 / inv_std, 0.0)[:, None]


def largest_difference(saved: Model, predict: Predict) -> float:
    """Return the largest difference between the file's probabilities and `predict_proba` over 1,000 windows; inf if a
    probability is not a number."""
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for n in BATCHES:
        windows = sample_windows(saved, n, generator)
        difference = float(np.abs(predict(windows) - saved.predict_proba(windows)).max())
        largest = max(largest, difference if np.isfinite(difference) else np.inf)
    return largest


def tolerance(saved: Model) -> float:
    """Return how much of a difference is rounding."""
    if any(part.setting.preprocessing.counts_samples for part in saved.parts):
        return OF_COUNTS
    return OF_ONE_PERSON if saved.is_calibrated else TOLERANCE
