"""MiniRocket against its definition: a sum over weights and channels for every sample."""

from __future__ import annotations

import numpy as np
import torch

from autotransfer.preprocessing.represent import Represent
from autotransfer.preprocessing.represent.minirocket import (
    EXAMPLES,
    KERNELS,
    choose_dilations,
    convolve,
    draw_kernels,
)
from autotransfer.preprocessing.transform import TransformedWindows


def test_convolutions_are_sums_over_weights_and_channels() -> None:
    X = np.random.default_rng(0).standard_normal((2, 3, 40))
    every = convolve(torch.from_numpy(X)).unflatten(1, (-1, 84))
    assert every.shape == (2, len(choose_dilations(40)), 84, 40)
    for place, responses in enumerate(every.unbind(1)):
        dilation, weights = choose_dilations(40)[place], draw_kernels(3, every.shape[1])[place].view(84, 9, 3)
        for kernel in (0, 17, 83):
            for t in range(40):
                expected = np.zeros(2)
                for k in range(9):
                    source = t + (k - 4) * dilation
                    if 0 <= source < 40:
                        expected += X[:, :, source] @ weights[kernel, k].numpy()
                np.testing.assert_allclose(responses[:, kernel, t], expected, atol=1e-12)


def test_kernels_are_the_84_of_minirocket_on_drawn_channels() -> None:
    own = draw_kernels(5, 2)[1].view(84, 9, 5)
    some = own.abs().sum(1) > 0
    assert some.any(1).all(), "a kernel sees nothing"
    assert 1 < some.sum(1).double().mean() < 4
    for kernel, twos in enumerate(KERNELS):
        for channel in np.flatnonzero(some[kernel]):
            weights = own[kernel, :, channel]
            assert weights.sum() == 0
            assert np.flatnonzero(weights == 2).tolist() == list(twos)
    assert (draw_kernels(5, 2)[0] != draw_kernels(5, 2)[1]).any(), "channels are drawn for every dilation"
    assert choose_dilations(200) == (1, 2, 8, 24)
    assert choose_dilations(9) == (1,)


def test_thresholds_are_quantiles_of_the_training_windows_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(40, 2, 50, generator=draw)
    rows = np.arange(20)
    fit = Represent("minirocket").fit
    subject = torch.arange(40) // 10
    step = fit(TransformedWindows(X, subject), [rows, np.arange(20, 40)])
    changed = X.clone()
    changed[20:] *= 100
    other = fit(TransformedWindows(changed, subject), [rows, np.arange(20, 40)])
    assert torch.equal(other.thresholds[0], step.thresholds[0])
    assert not torch.equal(other.thresholds[1], step.thresholds[1])
    # The share of samples above a quantile is what is left of its level; levels are spread over (0, 1).
    shares = step.get_group(0)(X[None, :20])[0, :, 0].mean(0)
    level = np.arange(1, len(shares) + 1) * (np.sqrt(5) - 1) / 2 % 1
    assert len(rows) < EXAMPLES
    np.testing.assert_allclose(shares, 1 - level, atol=2e-3)
