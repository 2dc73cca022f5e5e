"""Delayed copies of the channels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tiny import preprocessed


def delayed(X: torch.Tensor, copies: int, lag: int) -> torch.Tensor:
    return preprocessed(X, torch.zeros(len(X), dtype=torch.int64), standardize="none", delays=copies, lag=lag)


@pytest.mark.parametrize(("copies", "lag"), [(2, 1), (3, 2), (4, 5)])
def test_every_copy_is_the_window_some_samples_later(copies: int, lag: int) -> None:
    X = torch.arange(2 * 3 * 20.0).view(2, 3, 20)
    found = delayed(X, copies, lag)
    left = 20 - (copies - 1) * lag
    assert found.shape == (2, 3 * copies, left)
    for n, c, copy, t in np.ndindex(2, 3, copies, left):
        assert found[n, copy * 3 + c, t] == X[n, c, t + copy * lag]
