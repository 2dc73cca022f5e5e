"""Fit classifiers to hand-made features: those of `represent="combined"`, and those of specialists for a signal.

Constants are those of the libraries. Features of beats, gaze and motion follow common practice of their fields:
statistics of the intervals between beats (heart rate variability), features of event detectors (Zemblys et al. 2018),
and statistics of axes and magnitudes (Anguita et al. 2013). No other features were tried. They were written after the
confirmations, and `combined` was designed when scores of specialists on gaze_events and ppg_arrhythmia were known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.signal import butter, find_peaks, savgol_filter, sosfiltfilt
from scipy.stats import kurtosis, skew
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import autotransfer as at
from autotransfer.preprocessing.represent import representation_class

from .shallow import TRANSDUCTIVE, ZERO_SHOT, Array, Predictions, Task, discriminant, standardize_by_subject

Predict = Callable[[Task], Predictions]
Classify = Callable[[Array, Task], Array]  # values (N, D) -> probabilities of the test windows

TREES = 500
PRIOR = 8  # weight of the class means of the training subjects, in windows
ROUNDS = 20  # of expectation maximization
QUANTILES = (5, 25, 50, 75, 95)


def predict_with(name: str, values: Array, recordings: at.Recordings, classify: Classify) -> Predict:
    """Return predictions of a classifier on values (N, D), unchanged and z-scored by subject."""
    versions = {ZERO_SHOT: values, TRANSDUCTIVE: standardize_by_subject(values, recordings.subject.numpy())}

    def predict(task: Task) -> Predictions:
        for adaptation, features in versions.items():
            yield name, adaptation, classify(features, task)

    return predict


def chain(*parts: Predict) -> Predict:
    def predict(task: Task) -> Predictions:
        for part in parts:
            yield from part(task)

    return predict


# ---- classifiers -----------------------------------------------------------------------------------------------------


def boost(values: Array, task: Task) -> Array:
    import lightgbm

    model = lightgbm.LGBMClassifier(class_weight="balanced", random_state=task.seed, n_jobs=1, verbose=-1)
    return task.fit_and_predict(model, values)


def extra_trees(values: Array, task: Task) -> Array:
    return task.fit_and_predict(ExtraTreesClassifier(TREES, class_weight="balanced", random_state=task.seed), values)


def maximize_expectation(values: Array, task: Task) -> Array:
    """Re-estimate class means and proportions of each test subject by EM, in the space of shrinkage LDA.

    Classes are Gaussian with the identity as covariance, and start at the means of the training subjects.
    """
    equal = np.full(task.n_classes, 1 / task.n_classes)
    lda = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", priors=equal))
    z, y = lda.fit(values[task.known], task.y[task.known]).transform(values), task.y[task.known]
    first = np.stack([z[task.known][y == label].mean(0) for label in range(task.n_classes)])
    probabilities = np.empty((len(task.test), task.n_classes))
    for k in np.unique(task.subject[task.test]):
        own = task.subject[task.test] == k
        x, means, shares = z[task.test][own], first, equal
        for _ in range(ROUNDS):
            logits = np.log(shares) - 0.5 * ((x[:, None] - means) ** 2).sum(2)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            counts = weights.sum(0)
            means = (PRIOR * first + weights.T @ x) / (PRIOR + counts)[:, None]
            shares = (PRIOR + counts) / (PRIOR + counts).sum()
        probabilities[own] = weights
    return probabilities


# ---- features of the run ---------------------------------------------------------------------------------------------


def combined(recordings: at.Recordings) -> Array:
    """Return statistics, intervals and speed of each window (N, D)."""
    compute = representation_class("combined")(recordings.sfreq).compute
    return torch.cat([compute(part).flatten(1) for part in torch.split(recordings.X, 500)]).numpy().astype(np.float32)


def boosting(recordings: at.Recordings, seed: int, device: str) -> Predict:
    return predict_with("statistics, intervals and speed + LightGBM", combined(recordings), recordings, boost)


def trees(recordings: at.Recordings, seed: int, device: str) -> Predict:
    return predict_with("statistics, intervals and speed + extra trees", combined(recordings), recordings, extra_trees)


def linear(recordings: at.Recordings, seed: int, device: str) -> Predict:
    values = combined(recordings)
    z_scored = standardize_by_subject(values, recordings.subject.numpy())

    def em(task: Task) -> Predictions:
        yield "statistics, intervals and speed + LDA, EM", TRANSDUCTIVE, maximize_expectation(z_scored, task)

    return chain(predict_with("statistics, intervals and speed + LDA", values, recordings, discriminant), em)


# ---- features of specialists -----------------------------------------------------------------------------------------


def _specialist(name: str, values: Array, recordings: at.Recordings) -> Predict:
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    models: dict[str, Classify] = {"extra trees": extra_trees, "LDA": discriminant}
    return chain(*(predict_with(f"{name} + {key}", values, recordings, fit) for key, fit in models.items()))


def beat_intervals(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare statistics of the intervals between pulses of each channel, and of their heights."""
    assert recordings.sfreq is not None
    sos = butter(2, (0.5, 8), "bandpass", fs=recordings.sfreq, output="sos")
    filtered = sosfiltfilt(sos, recordings.X.numpy().astype(np.float64), axis=2)
    values = [np.concatenate([_describe_beats(signal, recordings.sfreq) for signal in window]) for window in filtered]
    return _specialist("beat intervals", np.array(values), recordings)


