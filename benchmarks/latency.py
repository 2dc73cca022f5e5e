"""Time one window in an online session on one core with python -m benchmarks.latency.

Models are the weighted ensembles of default runs with --adaptation zero-shot and online: twelve candidates, up to 24
networks. In rows with "adapt" the session adapts. Weights are random, because times do not depend on the weights.

python -m benchmarks.latency RUN ... times delivered models in sessions without adaptation, with adaptation, and with
adaptation and labels.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.verification import sample_windows
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.loading import load_classifier
from autotransfer.models.model import Model
from autotransfer.runs.options import build_options, resolve_options
from autotransfer.search.candidates import linear_candidates, network_candidates
from autotransfer.search.models import fits_per_network
from autotransfer.settings import Setting
from autotransfer.training.members import Members, size_of

SIZES = ((8, 200, 200.0), (8, 384, 128.0), (61, 128, 128.0))  # channels, samples, Hz
CANDIDATES = 12  # maximum number of candidates of an ensemble
WARM_UP, TIMED = 50, 1000  # numbers of windows
VARIANTS = (("zero-shot", False), ("zero-shot", True), ("online", False))  # adaptation, adapt


def random_ensemble(channels: int, times: int, sfreq: float, adaptation: str = "zero-shot") -> Model:
    """Return an ensemble of twelve candidates with random weights: networks first, then linear models."""
    rec = at.synthetic(n_subjects=6, windows_per_class=10, n_channels=channels, n_times=times, seed=0)
    rec = at.Recordings(rec.X, rec.y, rec.subject, sfreq=sfreq)
    options = resolve_options(build_options({"source": "synthetic", "adaptation": adaptation, "folds": "all"}), rec)
    networks = network_candidates(options.settings(), rec, adaptation)
    linear = linear_candidates(adaptation, rec)
    settings = [*networks[: CANDIDATES - 3], *linear[::2]][:CANDIDATES]
    members = fits_per_network(sum(not setting.network.is_closed_form for setting in settings))
    folds = at.leave_one_subject_out(rec)
    parts = []
    for i, setting in enumerate(settings):
        count = 1 if setting.network.is_closed_form else members
        training_folds = [folds[k % len(folds)] for k in range(count)]
        parts.append(CandidateFits(setting, random_states(setting, rec, count, i), training_folds, 1 / len(settings)))
    return build_model(rec, parts, scores={})


def random_states(setting: Setting, rec: at.Recordings, count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    stacked = Members(setting, size_of(rec, setting), range(count)).tensors()
    stacked = {
        name: torch.rand(tensor.shape, generator=draw) + 0.5 if "norm" in name or "inv_std" in name
        else tensor.detach() + 0.1 * torch.randn(tensor.shape, generator=draw)
        for name, tensor in stacked.items()
    }  # fmt: skip
    return [{name: tensor[member] for name, tensor in stacked.items()} for member in range(count)]


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.thread_time()])


def _since(mark: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    now = _now()
    return 1e3 * (now - mark), now


def time_windows(predict: Callable[[Any], object], windows: np.ndarray | torch.Tensor, timed: int) -> np.ndarray:
    """Return milliseconds (timed, 2) per window, after a few windows to warm up.

    Columns: wall-clock time, and processor time, which other programs disturb less.
    """
    times_ms = []
    for k in range(WARM_UP + timed):
        mark = _now()
        predict(windows[k % len(windows)])
        times_ms.append(_since(mark)[0])
    return np.array(times_ms[WARM_UP:])


def time_sessions(sizes: Sequence[tuple[int, int, float]] = SIZES, timed: int = TIMED) -> Iterator[str]:
    yield f"{'model':<17} {'window':>9} {'parts':>5} {'networks':>8} {'p50':>7} {'p99':>7} {'cpu p50':>7}  ms"
    for adaptation, adapt in VARIANTS:
        for channels, times, sfreq in sizes:
            model = random_ensemble(channels, times, sfreq, adaptation)
            draw = np.random.default_rng(0)
            # Channels are correlated, because the covariance of independent channels has no directions to find.
            mixing = draw.standard_normal((channels, channels)) / channels**0.5
            windows = (mixing @ draw.standard_normal((64, channels, times))).astype(np.float32)
            times_ms = time_windows(at.Session(model, adapt=adapt).predict_proba, windows, timed)
            median, tail = np.percentile(times_ms[:, 0], (50, 99))
            name = ", ".join([adaptation, *["adapt"] * adapt])
            size = f"{channels} × {times}"
            count = f"{len(model.candidates):>5} {model.card.members:>8}"
            yield f"{name:<17} {size:>9} {count} {median:7.2f} {tail:7.2f} {np.median(times_ms[:, 1]):7.2f}"


# ---- delivered models ------------------------------------------------------------------------------------


def format_times(times_ms: np.ndarray) -> str:
    """Format milliseconds (windows, 2): median wall-clock time, median and minimum processor time."""
    return f"{np.median(times_ms[:, 0]):7.2f} {np.median(times_ms[:, 1]):7.2f} {times_ms[:, 1].min():9.2f}"


def time_run(run: Path, timed: int) -> Iterator[str]:
    model = load_classifier(run)
    windows = sample_windows(model, 64, torch.Generator().manual_seed(0))
    channels, times = windows.shape[1:]
    title = f"{run.name}, {channels} × {times}"
    yield f"{title:<62} parts {'p50':>6} {'cpu p50':>7} {'cpu least':>9}  ms"
    arrays, labels = windows.numpy(), model.classes_
    for name, adapt, n_labels in (("session", False, 0), ("adapt", True, 0), ("adapt, labels", True, 3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning that adaptation was not evaluated
            session = at.Session(model, adapt=adapt)
        try:
            for number in range(n_labels * len(labels)):
                session.label(arrays[number], labels[number % len(labels)])
        except UserError as error:
            yield f"  {name}: {error}"
            continue
        note = "" if not adapt or session.adapts else " (does not adapt)"
        times_ms = time_windows(session.predict_proba, arrays, timed)
        yield f"  {name + note:<60} {len(model.candidates):>3} {format_times(times_ms)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of runs or models; default: random models")
    parser.add_argument("--windows", type=int, default=TIMED, help="number of timed windows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = [time_run(run, options.windows) for run in options.runs] or [time_sessions(timed=options.windows)]
    for table in tables:
        for row in table:
            print(row, flush=True)


if __name__ == "__main__":
    main()
