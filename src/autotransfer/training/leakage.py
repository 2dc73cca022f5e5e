"""How well a fresh probe reads the subject from z: a measure that no training uses."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError


@dataclass(frozen=True)
class Leakage:
    """Cross-validated result of a probe that predicts the subject."""

    accuracy: float  # balanced accuracy of reading the subject
    chance: float  # 1 / number of subjects
    bits: float  # lower bound on the mutual information I(z; s); at least 0
    n_subjects: int
    n_windows: int

    @property
    def excess(self) -> float:
        """Return the accuracy above chance, relative to its maximum."""
        return (self.accuracy - self.chance) / (1 - self.chance)

    def __str__(self) -> str:
        return f"subject read with {self.accuracy:.3f} (chance {self.chance:.3f}), at least {self.bits:.2f} bits"


def leakage(z: Any, s: Any, *, folds: int = 5, seed: int = 0) -> Leakage:
    """Measure how well a logistic regression predicts the subject from latent features, cross-validated over windows.

    z: (N, D) latent features; s: (N,) subjects, which have equal weights. bits = H(s) - cross-entropy of the probe, a
    lower bound on I(z; s); it is at least 0.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import ThreadpoolController

    latents, subjects, counts = _check_latents(z, s)
    n_subjects = len(counts)
    splits = min(folds, int(counts.min()))
    log_p = np.zeros((len(subjects), n_subjects))
    threads = ThreadpoolController()  # looks through every loaded library: once is enough
    for train, test in StratifiedKFold(splits, shuffle=True, random_state=seed).split(latents, subjects):
        probe = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=200))
        # 200 iterations are enough to read what there is to read; products this small lose time with more threads.
        with warnings.catch_warnings(), threads.limit(limits=1):
            warnings.simplefilter("ignore")
            probe.fit(latents[train], subjects[train])
        log_p[test] = probe.predict_log_proba(latents[test])
    hit = log_p.argmax(1) == subjects
    true_log_p = np.maximum(log_p[np.arange(len(subjects)), subjects], math.log(1e-12))
    accuracy = float(np.mean(np.bincount(subjects, hit) / counts))
    entropy = float(np.mean(np.bincount(subjects, -true_log_p) / counts)) / math.log(2)
    return Leakage(accuracy, 1 / n_subjects, max(0.0, math.log2(n_subjects) - entropy), n_subjects, len(subjects))


def _check_latents(z: ArrayLike, s: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return latents, subjects as 0, 1, ... and their counts."""
    z, s = (values.detach().cpu() if hasattr(values, "detach") else values for values in (z, s))
    latents, labels = np.asarray(z, dtype=np.float64), np.asarray(s)
    if latents.ndim != 2 or labels.shape != (len(latents),):
        raise UserError(f"leakage needs z (N, D) and s (N,), not {latents.shape} and {labels.shape}")
    if not np.isfinite(latents).all():
        raise UserError("z has values that are not finite; a probe cannot read them")
    _, subjects, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or counts.min() < 2:
        raise UserError(f"leakage needs at least 2 subjects with 2 trials each, not {counts.tolist()} trials")
    return latents, subjects.astype(np.int64), counts
