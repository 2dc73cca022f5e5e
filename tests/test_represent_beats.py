"""Heartbeats: found where they are, and cut around it."""

from __future__ import annotations

import numpy as np
import torch

from autotransfer.preprocessing.represent.base import segment_means
from autotransfer.preprocessing.represent.beats import MAX_SEGMENTS, Beats

SFREQ = 100.0


def beat_at(place: int, times: int = 160) -> np.ndarray:
    """Two channels with a narrow complex and a broad wave after it, (1, 2, T)."""
    time = np.arange(times)
    complexes = np.exp(-0.5 * ((time - place) / 1.5) ** 2)
    wave = 0.3 * np.exp(-0.5 * ((time - place - 20) / 6) ** 2)
    return np.stack([complexes + wave, 0.5 * wave - 2 * complexes])[None]


def test_a_beat_is_cut_around_its_steepest_place() -> None:
    x = beat_at(70)
    own = Beats(SFREQ).compute(torch.from_numpy(x))[0]
    assert own.shape == Beats(SFREQ).shape(2, 160) == (2, MAX_SEGMENTS + 1)
    spread = x[0].std(1)
    np.testing.assert_allclose(own[:, -1], np.log(spread), atol=1e-12)
    unit = (x[0] - x[0].mean(1, keepdims=True)) / spread[:, None]
    steep = np.square(unit[:, 2:] - unit[:, :-2]).sum(0)
    peak = int(np.argmax(steep[29:129])) + 30
    assert abs(peak - 70) <= 2
    expected = segment_means(torch.from_numpy(unit[:, peak - 30 : peak + 31]), MAX_SEGMENTS)
    np.testing.assert_allclose(own[:, :-1], expected, atol=1e-12)


def test_windows_shorter_than_a_beat_repeat_their_ends() -> None:
    short = torch.from_numpy(beat_at(20, times=40))
    out = Beats(SFREQ).compute(short)[0]
    assert out.isfinite().all()
    unit = (short[0] - short[0].mean(1, keepdim=True)) / short[0].std(1, correction=0, keepdim=True)
    torch.testing.assert_close(out[:, 0], unit[:, 0], msg="before the window there is its first sample")
