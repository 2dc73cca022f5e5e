"""Baselines without networks: shrinkage LDA on features, and Riemannian tangent spaces with pyRiemann.

None of them selects anything on held-out subjects, so they are fitted on all subjects except the test subject, whose
labels are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyriemann.estimation import XdawnCovariances
from pyriemann.geometry.base import logm
from pyriemann.geometry.covariance import covariances
from pyriemann.geometry.geodesic import geodesic_riemann
from pyriemann.geometry.mean import mean_riemann
from pyriemann.geometry.tangentspace import tangent_space, upper
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import autotransfer as at

Array = NDArray[np.floating[Any]]

POINTS = 16  # of a downsampled window, and bands of a spectrum
EMBEDDED = 16  # channels that delays add up to where a recording has fewer
DELAY = 0.02  # seconds between two delayed copies
FILTERS = 4  # xDAWN's, for each class
MOST_TEMPLATES = 32  # rows of a covariance with templates: more classes make it too large to be sensible
PRIOR = 8  # windows that the training subjects' mean counts for, before a new person has shown any


@dataclass(frozen=True)
class Task:
    """Windows of all subjects, and labels of all except the test subject."""

    X: Array  # (N, channels, times), raw
    y: NDArray[np.int64]  # (N,), -1 for the test subject
    subject: NDArray[np.int64]  # (N,)
    fold: at.Fold
    sfreq: float | None
    n_classes: int
    seed: int

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """Return the rows of all subjects except the test subject."""
        return np.sort(np.concatenate([self.fold.train, self.fold.validation]))

    @property
    def test(self) -> NDArray[np.int64]:
        return self.fold.test


def task_of(recordings: at.Recordings, fold: at.Fold, seed: int) -> Task:
    y = recordings.y.numpy().copy()
    y[fold.test] = -1
    X, subject = recordings.X.numpy(), recordings.subject.numpy()
    return Task(X, y, subject, fold, recordings.sfreq, recordings.n_classes, seed)


# ---- LDA -------------------------------------------------------------------------------------------------------------


def features(X: Array) -> Array:
    """Return means of 16 stretches, log powers of 16 bands and two log standard deviations: (N, C, T) -> (N, C·34).

    The deviations are those of the signal and of its first difference.
    """
    means = np.stack([part.mean(2) for part in np.array_split(X, min(POINTS, X.shape[2]), axis=2)], 2)
    centered = X - X.mean(2, keepdims=True)
    power = np.abs(np.fft.rfft(centered * np.hanning(X.shape[2]), axis=2)[..., 1:]) ** 2
    bands = np.stack([part.mean(2) for part in np.array_split(power, min(POINTS, power.shape[2]), axis=2)], 2)
    spreads = np.stack([X.std(2), np.diff(X, axis=2).std(2)], 2)
    scale = np.finfo(np.float32).tiny ** 0.5  # a flat channel has a small logarithm, not none
    return np.concatenate([means, np.log(bands + scale), np.log(spreads + scale)], 2).reshape(len(X), -1)


def lda(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    yield "lda", discriminant(features(task.X), task)


def log_power(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Predict from the log variance of each channel."""
    yield "log_power", discriminant(np.log(np.maximum(task.X.var(2), np.finfo(np.float32).tiny)), task)


