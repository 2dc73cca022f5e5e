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


def tiny_file(folder: Path, **changes: object) -> Path:
    path = folder / "tiny.npz"
    save_npz(path, tiny(**changes))
    return path
