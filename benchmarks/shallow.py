"""Fit baselines without networks: shrinkage LDA on features, and tangent spaces with pyRiemann.

These baselines select nothing on validation subjects, so they are fitted on all subjects except the test subject, whose
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
from pyriemann.geometry.mean import mean_riemann
from pyriemann.geometry.tangentspace import tangent_space, upper
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import autotransfer as at

Array = NDArray[np.floating[Any]]
Classes = NDArray[np.int64]
# name, adaptation, and for the test windows classes (n,) or probabilities (n, K)
Predictions = Iterator[tuple[str, str, Array | Classes]]

ZERO_SHOT, TRANSDUCTIVE = "zero-shot", "transductive"

POINTS = 16  # samples of a downsampled window, and bands of a spectrum
EMBEDDED = 16  # approximate number of channels with delayed copies, for recordings with fewer channels
DELAY = 0.02  # seconds between two delayed copies
FILTERS = 4  # xDAWN filters for each class
MOST_TEMPLATES = 32  # maximum number of rows of a covariance with templates


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
        """Return the windows of all subjects except the test subject."""
        return np.sort(np.concatenate([self.fold.train, self.fold.validation]))

    @property
    def test(self) -> NDArray[np.int64]:
        return self.fold.test

    def fit_and_predict(self, model: Any, values: Array) -> Array:
        """Return probabilities (n, K) of the test windows by a classifier on values (N, D)."""
        model.fit(values[self.known], self.y[self.known])
        probabilities = np.zeros((len(self.test), self.n_classes))
        probabilities[:, model.classes_] = model.predict_proba(values[self.test])
        return probabilities


def make_task(recordings: at.Recordings, fold: at.Fold, seed: int) -> Task:
    y = recordings.y.numpy().copy()
    y[fold.test] = -1
    X, subject = recordings.X.numpy(), recordings.subject.numpy()
    return Task(X, y, subject, fold, recordings.sfreq, recordings.n_classes, seed)


# ---- LDA -------------------------------------------------------------------------------------------------------------


def features(X: Array) -> Array:
    """Return means of 16 segments, log powers of 16 bands and two log standard deviations: (N, C, T) -> (N, C·34).

    The two standard deviations are of the signal and of its first difference.
    """
    means = np.stack([part.mean(2) for part in np.array_split(X, min(POINTS, X.shape[2]), axis=2)], 2)
    centered = X - X.mean(2, keepdims=True)
    power = np.abs(np.fft.rfft(centered * np.hanning(X.shape[2]), axis=2)[..., 1:]) ** 2
    bands = np.stack([part.mean(2) for part in np.array_split(power, min(POINTS, power.shape[2]), axis=2)], 2)
    spreads = np.stack([X.std(2), np.diff(X, axis=2).std(2)], 2)
    scale = np.finfo(np.float32).tiny ** 0.5  # keeps the logarithm of a flat channel finite
    return np.concatenate([means, np.log(bands + scale), np.log(spreads + scale)], 2).reshape(len(X), -1)


def lda(task: Task) -> Predictions:
    yield "shrinkage LDA", ZERO_SHOT, discriminant(features(task.X), task)


def log_power(task: Task) -> Predictions:
    """Predict from the log variance of each channel."""
    power = np.log(np.maximum(task.X.var(2), np.finfo(np.float32).tiny))
    yield "LDA on log power", ZERO_SHOT, discriminant(power, task)


_CACHE: dict[str, tuple[Any, Any]] = {}


def _compute_once(name: str, task: Task, units: bytes, compute: Callable[[], Any]) -> Any:
    """Return the result of `compute`, from a cache of the last data set and units."""
    key = (task.X.shape, float(task.X[0].sum()), units)
    if name not in _CACHE or _CACHE[name][0] != key:
        _CACHE[name] = (key, compute())
    return _CACHE[name][1]


def standardize_by_subject(values: Array, subject: NDArray[np.int64]) -> Array:
    """Return values (N, D) with mean 0 and deviation 1 over all windows of each subject."""
    standardized = np.empty(values.shape)
    for k in np.unique(subject):
        x = values[subject == k]
        deviation = x.std(0)
        standardized[subject == k] = (x - x.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    return standardized


def discriminant(values: Array, task: Task) -> Array:
    """Return probabilities of the test windows by shrinkage LDA on values (N, D)."""
    equal = np.full(task.n_classes, 1 / task.n_classes)  # balanced accuracy weights classes equally
    model = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=equal))
    return task.fit_and_predict(model, values)


# ---- Riemannian tangent spaces ---------------------------------------------------------------------------------------


def riemann(task: Task) -> Predictions:
    """Predict from covariances, with delayed copies of the channels if there are fewer than 16."""
    unit = _median_scale(task)

    def compute() -> SubjectTangents:
        return SubjectTangents.compute(oas_covariances(_append_delays(_scale(task.X, unit), task.sfreq)), task.subject)

    yield from _predict_in_tangent_space("pyRiemann", _compute_once("riemann", task, unit.tobytes(), compute), task)


def log_euclidean(task: Task) -> Predictions:
    """Predict from logarithms of covariances: pyRiemann's tangent space with its log-Euclidean metric.

    Vectors are used unchanged and with each subject's mean subtracted. Delays and shrinkage were selected by scores on
    emg_minimal, which favors the baseline on this set.
    """
    unit = _median_scale(task)
    vectors = _compute_once("logm", task, unit.tobytes(), lambda: upper(logm(oas_covariances(_scale(task.X, unit)))))
    yield "pyRiemann, log-Euclidean", ZERO_SHOT, _predict_logistic(vectors, task)

    centered = vectors.copy()
    for k in np.unique(task.subject):
        centered[task.subject == k] -= vectors[task.subject == k].mean(0)
    yield "pyRiemann, log-Euclidean", TRANSDUCTIVE, _predict_logistic(centered, task)


def _predict_logistic(vectors: Array, task: Task) -> Array:
    return task.fit_and_predict(LogisticRegression(C=0.1, class_weight="balanced", max_iter=300), vectors)


def riemann_templates(task: Task) -> Predictions:
    """Predict from covariances of xDAWN-filtered windows together with the filtered class means.

    The baseline is for signals that are locked to an event, and is skipped if there are many classes.
    """
    if 2 * task.n_classes * min(FILTERS, task.X.shape[1]) > MOST_TEMPLATES:
        return
    X = _scale(task.X, _median_scale(task))
    transformer = XdawnCovariances(FILTERS, estimator="oas", xdawn_estimator="oas")
    transformer.fit(X[task.known], task.y[task.known])
    yield from _predict_in_tangent_space(
        "pyRiemann, templates", SubjectTangents.compute(transformer.transform(X), task.subject), task
    )


def _median_scale(task: Task) -> Array:
    """Return the median standard deviation of each channel over the windows of known subjects.

    The median is rounded to a power of two, so that most folds share their covariances.
    """
    median = np.median(task.X[task.known].std(2), 0)
    return np.asarray(2.0 ** np.round(np.log2(np.where(median > 0, median, 1.0))))


def _scale(X: Array, unit: Array) -> Array:
    """Return windows divided by `unit`, with weak noise so that covariances of flat channels are regular."""
    noise = np.random.default_rng(0).standard_normal(X.shape[1:])
    return np.asarray(X / unit[None, :, None] + 1e-2 * noise, dtype=np.float64)


def _append_delays(X: Array, sfreq: float | None) -> Array:
    copies = max(1, round(EMBEDDED / X.shape[1]))
    lag = 1 if sfreq is None else max(1, round(DELAY * sfreq))
    length = X.shape[2] - (copies - 1) * lag
    return np.concatenate([X[:, :, i * lag : i * lag + length] for i in range(copies)], 1)


def oas_covariances(X: Array) -> Array:
    """Return the covariance of each window with oracle approximating shrinkage: (N, C, T) -> (N, C, C)."""
    return np.asarray(covariances(X, estimator="oas"))


@dataclass(frozen=True)
class SubjectTangents:
    """Covariances with the mean and the tangent vectors of each subject, which do not depend on the fold."""

    C: Array  # (N, d, d)
    means: Array  # (subjects, d, d) Riemannian mean of all windows of each subject
    vectors: Array  # (N, d(d+1)/2) tangent vectors at the mean of the subject

    @classmethod
    def compute(cls, C: Array, subject: NDArray[np.int64]) -> SubjectTangents:
        rows = [np.flatnonzero(subject == s) for s in range(subject.max() + 1)]
        means = np.stack([mean_riemann(C[k], tol=1e-6) for k in rows])
        vectors = np.empty((len(C), C.shape[1] * (C.shape[1] + 1) // 2))
        for k, mean in zip(rows, means, strict=True):
            vectors[k] = tangent_space(C[k], mean)
        return cls(C, means, vectors)


def _predict_in_tangent_space(name: str, data: SubjectTangents, task: Task) -> Predictions:
    """Yield predictions in the tangent space: not centered, and centered by subject.

    Vectors that are not centered are tangent at the mean of the means of known subjects. Centering uses all windows of
    a subject.
    """
    prior = mean_riemann(data.means[np.unique(task.subject[task.known])], tol=1e-6)
    for adaptation, vectors in ((ZERO_SHOT, tangent_space(data.C, prior)), (TRANSDUCTIVE, data.vectors)):
        model = LogisticRegression(C=0.01, class_weight="balanced", max_iter=300)
        yield name, adaptation, task.fit_and_predict(make_pipeline(StandardScaler(), model), vectors)
