"""The transform that appends mean and log deviation of each channel has known values."""

from __future__ import annotations

import math

import numpy as np
import torch

from tiny import preprocessed


def test_a_window_is_parted_into_shapes_and_scales() -> None:
    x, subject = 5 + 3 * torch.randn(4, 3, 40, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    found = preprocessed(x, subject, standardize="none", append_scale=True)
    assert found.shape == (4, 9, 40)
    for row in range(4):
        for channel in range(3):
            own = x[row, channel].numpy()
            np.testing.assert_allclose(found[row, channel], (own - own.mean()) / own.std())
            np.testing.assert_allclose(found[row, 3 + channel], own.mean())
            np.testing.assert_allclose(found[row, 6 + channel], math.log(own.std() + 1e-3))
    flat = preprocessed(torch.full((4, 2, 40), 0.1), subject, standardize="none", append_scale=True)
    assert flat[:, :2].abs().max() < 1e-3, "a flat channel has no shape"
    assert torch.isfinite(flat).all()
