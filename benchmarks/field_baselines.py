"""Baselines of benchmarks.field, each by its own library.

A baseline is prepared once for a data set, because features of a window depend on no fold, and then predicts the
subjects whom a fold leaves out. Only EEGNet selects something: it keeps the snapshot of the lowest validation loss.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.signal import butter, sosfiltfilt
from sklearn.preprocessing import StandardScaler

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import leave_groups_out
from autotransfer.jobs import Outcome
from autotransfer.runs.options import RunOptions, build_options, resolve_options
from autotransfer.search.candidates import HARMONICS, STIMULUS

from .shallow import Array, Task, by_person, discriminant

Classes = NDArray[np.int64]
Answers = Iterator[tuple[str, str, Classes]]  # name, adaptation, classes (n,) of the fold's test rows
Predict = Callable[[Task], Answers]

ZERO_SHOT, TRANSDUCTIVE = "zero-shot", "transductive"
GROUPS = ("HTD", "LS4", "LS9", "TDPSD", "TDAR")  # of LibEMG; the others have no more to say, or take minutes
KERNELS = 10_000  # MiniRocket's, as published
STRENGTHS = np.logspace(-3, 3, 10)  # of ridge regression, as published
BANDS = ((6, 45), (12, 45), (18, 45))  # Hz, of the filter banks: a stimulus and its harmonics, from low to high
WEIGHTS = [number**-1.25 + 0.25 for number in range(1, len(BANDS) + 1)]  # of these bands, as published
LOCKED = 0.1  # agreement of phases, from 0 (as by chance) to 1, below which averages of windows hold no response


class FieldBaseline(NamedTuple):
    """Family of pipelines that share their work."""

    ready: Callable[[at.Recordings, int, str], Predict]  # (recordings, seed, device)
    signals: tuple[str, ...] = ()  # for which it is meant; none: for any
    random: bool = False  # whether another seed gives another model


# ---- features and a classifier ---------------------------------------------------------------------------------------


def catch22(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare LightGBM on mean, deviation and the 22 canonical features of each channel (Lubba et al. 2019)."""
    import lightgbm
    import pycatch22

    windows = recordings.X.numpy().astype(np.float64)
    values = np.array([
        [number for channel in window for number in pycatch22.catch22_all(channel.tolist(), catch24=True)["values"]]
        for window in windows
    ])  # fmt: skip
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)  # of flat channels

    def boosted(features: Array, task: Task) -> Classes:
        model = lightgbm.LGBMClassifier(class_weight="balanced", random_state=seed, n_jobs=1, verbose=-1)
        return np.asarray(model.fit(features[task.known], task.y[task.known]).predict(features[task.test]))

    return _both("catch22 + LightGBM", values, recordings, boosted)


