"""Leakage: accuracy with which a probe predicts the subject from latents. Leakage is never used in training."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from ..words import score


@dataclass(frozen=True)
class Leakage:
    """Cross-validated scores of a probe that predicts the subject from latents."""

    accuracy: float  # balanced accuracy
    chance: float  # 1 / number of subjects
    bits: float  # lower bound on the mutual information I(z; s); at least 0
    n_subjects: int
    n_windows: int

    @property
    def excess(self) -> float:
        """Return the accuracy above chance as a share of the largest possible difference."""
        return (self.accuracy - self.chance) / (1 - self.chance)

    def __str__(self) -> str:
        accuracy = f"subject predicted with accuracy {score(self.accuracy)} (chance {score(self.chance)})"
        return f"{accuracy}, at least {self.bits:.2f} bits"


def leakage(z: Any, s: Any, *, folds: int = 5, seed: int = 0) -> Leakage:
    """Measure how well a logistic regression predicts the subject from latents, cross-validated over windows.

    Parameters
    ----------
    z : array (N, D)
        Latents.
    s : array (N,)
        Subjects. All subjects have equal weights.
    folds : int
        Number of folds.
    seed : int
        Seed of the folds.

    Returns
    -------
    Leakage
        Balanced `accuracy`, its `chance` level, and `bits` = H(s) − cross-entropy, a lower bound on I(z; s).
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
    threads = ThreadpoolController()  # inspects every loaded library, so it is created once
    for train, test in StratifiedKFold(splits, shuffle=True, random_state=seed).split(latents, subjects):
        probe = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=200))
        # 200 iterations suffice in practice, so warnings are ignored. One thread is faster for small matrices.
        with warnings.catch_warnings(), threads.limit(limits=1):
            warnings.simplefilter("ignore")
            probe.fit(latents[train], subjects[train])
        log_p[test] = probe.predict_log_proba(latents[test])
    is_correct = log_p.argmax(1) == subjects
    true_log_p = np.maximum(log_p[np.arange(len(subjects)), subjects], math.log(1e-12))
    accuracy = float(np.mean(np.bincount(subjects, is_correct) / counts))
    entropy = float(np.mean(np.bincount(subjects, -true_log_p) / counts)) / math.log(2)
    return Leakage(accuracy, 1 / n_subjects, max(0.0, math.log2(n_subjects) - entropy), n_subjects, len(subjects))


def _check_latents(z: ArrayLike, s: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return latents, subjects as 0, 1, ... and their counts."""
    z, s = (values.detach().cpu() if hasattr(values, "detach") else values for values in (z, s))
    latents, labels = np.asarray(z, dtype=np.float64), np.asarray(s)
    if latents.ndim != 2 or labels.shape != (len(latents),):
        raise UserError(f"z has shape {latents.shape} and s {labels.shape}; give z (N, D) and s (N,)")
    if not np.isfinite(latents).all():
        raise UserError("z contains NaN or infinite values; remove these rows")
    _, subjects, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2 or counts.min() < 2:
        raise UserError(f"leakage needs at least 2 subjects with 2 windows each, not {counts.tolist()} windows")
    return latents, subjects.astype(np.int64), counts
