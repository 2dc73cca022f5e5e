"""Shapes with the mean and the log deviation of each channel beside them: known values, in training and in use."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.training.windows import windows_for
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


@pytest.mark.parametrize("network", [{}, {"encoder": "shallow"}])
def test_what_is_tabulated_of_windows_counts(monkeypatch: pytest.MonkeyPatch, network: dict[str, str]) -> None:
    rec = at.synthetic(n_subjects=3, trials_per_class=4, n_channels=16, n_times=128, sfreq=128)
    job = at.Job(at.Setting(**network), at.leave_one_subject_out(rec)[0])
    monkeypatch.setattr("autotransfer.training.packing.free_memory", lambda _: 2.1 * rec.X.numel() * 4)
    held = windows_for(rec, job, device=torch.device("cpu"), dtype=torch.float32)
    assert held.in_memory == bool(network), "half of the memory has room for windows, and none for a table of EEGNet's"