def hudgins(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Predict from time-domain features after Hudgins et al. (1993), without and with autoregression.

    They are LibEMG's groups HTD and TDAR, as they are and z-scored by subject.
    """
    plain, coefficients = _once("hudgins", task, b"", lambda: (time_domain(task.X), autoregression(task.X)))
    for name, values in {"hudgins": plain, "hudgins_ar": np.concatenate([plain, coefficients], 1)}.items():
        yield name, discriminant(values, task)
        yield f"{name}_by_person", discriminant(by_person(values, task.subject), task)


_KEPT: dict[str, tuple[Any, Any]] = {}
ORDER = 4  # of the autoregression


def _once(name: str, task: Task, units: bytes, compute: Callable[[], Any]) -> Any:
    """Return what `compute` gives for a data set in these units, and keep it until another one is asked for."""
    key = (task.X.shape, float(task.X[0].sum()), units)
    if name not in _KEPT or _KEPT[name][0] != key:
        _KEPT[name] = (key, compute())
    return _KEPT[name][1]


def time_domain(X: Array) -> Array:
    """Return mean absolute value, zero crossings, slope sign changes and waveform length: (N, C, T) -> (N, 4C)."""
    slope = np.diff(X, axis=2)
    crossings, turns = ((signal[..., :-1] * signal[..., 1:] < 0).sum(2) for signal in (X, slope))
    return np.concatenate([np.abs(X).mean(2), crossings, turns, np.abs(slope).sum(2)], 1)


def autoregression(X: Array, order: int = ORDER) -> Array:
    """Return Yule–Walker coefficients of each channel: (N, C, T) -> (N, C·order)."""
    X = np.asarray(X - X.mean(2, keepdims=True), dtype=np.float64)
    lags = np.stack([(X[..., : X.shape[2] - k] * X[..., k:]).sum(2) for k in range(order + 1)], 2)  # (N, C, order + 1)
    power = np.where(lags[..., :1] > 0, lags[..., :1], 1.0)
    distance = np.abs(np.subtract.outer(np.arange(order), np.arange(order)))
    matrix = (lags / power)[..., distance] + 1e-6 * np.eye(order)  # a flat channel has no autocorrelation
    return np.linalg.solve(matrix, (lags / power)[..., 1:, None])[..., 0].reshape(len(X), -1)


def by_person(values: Array, subject: NDArray[np.int64]) -> Array:
    """Return values (N, D) with mean 0 and deviation 1 over all windows of each subject."""
    scored = np.empty(values.shape)
    for person in np.unique(subject):
        x = values[subject == person]
        deviation = x.std(0)
        scored[subject == person] = (x - x.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    return scored


def discriminant(values: Array, task: Task) -> NDArray[np.int64]:
    """Predict the test subject by shrinkage LDA on values (N, D)."""
    equal = np.full(task.n_classes, 1 / task.n_classes)  # the metric weighs classes equally, so should the prior
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=equal))
    model.fit(values[task.known], task.y[task.known])
    return np.asarray(model.predict(values[task.test]))


# ---- Riemannian tangent spaces ---------------------------------------------------------------------------------------


def riemann(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Predict from covariances, with delayed copies of the channels if there are fewer than 16."""
    unit = _units(task)

    def compute() -> Centered:
        return Centered.of(oas_covariances(_delayed(_scaled(task.X, unit), task.sfreq)), task.subject)

    yield from _tangent_spaces("riemann", _once("riemann", task, unit.tobytes(), compute), task)


def log_euclidean(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Predict from logarithms of covariances: pyRiemann's tangent space with its log-Euclidean metric.

    Vectors are used as they are and with each subject's mean subtracted. Delays and shrinkage were chosen by scores on
    emg_minimal, which flatters the baseline there.
    """
    unit = _units(task)
    vectors = _once("logm", task, unit.tobytes(), lambda: upper(logm(oas_covariances(_scaled(task.X, unit)))))
    yield "log_euclidean", _logistic(vectors, task)

    centered = vectors.copy()
    for person in np.unique(task.subject):
        centered[task.subject == person] -= vectors[task.subject == person].mean(0)
    yield "log_euclidean_recentered", _logistic(centered, task)


def _logistic(vectors: Array, task: Task) -> NDArray[np.int64]:
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)
    return np.asarray(model.fit(vectors[task.known], task.y[task.known]).predict(vectors[task.test]))


def riemann_templates(task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Predict from covariances of xDAWN-filtered windows together with the filtered class means.

    It is meant for signals that are locked to an event, and skipped if there are many classes.
    """
    if 2 * task.n_classes * min(FILTERS, task.X.shape[1]) > MOST_TEMPLATES:
        return
    X = _scaled(task.X, _units(task))
    made = XdawnCovariances(FILTERS, estimator="oas", xdawn_estimator="oas")
    made.fit(X[task.known], task.y[task.known])
    yield from _tangent_spaces("riemann_templates", Centered.of(made.transform(X), task.subject), task)


def _units(task: Task) -> Array:
    """Return the median standard deviation of each channel over the known subjects' windows.

    It is rounded to a power of two, so that most folds share their covariances.
    """
    median = np.median(task.X[task.known].std(2), 0)
    return np.asarray(2.0 ** np.round(np.log2(np.where(median > 0, median, 1.0))))


def _scaled(X: Array, unit: Array) -> Array:
    """Return windows in these units, with a faint noise that keeps flat channels from being singular."""
    noise = np.random.default_rng(0).standard_normal(X.shape[1:])
    return np.asarray(X / unit[None, :, None] + 1e-2 * noise, dtype=np.float64)


def _delayed(X: Array, sfreq: float | None) -> Array:
    copies = max(1, round(EMBEDDED / X.shape[1]))
    lag = 1 if sfreq is None else max(1, round(DELAY * sfreq))
    length = X.shape[2] - (copies - 1) * lag
    return np.concatenate([X[:, :, i * lag : i * lag + length] for i in range(copies)], 1)


def oas_covariances(X: Array) -> Array:
    """Return the covariance of each window with oracle approximating shrinkage: (N, C, T) -> (N, C, C)."""
    return np.asarray(covariances(X, estimator="oas"))


@dataclass(frozen=True)
class Centered:
    """Quantities that follow from the covariances of each subject alone, whichever subject is tested."""

    C: Array  # (N, d, d)
    means: Array  # (subjects, d, d), Riemannian, of all windows of the subject
    vectors: Array  # (N, d(d+1)/2) tangent vectors at the mean of the subject

    @classmethod
    def of(cls, C: Array, subject: NDArray[np.int64]) -> Centered:
        rows = [np.flatnonzero(subject == s) for s in range(subject.max() + 1)]
        means = np.stack([mean_riemann(C[person], tol=1e-6) for person in rows])
        vectors = np.empty((len(C), C.shape[1] * (C.shape[1] + 1) // 2))
        for person, mean in zip(rows, means, strict=True):
            vectors[person] = tangent(C[person], mean)
        return cls(C, means, vectors)


def _tangent_spaces(name: str, data: Centered, task: Task) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield predictions in the tangent space: plain, re-centered by subject, and with a running mean.

    Plain vectors are tangent at the mean of the known subjects' means. Re-centering uses all windows of a subject. The
    running mean is updated with every window, in shuffled order and in that of the file.
    """
    known, test, C = task.known, task.test, data.C
    prior = mean_riemann(data.means[np.unique(task.subject[known])], tol=1e-6)
    yield name, _classifier(tangent(C[known], prior), task).predict(tangent(C[test], prior))

    model = _classifier(data.vectors[known], task)
    yield f"{name}_recentered", model.predict(data.vectors[test])

    shuffled = np.random.default_rng(task.seed).permutation(len(test))
    yield f"{name}_running", model.predict(online(C[test], prior, shuffled))
    yield f"{name}_running_file_order", model.predict(online(C[test], prior, np.arange(len(test))))


def tangent(C: Array, at_mean: Array) -> Array:
    """Return the logs of whitened matrices: (n, d, d) -> (n, d(d+1)/2); at_mean is (d, d) or (n, d, d)."""
    if at_mean.ndim == 2:
        return np.asarray(tangent_space(C, at_mean))
    return np.concatenate([tangent_space(matrix[None], mean) for matrix, mean in zip(C, at_mean, strict=True)])


def online(C: Array, prior: Array, order: NDArray[np.int64]) -> Array:
    """Return tangent vectors (n, d(d+1)/2) of windows in this order, each at the mean of those so far.

    The mean starts at the training subjects' mean, which counts as `PRIOR` windows, and moves along the geodesic.
    """
    mean, means = prior, np.empty_like(C)
    for seen, row in enumerate(order, start=1):
        mean = geodesic_riemann(mean, C[row], 1 / (PRIOR + seen))
        means[row] = mean
    return tangent(C, means)


def _classifier(vectors: Array, task: Task) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=300))
    return model.fit(vectors, task.y[task.known])
