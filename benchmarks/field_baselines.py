"""Prepare the baselines of benchmarks.field with the libraries of their fields.

A baseline is prepared once for a data set, because features of a window do not depend on the fold, and then predicts
the held-out subjects of each fold. Only EEGNet as published uses the validation group, to select the epoch.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.signal import butter, sosfiltfilt
from sklearn.preprocessing import StandardScaler

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import leave_groups_out
from autotransfer.runs.options import RunOptions, build_options, resolve_options
from autotransfer.search.candidates import AVERAGED_CHECKPOINT, EEGNET, HARMONICS, SHALLOW, STIMULUS, find_signal
from autotransfer.training.train import train

from . import engineered, shallow
from .engineered import Predict, predict_with
from .shallow import TRANSDUCTIVE, ZERO_SHOT, Array, Classes, Predictions, Task, discriminant

GROUPS = ("HTD", "LS4", "LS9", "TDPSD", "TDAR")  # groups of LibEMG; other groups do not score higher or take minutes
KERNELS = 10_000  # number of kernels of MiniRocket, as published
STRENGTHS = np.logspace(-3, 3, 10)  # strengths of ridge regression, as published
BANDS = ((6, 45), (12, 45), (18, 45))  # bands of the filter bank in Hz
NETWORK_SEEDS = 3  # number of seeds whose probabilities are averaged
WEIGHTS = [number**-1.25 + 0.25 for number in range(1, len(BANDS) + 1)]  # weights of the bands, as published


class FieldBaseline(NamedTuple):
    """Family of pipelines with shared features."""

    prepare: Callable[[at.Recordings, int, str], Predict]  # (recordings, seed, device)
    signals: tuple[str, ...] = ()  # signals for which the family is suitable; empty: all signals
    random: bool = False  # whether the model depends on the seed
    trains_all: bool = False  # whether all folds are trained together, which the first process does


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
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)  # features of flat channels are NaN

    def fit_and_predict(features: Array, task: Task) -> Array:
        model = lightgbm.LGBMClassifier(class_weight="balanced", random_state=seed, n_jobs=1, verbose=-1)
        return task.fit_and_predict(model, features)

    return predict_with("catch22 + LightGBM", values, recordings, fit_and_predict)


def libemg(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on LibEMG's feature groups (Eddy et al. 2023)."""
    extractor = _libemg_extractor()
    windows = recordings.X.numpy().astype(np.float64)
    groups = []
    for group in GROUPS:
        features = extractor.extract_feature_group(group, windows, array=True)
        values = np.nan_to_num(np.asarray(features, dtype=np.float64), posinf=0.0, neginf=0.0)
        groups.append(predict_with(f"LibEMG {group} + LDA", values, recordings, discriminant))

    def predict(task: Task) -> Predictions:
        for predict_group in groups:
            yield from predict_group(task)

    return predict


def _libemg_extractor() -> Any:
    """Load the feature extractor from its file, because the package imports drivers and games."""
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


# ---- random kernels --------------------------------------------------------------------------------------------------


