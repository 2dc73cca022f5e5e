"""Synthetic biosignals: a known class signal under a known subject shift.

A window of class k and subject s, with random phases φ and ψ, t in seconds:

    x(t) = g_s ∘ R_s [ b_k √2 cos(2π f_k τ_s t + φ) + c √2 cos(2π r τ_s t + ψ) + noise · e(t) ]

b_k, c       orthonormal topographies of class k and of an idle rhythm, used in turn if there are few channels
f_k, r       their frequencies
e(t)         white noise of unit variance, independent between channels
R_s          rotation exp(subject_shift · K_s) of the channels, K_s random and skew-symmetric
τ_s          tempo 1 + 0.15 · subject_shift · u_s, u_s evenly spread over [-1, 1] in random order
g_s          gains exp(subject_shift · N(0, 1)) of the channels; standardizing each window removes them
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from .container import Recordings

Floats = NDArray[np.float64]

CLASS_BAND = (0.10, 0.25)  # of the sampling rate, lowest and highest class frequency
RHYTHM = 0.06  # of the sampling rate
TEMPO_RANGE = 0.15  # relative, at subject_shift = 1


def synthetic(
    n_subjects: int = 8,
    n_classes: int = 2,
    windows_per_class: int = 24,
    n_channels: int = 8,
    n_times: int = 128,
    sfreq: float = 128.0,
    *,
    subject_shift: float = 0.5,
    noise: float = 0.7,
    seed: int = 0,
) -> Recordings:
    """Make recordings of oscillating sources, mixed differently for each subject.

    With subject_shift = 0, subjects are exchangeable. Otherwise topographies, correlations between channels and exact
    frequencies identify the subject, even if each window is standardized. Every part has its own random stream, so a
    change of one parameter keeps the draws of the others.

    Parameters
    ----------
    n_subjects, n_classes, windows_per_class, n_channels, n_times : int
        Sizes; `windows_per_class` counts the windows of each class and subject.
    sfreq : float
        Sampling rate in Hz.
    subject_shift, noise : float
        Size of the differences between subjects, and amplitude of white noise.
    seed : int
        Seed of all draws.

    Returns
    -------
    Recordings
        Windows with classes and subjects.
    """
    shuffle = _stream(seed, "order").permutation
    y = np.concatenate([shuffle(np.repeat(np.arange(n_classes), windows_per_class)) for _ in range(n_subjects)])
    subject = np.repeat(np.arange(n_subjects), n_classes * windows_per_class)
    q, r = np.linalg.qr(_stream(seed, "topographies").standard_normal((n_channels, n_channels)))
    topographies = q * np.sign(np.diag(r))  # rows: a random orthonormal basis
    waves = _stream(seed, "phases").uniform(0, 2 * math.pi, (2, len(y)))
    order = _stream(seed, "tempo").permutation(np.linspace(-1, 1, n_subjects))
    tempo = (1 + TEMPO_RANGE * subject_shift * order)[subject]
    frequency = np.geomspace(*CLASS_BAND, n_classes)[y] * sfreq
    t = np.arange(n_times) / sfreq
    signal = _wave(frequency * tempo, waves[0], t)[:, None] * topographies[y % n_channels][:, :, None]
    rhythm = _wave(RHYTHM * sfreq * tempo, waves[1], t)[:, None] * topographies[n_classes % n_channels][:, None]
    e = _stream(seed, "noise").standard_normal((len(y), n_channels, n_times))

    X = _heads(n_subjects, n_channels, subject_shift, seed)[subject] @ (signal + rhythm + noise * e)
    return Recordings(X.astype(np.float32), y, subject, sfreq=sfreq, name="synthetic")


def _stream(seed: int, part: str) -> np.random.Generator:
    return np.random.default_rng([seed, *part.encode()])


def _wave(frequency: Floats, phase: Floats, t: Floats) -> Floats:
    """Return waves (N, times) of unit power for frequency and phase (N,) at t (times,)."""
    wave: Floats = math.sqrt(2) * np.cos(2 * math.pi * frequency[:, None] * t + phase[:, None])
    return wave


def _heads(n_subjects: int, n_channels: int, shift: float, seed: int) -> Floats:
    """Return g_s ∘ exp(shift · K_s), (subjects, channels, channels); at shift = 1 the typical angle is one radian."""
    gains = np.exp(shift * _stream(seed, "gains").standard_normal((n_subjects, n_channels)))
    a = _stream(seed, "rotations").standard_normal((n_subjects, n_channels, n_channels)) / math.sqrt(2 * n_channels)
    rotations: Floats = torch.linalg.matrix_exp(torch.from_numpy(shift * (a - a.transpose(0, 2, 1)))).numpy()
    return gains[:, :, None] * rotations
