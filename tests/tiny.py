"""Recordings so small that a whole run takes seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import autotransfer as at
from autotransfer.recordings import save_npz


def tiny(n_subjects: int = 4, per_class: int = 6, seed: int = 0, name: str = "tiny") -> at.Recordings:
    generator = np.random.default_rng(seed)
    subject = np.repeat(np.arange(n_subjects), 2 * per_class)
    y = np.tile([0, 1], n_subjects * per_class)
    X = generator.standard_normal((len(y), 2, 16))
    X[:, 0] += 4 * np.where(y[:, None], np.sin(np.arange(16)), np.cos(np.arange(16)))
    X[:, 1] += subject[:, None] * np.sin(np.arange(16) / 2)
    return at.Recordings(X, y, subject, sfreq=16, classes=["left", "right"], channels=["C3", "C4"], name=name)


def people(n_subjects: int = 5, per: int = 20, channels: int = 3, times: int = 24, seed: int = 0) -> at.Recordings:
    """Everybody mixes and scales the same sources in their own way; trials of people alternate."""
    draw = np.random.default_rng(seed)
    subject = np.tile(np.arange(n_subjects), per)
    y = draw.integers(0, 2, len(subject))
    sources = draw.standard_normal((len(subject), channels, times))
    sources[:, 0] += 2 * np.where(y[:, None], np.sin(np.arange(times) / 2), np.cos(np.arange(times) / 2))
    mixing = np.eye(channels) + 0.5 * draw.standard_normal((n_subjects, channels, channels))
    offset = 3 * draw.standard_normal((n_subjects, channels, 1))
    X = mixing[subject] @ sources + offset[subject]
    return at.Recordings(X, y, subject, sfreq=times)


def tiny_file(folder: Path, **changes: object) -> Path:
    path = folder / "tiny.npz"
    save_npz(path, tiny(**changes))
    return path