def minirocket(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare MiniRocket (Dempster et al. 2021) with ridge regression."""
    from aeon.transformations.collection.convolution_based import MiniRocket

    def features(X: Array) -> Array:
        kernels = MiniRocket(KERNELS, random_state=seed, n_jobs=torch.get_num_threads())
        return np.asarray(StandardScaler(with_mean=False).fit_transform(kernels.fit_transform(X)))

    return _fit_ridge("MiniRocket", features, recordings, device)


def multirocket_hydra(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare MultiRocket-Hydra (Dempster et al. 2023) with ridge regression."""
    from aeon.classification.convolution_based._hydra import _SparseScaler  # not in the public interface
    from aeon.transformations.collection.convolution_based import HydraTransformer, MultiRocket

    def features(X: Array) -> Array:
        threads = torch.get_num_threads()
        hydra = HydraTransformer(random_state=seed, n_jobs=threads).fit_transform(X)
        multirocket = MultiRocket(random_state=seed, n_jobs=threads).fit_transform(X)
        scaled = _SparseScaler().fit_transform(hydra), StandardScaler().fit_transform(multirocket)
        return np.concatenate([np.asarray(values, dtype=np.float32) for values in scaled], 1)

    return _fit_ridge("MultiRocket-Hydra", features, recordings, device)


def _fit_ridge(name: str, features: Callable[[Array], Array], recordings: at.Recordings, device: str) -> Predict:
    """Return predictions from features (N, D) of aeon, which are computed once for all folds.

    Thresholds and scales of the features are fitted on all windows without labels, which slightly favors the baselines.
    Kernels sum over channels, so channels are standardized over all subjects, or by subject.
    """
    windows, subject = recordings.X.numpy().astype(np.float32), recordings.subject.numpy()
    by_subject = windows.copy()
    for k in np.unique(subject):
        by_subject[subject == k] = _standardize(windows[subject == k], windows[subject == k])
    grams = {}
    for adaptation, X in ((ZERO_SHOT, _standardize(windows, windows)), (TRANSDUCTIVE, by_subject)):
        values = torch.as_tensor(np.nan_to_num(features(X)), device=device, dtype=torch.float64)
        grams[adaptation] = (values @ values.T).cpu()  # (N, N)

    def predict(task: Task) -> Predictions:
        for adaptation, gram in grams.items():
            yield name, adaptation, ridge(gram, task.y[task.known], task.known, task.test, device)

    return predict


def ridge(gram: torch.Tensor, y: Classes, known: Classes, test: Classes, device: str) -> Classes:
    """Predict test windows as RidgeClassifierCV does, from inner products (N, N) of all windows.

    Classes have equal weight, the strength is selected by leave-one-out, and the intercept is not penalized.
    """
    classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    columns = np.arange(len(classes)) if len(classes) > 2 else np.array([1])
    truth = np.where(labels[:, None] == columns, 1.0, -1.0)  # (n, K); (n, 1) for two classes
    weight = torch.as_tensor(len(y) / (len(classes) * counts[labels]), device=device)
    target = torch.as_tensor(truth, device=device)
    inner, outer = gram[known][:, known].to(device), gram[test][:, known].to(device)
    share = weight / weight.sum()
    mean, towards, level = share @ target, inner @ share, share @ inner @ share
    inner = inner - towards - towards[:, None] + level  # inner products of centered features
    outer = outer - towards - (outer @ share)[:, None] + level
    root = weight.sqrt()
    inner, target, flat = root[:, None] * inner * root, root[:, None] * (target - mean), share.sqrt()
    eye, best = torch.eye(len(y), device=device, dtype=torch.float64), (math.inf, target)
    for strength in STRENGTHS:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(inner + strength * eye))
        dual = inverse @ target
        residual = dual / (inverse.diagonal() - flat**2 / strength)[:, None]
        best = min(best, (float((residual**2).mean()), dual), key=lambda pair: pair[0])
    scores = (outer @ (root[:, None] * best[1]) + mean).cpu().numpy()
    return np.asarray(classes[scores.argmax(1) if len(classes) > 2 else (scores[:, 0] > 0).astype(int)])


def _standardize(windows: Array, reference: Array) -> Array:
    """Return windows (n, C, T), standardized by the mean and deviation of each channel in `reference` (m, C, T)."""
    mean, spread = reference.mean((0, 2)), reference.std((0, 2))
    return np.asarray((windows - mean[:, None]) / np.where(spread > 0, spread, 1.0)[:, None], dtype=np.float32)


# ---- rhythms ---------------------------------------------------------------------------------------------------------


