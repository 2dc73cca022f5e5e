"""μ-law compression: known values."""

from __future__ import annotations

import math

import pytest
import torch

from tiny import preprocessed

MU = 10.0


def compressed(x: torch.Tensor) -> torch.Tensor:
    return preprocessed(x[None, None], torch.zeros(1, dtype=torch.long), standardize="none", mu_law=MU)[0, 0]


def test_zero_and_one_stay_and_the_order_too() -> None:
    x = torch.tensor([-50.0, -1.0, -0.1, 0.0, 0.1, 1.0, 50.0], dtype=torch.float64)
    found = compressed(x)
    torch.testing.assert_close(found[[1, 3, 5]], x[[1, 3, 5]])
    assert (found.diff() > 0).all()
    torch.testing.assert_close(found, -compressed(-x))
    assert found[4] == pytest.approx(math.log(2) / math.log(11))
    assert found[6] == pytest.approx(math.log(501) / math.log(11))
