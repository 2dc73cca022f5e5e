"""xDAWN filters equal pyRiemann's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from autotransfer.model.stack import Size
from autotransfer.model.templates import Batches, TemplatesOptions, class_statistics, xdawn
from autotransfer.preprocessing.represent.base import segment_means

SIZE = Size(channels=5, times=40, classes=3, sfreq=None)


def trials(n: int = 90, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Every class has a response of its own from a place of its own, under noise that channels share."""
    draw = np.random.default_rng(seed)
    y = np.arange(n) % 3
    courses = np.stack([np.exp(-((np.arange(40) - peak) ** 2) / 20) for peak in (10, 20, 30)])
    X = draw.standard_normal((5, 5)) @ draw.standard_normal((n, 5, 40))
    X += 2 * draw.standard_normal((3, 5))[y][:, :, None] * courses[y][:, None]
    return torch.from_numpy(X), torch.from_numpy(y)


def in_pieces(X: torch.Tensor, y: torch.Tensor, step: int = 32) -> Batches:
    return lambda: ((X[i : i + step], y[i : i + step]) for i in range(0, len(X), step))


def test_filters_are_pyriemann_s() -> None:
    spatial = pytest.importorskip("pyriemann.spatialfilters")
    X, y = trials()
    theirs = spatial.Xdawn(nfilter=3, estimator="oas", classes=[0, 1, 2]).fit(X.numpy(), y.numpy())
    found = xdawn(*class_statistics(in_pieces(X, y), SIZE, torch.device("cpu")), 3).flatten(0, 1).numpy()
    other = theirs.filters_
    assert other.shape == found.shape == (9, 5)
    other = other / np.linalg.norm(other, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs((found * other).sum(1)), 1, atol=1e-3)


def test_latents_follow_the_definition() -> None:
    X, y = trials()
    options = TemplatesOptions(template_filters=2)
    net = options.stack(SIZE, 2, [0, 1]).double()
    net.fit([1], in_pieces(X, y))
    assert not net.filters[0].any()
    code = net.raw_latents(X[None], slice(1, 2))[0]
    assert code.shape == (len(X), options.latent_dim(SIZE)) == (len(X), 6 * 17)
    signals = net.filters[1] @ X
    torch.testing.assert_close(code[:, : 6 * 16], segment_means(signals).flatten(1))
    for f in range(6):
        response = net.filters[1, f] @ X[y == f // 2].mean(0)
        for n in (0, 5, 50):
            expected = np.corrcoef(signals[n, f], response)[0, 1]
            assert float(code[n, 96 + f]) == pytest.approx(expected, abs=1e-4)


def test_flat_channels_and_silence_are_no_trouble() -> None:
    X, y = trials()
    X[:, 1] = 0
    for windows in (X, torch.zeros_like(X), X + 1e4):
        net = TemplatesOptions().stack(SIZE, 1, [0])
        net.fit([0], in_pieces(windows.float(), y))
        assert all(buffer.isfinite().all() for buffer in net.buffers())
        assert net.raw_latents(windows.float()[None]).isfinite().all()