def libemg(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on LibEMG's feature groups (Eddy et al. 2023)."""
    extractor = _libemg_extractor()
    windows = recordings.X.numpy().astype(np.float64)
    ready = []
    for group in GROUPS:
        features = extractor.extract_feature_group(group, windows, array=True)
        values = np.nan_to_num(np.asarray(features, dtype=np.float64), posinf=0.0, neginf=0.0)
        ready.append(_both(f"LibEMG {group} + LDA", values, recordings, discriminant))

    def predict(task: Task) -> Answers:
        for predict_group in ready:
            yield from predict_group(task)

    return predict


def _libemg_extractor() -> Any:
    """Load the feature extractor from its file: the package itself imports drivers and games."""
    package = importlib.util.find_spec("libemg")
    if package is None or package.origin is None:
        raise UserError("LibEMG is not installed; pip install librosa PyWavelets, then pip install --no-deps libemg")
    path = Path(package.origin).with_name("feature_extractor.py")
    spec = importlib.util.spec_from_file_location("libemg_features", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FeatureExtractor()


def _both(name: str, values: Array, recordings: at.Recordings, fitted: Callable[[Array, Task], Classes]) -> Predict:
    """Return predictions of a classifier on values (N, D), as they are and z-scored by subject."""
    forms = {ZERO_SHOT: values, TRANSDUCTIVE: by_person(values, recordings.subject.numpy())}

    def predict(task: Task) -> Answers:
        for adaptation, features in forms.items():
            yield name, adaptation, fitted(features, task)

    return predict


# ---- random kernels --------------------------------------------------------------------------------------------------


def minirocket(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare MiniRocket (Dempster et al. 2021) with ridge regression."""
    from aeon.transformations.collection.convolution_based import MiniRocket

    def features(X: Array) -> Array:
        kernels = MiniRocket(KERNELS, random_state=seed, n_jobs=torch.get_num_threads())
        return np.asarray(StandardScaler(with_mean=False).fit_transform(kernels.fit_transform(X)))

    return _of_kernels("MiniRocket", features, recordings, device)


def multirocket_hydra(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare MultiRocket-Hydra (Dempster et al. 2023) with ridge regression."""
    from aeon.classification.convolution_based._hydra import _SparseScaler  # the only place that has it
    from aeon.transformations.collection.convolution_based import HydraTransformer, MultiRocket

    def features(X: Array) -> Array:
        threads = torch.get_num_threads()
        hydra = HydraTransformer(random_state=seed, n_jobs=threads).fit_transform(X)
        multirocket = MultiRocket(random_state=seed, n_jobs=threads).fit_transform(X)
        scaled = _SparseScaler().fit_transform(hydra), StandardScaler().fit_transform(multirocket)
        return np.concatenate([np.asarray(values, dtype=np.float32) for values in scaled], 1)

    return _of_kernels("MultiRocket-Hydra", features, recordings, device)


def _of_kernels(name: str, features: Callable[[Array], Array], recordings: at.Recordings, device: str) -> Predict:
    """Return predictions from aeon's features (N, D) of windows (N, C, T), which are computed once for all folds.

    Their thresholds and scales come from all windows, without labels, which flatters them a little. Kernels sum
    channels, so channels are in units of all subjects, or of each subject.
    """
    windows, subject = recordings.X.numpy().astype(np.float32), recordings.subject.numpy()
    by_each = windows.copy()
    for person in np.unique(subject):
        by_each[subject == person] = _standardized(windows[subject == person], windows[subject == person])
    grams = {}
    for adaptation, X in ((ZERO_SHOT, _standardized(windows, windows)), (TRANSDUCTIVE, by_each)):
        values = torch.as_tensor(np.nan_to_num(features(X)), device=device, dtype=torch.float64)
        grams[adaptation] = (values @ values.T).cpu()  # (N, N)

    def predict(task: Task) -> Answers:
        for adaptation, gram in grams.items():
            yield name, adaptation, ridge(gram, task.y[task.known], task.known, task.test, device)

    return predict


def ridge(gram: torch.Tensor, y: Classes, known: Classes, test: Classes, device: str) -> Classes:
    """Predict the test rows as scikit-learn's RidgeClassifierCV, from inner products (N, N) of all rows.

    Classes are weighted equally, the strength is chosen by leaving single rows out, the intercept is not penalized.
    """
    classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    columns = np.arange(len(classes)) if len(classes) > 2 else np.array([1])
    truth = np.where(labels[:, None] == columns, 1.0, -1.0)  # (n, K), of two classes (n, 1)
    weight = torch.as_tensor(len(y) / (len(classes) * counts[labels]), device=device)
    target = torch.as_tensor(truth, device=device)
    inner, outer = gram[known][:, known].to(device), gram[test][:, known].to(device)
    share = weight / weight.sum()
    mean, towards, level = share @ target, inner @ share, share @ inner @ share
    inner = inner - towards - towards[:, None] + level  # of rows less their weighted mean
    outer = outer - towards - (outer @ share)[:, None] + level
    root = weight.sqrt()
    inner, target, flat = root[:, None] * inner * root, root[:, None] * (target - mean), share.sqrt()
    eye, best = torch.eye(len(y), device=device, dtype=torch.float64), (math.inf, target)
    for strength in STRENGTHS:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(inner + strength * eye))
        dual = inverse @ target
        left_out = dual / (inverse.diagonal() - flat**2 / strength)[:, None]
        best = min(best, (float((left_out**2).mean()), dual), key=lambda one: one[0])
    scores = (outer @ (root[:, None] * best[1]) + mean).cpu().numpy()
    return np.asarray(classes[scores.argmax(1) if len(classes) > 2 else (scores[:, 0] > 0).astype(int)])


def _standardized(windows: Array, like: Array) -> Array:
    """Return windows (n, C, T) with each channel at mean 0 and deviation 1 over `like` (m, C, T)."""
    mean, spread = like.mean((0, 2)), like.std((0, 2))
    return np.asarray((windows - mean[:, None]) / np.where(spread > 0, spread, 1.0)[:, None], dtype=np.float32)


# ---- rhythms ---------------------------------------------------------------------------------------------------------


def canonical_correlations(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on canonical correlations with sines of every stimulus (Lin et al. 2006)."""
    rates, sfreq = stimuli(recordings)
    values = correlations(recordings.X.numpy().astype(np.float64), sorted(set(rates.values())), sfreq)
    return _both("CCA + LDA", values, recordings, discriminant)


def filter_bank_correlations(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on correlations in a filter bank, with the published weights (Chen et al. 2015)."""
    rates, sfreq = stimuli(recordings)
    known = [correlations(X, sorted(set(rates.values())), sfreq) for X in _filter_bank(recordings, sfreq)]
    values = sum(weight * rho**2 for weight, rho in zip(WEIGHTS, known, strict=True))
    return _both("FBCCA + LDA", np.asarray(values), recordings, discriminant)


def stimuli(recordings: at.Recordings) -> tuple[dict[int, float], float]:
    """Return the frequencies in Hz of the classes that are named after one, and the sampling rate."""
    named = {label: STIMULUS.search(str(name)) for label, name in enumerate(recordings.classes)}
    rates = {label: float(name[1]) for label, name in named.items() if name}
    if not rates or recordings.sfreq is None:
        raise UserError(f"{recordings.name}: no class is named after a stimulus ('13 Hz'), or it has no sampling rate")
    return rates, recordings.sfreq


def _filter_bank(recordings: at.Recordings, sfreq: float) -> list[Array]:
    """Return windows (N, C, T) in each of the bands."""
    raw = recordings.X.numpy().astype(np.float64)
    return [sosfiltfilt(butter(4, band, "bandpass", fs=sfreq, output="sos"), raw, axis=2) for band in BANDS]


def correlations(X: Array, rates: list[float], sfreq: float) -> Array:
    """Return the largest canonical correlation of the channels with sines of each rate: (N, C, T) -> (N, F).

    Sines include cosines and the harmonics of the rate.
    """
    time = np.arange(X.shape[2]) / sfreq
    channels = np.linalg.qr((X - X.mean(2, keepdims=True)).transpose(0, 2, 1))[0]  # (N, T, C)
    largest = []
    for rate in rates:
        angles = 2 * math.pi * rate * time[:, None] * np.arange(1, HARMONICS + 1)
        sines = np.concatenate([np.sin(angles), np.cos(angles)], 1)
        reference = np.linalg.qr(sines - sines.mean(0))[0]  # (T, 2H)
        largest.append(np.linalg.svd(channels.transpose(0, 2, 1) @ reference, compute_uv=False)[:, 0])
    return np.stack(largest, 1)


def task_related(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare ensemble task-related component analysis (Nakanishi et al. 2018) with a filter bank.

    A window is of the class whose mean over known subjects it is most similar to. Windows must begin at the same phase
    of their stimulus.
    """
    rates, sfreq = stimuli(recordings)
    bands = _filter_bank(recordings, sfreq)

    def predict(task: Task) -> Answers:
        locked = phase_locking(task, rates, sfreq)
        if locked < LOCKED:
            raise UserError(
                f"{recordings.name}: phases of the responses agree no better from window to window than {locked:.2f} "
                f"(0 by chance, 1 always), so their means hold none of them; TRCA needs {LOCKED}"
            )
        likeness = np.zeros((len(task.test), task.n_classes))
        for weight, X in zip(WEIGHTS, bands, strict=True):
            trials = [X[task.known][task.y[task.known] == label] for label in range(task.n_classes)]
            W = np.stack([component(x) for x in trials], 1)  # (C, K)
            seen = [(W.T @ window).reshape(-1) for window in X[task.test]]
            known = [(W.T @ x.mean(0)).reshape(-1) for x in trials]
            rho = np.corrcoef(seen, known)[: len(seen), len(seen) :]
            likeness += weight * np.sign(rho) * rho**2
        yield "TRCA", ZERO_SHOT, likeness.argmax(1)

    return predict


def phase_locking(task: Task, rates: dict[int, float], sfreq: float) -> float:
    """Return how well phases of a stimulus agree over windows of a known subject: 0 by chance, 1 if all are equal.

    It is the squared length of the mean phase vector, less its value by chance, averaged over subjects and stimuli.
    Phases are read where the power of the stimulus is largest, which does not depend on them.
    """
    time = np.arange(task.X.shape[2]) / sfreq
    agreement = []
    for label, rate in rates.items():
        rows = task.known[task.y[task.known] == label]
        waves = task.X[rows] @ np.exp(-2j * math.pi * rate * time)  # (n, C)
        for person in np.unique(task.subject[rows]):
            own = waves[task.subject[rows] == person]
            n = len(own)
            if n > 1:
                strongest = np.linalg.eigh((own.T @ own.conj()).real)[1][:, -1]
                phases = np.exp(1j * np.angle(own @ strongest))
                agreement.append((n * abs(phases.mean()) ** 2 - 1) / (n - 1))
    return float(np.mean(agreement)) if agreement else 0.0


def component(trials: Array) -> Array:
    """Return the combination of channels (C,) that is most similar from trial to trial of (n, C, T)."""
    centered = trials - trials.mean(2, keepdims=True)
    within = np.einsum("nct,ndt->cd", centered, centered)
    total = centered.sum(0)
    between = total @ total.T - within  # over all pairs of different trials
    ridge = 1e-9 * np.trace(within) / len(within) * np.eye(len(within))
    return np.asarray(eigh(between, within + ridge)[1][:, -1])


# ---- networks --------------------------------------------------------------------------------------------------------


def eegnet_aligned(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare EEGNet (Lawhern et al. 2018) on windows aligned by subject (He and Wu 2020), trained as in a run."""
    setting = at.Setting(align=TRANSDUCTIVE, standardize="none", max_epochs=_options(recordings).max_epochs)

    @functools.cache  # every fold in one stack, which a GPU trains in about the time of one
    def outcomes() -> dict[str, Outcome]:
        jobs = [at.Job(setting, fold, seed) for fold in folds_of(recordings)]
        return {outcome.job.fold.key: outcome for outcome in at.train(recordings, jobs, device, progress=False)}

    def predict(task: Task) -> Answers:
        tested = outcomes()[task.fold.key].held_out_log_probs.numpy()[len(task.fold.validation) :]
        yield "EEGNet, Euclidean alignment", TRANSDUCTIVE, tested.argmax(1)

    return predict


def folds_of(recordings: at.Recordings) -> list[at.Fold]:
    """Return the folds of a default run."""
    return leave_groups_out(recordings, _options(recordings).n_folds)


def _options(recordings: at.Recordings) -> RunOptions:
    return resolve_options(build_options({"source": "field", "adaptation": "none"}), recordings)


BASELINES = {
    "cca": FieldBaseline(canonical_correlations, ("eeg",)),
    "fbcca": FieldBaseline(filter_bank_correlations, ("eeg",)),
    "trca": FieldBaseline(task_related, ("eeg",)),
    "libemg": FieldBaseline(libemg, ("emg",)),
    "catch22": FieldBaseline(catch22),
    "minirocket": FieldBaseline(minirocket, random=True),
    "multirocket_hydra": FieldBaseline(multirocket_hydra, random=True),
    "eegnet_aligned": FieldBaseline(eegnet_aligned, random=True),
}
