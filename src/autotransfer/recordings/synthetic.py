"""Synthetic biosignals: a known class signal under a known subject shift, with one parameter for each part."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError, shown
from .container import MIN_SUBJECTS, Recordings, check_sfreq
from .windows import MIN_TIMES

Floats = NDArray[np.float64]

CLASS_BAND = (0.10, 0.25)  # of the sampling rate, lowest and highest class frequency
RHYTHM = 0.06  # of the sampling rate
TEMPO_RANGE = 0.15  # relative, at mixing = 1


def synthetic(
    n_subjects: int = 8,
    n_classes: int = 2,
    trials_per_class: int = 24,
    n_channels: int = 8,
    n_times: int = 128,
    sfreq: float = 128.0,
    *,
    subject_shift: float | None = None,
    mixing: float = 0.5,
    gain: float = 0.5,
    label_shift: float = 0.0,
    noise: float = 0.7,
    seed: int = 0,
) -> Recordings:
    """Make recordings of oscillating sources, mixed differently for each subject.

    A trial of class k and subject s, with one random phase φ and ψ per trial, t in seconds:

        x(t) = g_s ∘ R_s [ b_k √2 cos(2π f_k τ_s t + φ) + c √2 cos(2π r τ_s t + ψ) + noise · e(t) ]

    b_k, c       topographies of class k and of an idle rhythm present in every trial: orthonormal, and used again
                 in turn where channels are fewer
    f_k, r       their frequencies: the class is in frequency and topography, phases carry nothing
    e(t)         white noise of unit variance, independent between channels
    R_s          rotation exp(mixing · K_s) of the channels, K_s random and skew-symmetric
    τ_s          tempo 1 + 0.15 · mixing · u_s, u_s evenly spread over [-1, 1] in random order
    g_s          gains exp(gain · N(0, 1)) of the channels; standardizing each trial removes them
    p(k | s)     ∝ exp(label_shift · N(0, 1)), every class at least once

    With mixing = gain = label_shift = 0 subjects are exchangeable. All subjects share which classes are
    faster; topographies, correlations between channels and exact frequencies identify the subject, even after
    each trial is standardized. `subject_shift` sets mixing and gain together. Every part has its own random
    stream: changing one parameter keeps the draws of the others.
    """
    if subject_shift is not None:
        mixing = gain = subject_shift
    _check_whole(
        n_subjects=(n_subjects, MIN_SUBJECTS), n_classes=(n_classes, 2), trials_per_class=(trials_per_class, 1),
        n_channels=(n_channels, 1), n_times=(n_times, MIN_TIMES), seed=(seed, 0),
    )  # fmt: skip
    _check_strengths(mixing=mixing, gain=gain, label_shift=label_shift, noise=noise)
    check_sfreq(sfreq)
    counts = _class_counts(n_subjects, n_classes, trials_per_class, label_shift, _stream(seed, "labels"))
    shuffle = _stream(seed, "order").permutation
    y = np.concatenate([shuffle(np.repeat(np.arange(n_classes), row)) for row in counts])
    subject = np.repeat(np.arange(n_subjects), counts.sum(1))
    topographies = _orthogonal(n_channels, _stream(seed, "topographies"))
    waves = _stream(seed, "phases").uniform(0, 2 * math.pi, (2, len(y)))
    order = _stream(seed, "tempo").permutation(np.linspace(-1, 1, n_subjects))
    tempo = (1 + TEMPO_RANGE * mixing * order)[subject]
    frequency = np.geomspace(*CLASS_BAND, n_classes)[y] * sfreq
    t = np.arange(n_times) / sfreq
    signal = _wave(frequency * tempo, waves[0], t)[:, None] * topographies[y % n_channels][:, :, None]
    rhythm = _wave(RHYTHM * sfreq * tempo, waves[1], t)[:, None] * topographies[n_classes % n_channels][:, None]
    e = _stream(seed, "noise").standard_normal((len(y), n_channels, n_times))

    X = _heads(n_subjects, n_channels, mixing, gain, seed)[subject] @ (signal + rhythm + noise * e)
    return Recordings(X.astype(np.float32), y, subject, sfreq=sfreq, name="synthetic")


def _check_whole(**numbers: tuple[int, int]) -> None:
    for name, (value, least) in numbers.items():
        if not isinstance(value, int) or value < least:
            raise UserError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")


def _check_strengths(**strengths: float) -> None:
    for name, strength in strengths.items():
        if not 0 <= strength <= 10:
            raise UserError(f"{name} is {shown(strength)}; it must lie between 0 and 10")


def _stream(seed: int, part: str) -> np.random.Generator:
    return np.random.default_rng([seed, *part.encode()])


def _wave(frequency: Floats, phase: Floats, t: Floats) -> Floats:
    """Return waves (N, times) of unit power for frequency and phase (N,) at t (times,)."""
    wave: Floats = math.sqrt(2) * np.cos(2 * math.pi * frequency[:, None] * t + phase[:, None])
    return wave


def _class_counts(
    n_subjects: int, n_classes: int, trials_per_class: int, label_shift: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return trials of each subject and class, (subjects, classes): equal sums, every class at least once."""
    weights = np.exp(label_shift * rng.standard_normal((n_subjects, n_classes)))
    spare = n_classes * (trials_per_class - 1)
    share = spare * weights / weights.sum(1, keepdims=True)
    counts: NDArray[np.int64] = np.floor(share + 1e-9).astype(np.int64)
    for row, remainder in zip(counts, share - counts, strict=True):  # the largest remainders get what is left
        row[np.argsort(-remainder, kind="stable")[: spare - row.sum()]] += 1
    counts += 1
    return counts


def _orthogonal(n: int, rng: np.random.Generator) -> Floats:
    """Return rows that form a random orthonormal basis (n, n)."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    basis: Floats = q * np.sign(np.diag(r))
    return basis


def _heads(n_subjects: int, n_channels: int, mixing: float, gain: float, seed: int) -> Floats:
    """Return g_s ∘ exp(mixing · K_s), (subjects, channels, channels); at mixing = 1 the typical angle is one radian."""
    gains = np.exp(gain * _stream(seed, "gains").standard_normal((n_subjects, n_channels)))
    a = _stream(seed, "rotations").standard_normal((n_subjects, n_channels, n_channels)) / math.sqrt(2 * n_channels)
    rotations: Floats = torch.linalg.matrix_exp(torch.from_numpy(mixing * (a - a.transpose(0, 2, 1)))).numpy()
    return gains[:, :, None] * rotations
