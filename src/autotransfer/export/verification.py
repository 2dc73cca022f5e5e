"""Comparison of an exported file with its model on random windows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..models.candidate import Candidate
from ..models.model import Model
from .formats import Predict

BATCHES = (1, 2, 125, 128, 128, 128, 128, 128, 128, 104)  # batch sizes, 1,000 windows in total
TOLERANCE = 1e-5  # largest difference between probabilities that may be a rounding error
CALIBRATED_TOLERANCE = 1e-4  # tolerance for calibrated models, whose corrections amplify rounding errors of latents
COUNT_TOLERANCE = 1e-3  # tolerance for features that are counts of samples, which rounding errors can change by 1


def sample_windows(model: Model, n: int, generator: torch.Generator) -> Tensor:
    """Draw raw windows (n, channels, times) in the scale of training, with drifts, offsets and flat channels."""
    size = (n, len(model.card.signal.channels), model.card.n_times)
    noise = torch.randn(size, generator=generator)
    drift = torch.randn(size, generator=generator).cumsum(-1) / model.card.n_times**0.5
    x = noise + drift + torch.randn(*size[:2], 1, generator=generator)
    raw_scale = next((scale for scale in map(_raw_scale, model.candidates) if scale is not None), None)
    shift, scale = (0.0, model.card.scale or 1.0) if raw_scale is None else raw_scale
    x = x * scale + shift
    is_flat = torch.rand(*size[:2], 1, generator=generator) < 0.02
    return torch.where(is_flat, x[..., :1], x)


def _raw_scale(candidate: Candidate) -> tuple[Tensor, Tensor] | None:
    """Return mean and standard deviation (C, 1) of raw training windows, or None if the candidate has none."""
    steps = candidate.preprocessing.steps
    affine = steps[0].affine() if steps else None
    if affine is None:
        return None
    shift, inv_std = (table.mean(0) for table in affine)
    return shift[:, None], torch.where(inv_std > 0, 1 / inv_std, 0.0)[:, None]


def largest_difference(model: Model, predict: Predict) -> float:
    """Return the largest difference of probabilities between file and model; inf if a probability is not finite."""
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for n in BATCHES:
        windows = sample_windows(model, n, generator)
        difference = float(np.abs(predict(windows) - model.predict_proba(windows)).max())
        largest = max(largest, difference if np.isfinite(difference) else np.inf)
    return largest


def tolerance(model: Model) -> float:
    """Return the largest difference that may be a rounding error."""
    if any(candidate.setting.preprocessing.has_sample_counts for candidate in model.candidates):
        return COUNT_TOLERANCE
    return CALIBRATED_TOLERANCE if model.is_calibrated else TOLERANCE