def _describe_beats(signal: Array, sfreq: float) -> Array:
    peaks, found = find_peaks(signal, distance=int(0.25 * sfreq), prominence=0.3 * signal.std())
    if len(peaks) < 4:
        return np.zeros(27)
    gaps, heights = np.diff(peaks) / sfreq, found["prominences"] / (signal.std() or 1.0)
    changes, mean = np.diff(gaps), gaps.mean()
    sd1, sd2 = changes.std() / 2**0.5, (gaps[1:] + gaps[:-1]).std() / 2**0.5
    turns = ((changes[1:] * changes[:-1]) < 0).mean() if len(changes) > 1 else 0.0
    return np.array([
        len(peaks), mean, np.median(gaps), gaps.std(), gaps.std() / mean, gaps.min(), gaps.max(), gaps.min() / mean,
        gaps.max() / mean, np.ptp(gaps), *np.percentile(gaps / mean, QUANTILES), np.sqrt((changes**2).mean()),
        np.sqrt((changes**2).mean()) / mean, np.abs(changes).mean() / mean, (np.abs(changes) > 0.05).mean(), sd1, sd2,
        sd1 / (sd2 or 1.0), turns, (away := gaps - mean)[1:] @ away[:-1] / (away @ away or 1.0), heights.mean(),
        heights.std(), heights.std() / heights.mean(),
    ])  # fmt: skip


def gaze_velocities(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare speeds, accelerations, dispersion and directions of the eye, of the window and of its middle fifth."""
    assert recordings.sfreq is not None
    x, step = recordings.X.numpy().astype(np.float64), 1 / recordings.sfreq
    velocity, acceleration = (savgol_filter(x, 11, 3, deriv=order, delta=step, axis=2) for order in (1, 2))
    speed, force = np.linalg.norm(velocity, axis=1), np.linalg.norm(acceleration, axis=1)
    n = x.shape[2]
    middle = slice(2 * n // 5, 3 * n // 5)
    parts = [np.log1p(np.percentile(values, (*QUANTILES, 100), axis=1)).T for values in (speed, force)]
    for part in (slice(None), slice(0, n // 2), slice(n // 2, n), middle):
        place, moved = x[:, :, part], np.diff(x[:, :, part], axis=2)
        path = np.linalg.norm(moved, axis=1)
        net = np.linalg.norm(place[:, :, -1] - place[:, :, 0], axis=1)
        turn = moved / np.maximum(path, 1e-12)[:, None]
        columns = [
            speed[:, part].mean(1), speed[:, part].std(1), speed[:, part].max(1), force[:, part].mean(1), path.sum(1),
            net, np.ptp(place, axis=2).sum(1), place.std(2).sum(1), np.sqrt((path**2).mean(1)),
        ]  # fmt: skip
        shares = [net / np.maximum(path.sum(1), 1e-12), np.linalg.norm(turn.mean(2), axis=1)]
        parts.append(np.stack([*map(np.log1p, columns), *shares], 1))
    shift = np.linalg.norm(x[:, :, n // 2 :].mean(2) - x[:, :, : n // 2].mean(2), axis=1)
    return _specialist("gaze velocities", np.concatenate([*parts, np.log1p(shift)[:, None]], 1), recordings)


def motion(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare statistics of every axis and of the magnitude of every sensor of three axes."""
    x = recordings.X.numpy().astype(np.float64)
    sensors = x.reshape(len(x), -1, 3, x.shape[2])
    series = np.concatenate([x, np.linalg.norm(sensors, axis=2)], 1)
    centered = series - series.mean(2, keepdims=True)
    power = np.abs(np.fft.rfft(centered, axis=2)[..., 1:]) ** 2
    share = power / np.maximum(power.sum(2, keepdims=True), 1e-12)
    bands = [part.sum(2) for part in np.array_split(share, 4, axis=2)]
    median = np.median(series, axis=2, keepdims=True)
    columns: list[Any] = [
        series.mean(2), series.std(2), series.min(2), series.max(2), median[..., 0], (series**2).mean(2),
        np.median(np.abs(series - median), 2), *np.percentile(series, (25, 75), axis=2), skew(series, axis=2),
        kurtosis(series, axis=2), np.abs(np.diff(series, axis=2)).mean(2), power.argmax(2), *bands,
        (centered[..., 1:] * centered[..., :-1] < 0).mean(2), -(share * np.log(share + 1e-12)).sum(2),
    ]  # fmt: skip
    unit = (sensors - sensors.mean(3, keepdims=True)) / np.maximum(sensors.std(3, keepdims=True), 1e-12)
    related = [(unit[:, :, i] * unit[:, :, j]).mean(2) for i, j in ((0, 1), (0, 2), (1, 2))]
    return _specialist("motion features", np.concatenate([*columns, *related], 1), recordings)