def canonical_correlations(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on canonical correlations with sines of every stimulus (Lin et al. 2006)."""
    rates, sfreq = stimuli(recordings)
    values = correlations(recordings.X.numpy().astype(np.float64), sorted(set(rates.values())), sfreq)
    return predict_with("CCA + LDA", values, recordings, discriminant)


def filter_bank_correlations(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare shrinkage LDA on correlations in a filter bank, with the published weights (Chen et al. 2015)."""
    rates, sfreq = stimuli(recordings)
    bands = [correlations(X, sorted(set(rates.values())), sfreq) for X in _filter_bank(recordings, sfreq)]
    values = sum(weight * rho**2 for weight, rho in zip(WEIGHTS, bands, strict=True))
    return predict_with("FBCCA + LDA", np.asarray(values), recordings, discriminant)


def stimuli(recordings: at.Recordings) -> tuple[dict[int, float], float]:
    """Return the stimulus frequencies in Hz by class, from names of classes, and the sampling rate."""
    named = {label: STIMULUS.search(str(name)) for label, name in enumerate(recordings.classes)}
    rates = {label: float(name[1]) for label, name in named.items() if name}
    if not rates or recordings.sfreq is None:
        raise UserError(f"{recordings.name}: no class has a name like '13 Hz', or the sampling rate is missing")
    return rates, recordings.sfreq


def _filter_bank(recordings: at.Recordings, sfreq: float) -> list[Array]:
    """Return windows (N, C, T) filtered to each band."""
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


# ---- networks --------------------------------------------------------------------------------------------------------


def eegnet_aligned(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare EEGNet (Lawhern et al. 2018) on windows aligned by subject (He and Wu 2020), trained as published."""
    published = at.Setting(align=TRANSDUCTIVE, standardize="none", max_epochs=_options(recordings).max_epochs)
    return _predict_with_networks(
        {("EEGNet, Euclidean alignment", TRANSDUCTIVE): published}, [seed], recordings, device
    )


def networks(recordings: at.Recordings, seed: int, device: str) -> Predict:
    """Prepare EEGNet and the shallow network, trained as candidates of a run and averaged over seeds."""
    base = at.Setting(**AVERAGED_CHECKPOINT, max_epochs=_options(recordings).max_epochs)
    settings = {}
    for name, fields in (("EEGNet", EEGNET), ("shallow network", SHALLOW)):
        trained = base.replace(**fields, standardize="train")
        aligned = base.replace(**{key: fields[key] for key in fields if key != "append_scale"}, align=TRANSDUCTIVE)
        settings[f"{name}, trained as candidates", ZERO_SHOT] = trained
        settings[f"{name}, Euclidean alignment, trained as candidates", TRANSDUCTIVE] = aligned
    return _predict_with_networks(settings, range(NETWORK_SEEDS), recordings, device)


def _predict_with_networks(
    settings: dict[tuple[str, str], at.Setting], seeds: Sequence[int], recordings: at.Recordings, device: str
) -> Predict:
    """Return predictions of networks by (name, adaptation), averaged over seeds; all folds are trained together."""
    jobs = [at.Job(s, fold, seed) for s in settings.values() for fold in make_folds(recordings) for seed in seeds]
    outcomes = {outcome.job.key: outcome for outcome in train(recordings, jobs, device, progress=False)}

    def predict(task: Task) -> Predictions:
        for (name, adaptation), setting in settings.items():
            found = [outcomes[at.Job(setting, task.fold, seed).key].held_out_log_probs for seed in seeds]
            tested = torch.stack(found)[:, len(task.fold.validation) :].exp().mean(0)
            yield name, adaptation, tested.numpy()

    return predict


def make_folds(recordings: at.Recordings) -> list[at.Fold]:
    """Return the folds of a default run."""
    return leave_groups_out(recordings, _options(recordings).n_folds)


def find_signals(recordings: at.Recordings) -> set[str]:
    """Return the signal as a run recognizes it, and the first word of the name of the data set."""
    return {find_signal(recordings), recordings.name.split("_")[0]}


def _options(recordings: at.Recordings) -> RunOptions:
    return resolve_options(build_options({"source": "field", "adaptation": "none"}), recordings)


BASELINES = {
    "cca": FieldBaseline(canonical_correlations, ("eeg",)),
    "fbcca": FieldBaseline(filter_bank_correlations, ("eeg",)),
    "libemg": FieldBaseline(libemg, ("emg",)),
    "catch22": FieldBaseline(catch22),
    "minirocket": FieldBaseline(minirocket, random=True),
    "multirocket_hydra": FieldBaseline(multirocket_hydra, random=True),
    "eegnet_aligned": FieldBaseline(eegnet_aligned, random=True, trains_all=True),
    "networks": FieldBaseline(networks, trains_all=True),
    "boosting": FieldBaseline(engineered.boosting),
    "trees": FieldBaseline(engineered.trees),
    "linear": FieldBaseline(engineered.linear),
    "beats": FieldBaseline(engineered.beat_intervals, ("ppg",)),
    "gaze": FieldBaseline(engineered.gaze_velocities, ("gaze",)),
    "motion": FieldBaseline(engineered.motion, ("imu",)),
    **{
        name: FieldBaseline(lambda *_, predict=predict: predict)
        for name, predict in {
            "lda": shallow.lda, "log_power": shallow.log_power, "riemann": shallow.riemann,
            "riemann_templates": shallow.riemann_templates, "log_euclidean": shallow.log_euclidean,
        }.items()
    },
}  # fmt: skip
