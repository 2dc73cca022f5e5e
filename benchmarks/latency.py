"""python -m benchmarks.latency: how long one window of one person takes in a session, on one core.

The model is the average that a run delivers by default, and the one it delivers with --adaptation online: twelve
candidates of all kinds with up to 24 networks; refit: one network of each; adapt: the session follows the person in the
codes. Weights are random, which changes no time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch

import autotransfer as at
from autotransfer.models.assembly import Part, assemble_mixture
from autotransfer.models.mixture import Mixture
from autotransfer.runs.options import RunOptions
from autotransfer.search.kinds import closed_forms, networks
from autotransfer.search.models import most_of_each
from autotransfer.settings import Setting
from autotransfer.training.members import Members, size_of

SIZES = ((8, 200, 200.0), (8, 384, 128.0), (61, 128, 128.0))  # channels, samples, Hz
CANDIDATES = 12  # of an average, at most
WARM_UP, TIMED = 50, 1000
VARIANTS = (  # adaptation, refit, adapt
    ("zero-shot", False, False), ("zero-shot", False, True), ("online", False, False), ("zero-shot", True, False),
    ("online", True, False),
)  # fmt: skip


def random_mixture(
    channels: int, times: int, sfreq: float, adaptation: str = "zero-shot", *, refit: bool = False
) -> Mixture:
    """Of twelve candidates, the networks first, then one of each closed form as far as there is room."""
    rec = at.synthetic(n_subjects=6, trials_per_class=10, n_channels=channels, n_times=times, seed=0)
    rec = at.Recordings(rec.X, rec.y, rec.subject, sfreq=sfreq)
    options = RunOptions(source="synthetic", adaptation=adaptation).for_data(rec)
    trained = networks(options, options.settings(), rec)
    solved = closed_forms(options, rec)
    chosen = [*trained[: CANDIDATES - 3], *solved[::2]][:CANDIDATES]
    members = 1 if refit else most_of_each(sum(not setting.network.closed_form for setting in chosen))
    folds = at.leave_one_subject_out(rec)
    parts = []
    for place, setting in enumerate(chosen):
        count = 1 if setting.network.closed_form else members
        trained_on = [folds[k % len(folds)] for k in range(count)]
        parts.append(Part(setting, random_states(setting, rec, count, place), trained_on, 1 / len(chosen)))
    return assemble_mixture(rec, parts, scores={})


def random_states(setting: Setting, rec: at.Recordings, count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    stacked = Members(setting, size_of(rec, setting), range(count)).tensors()
    stacked = {
        name: torch.rand(tensor.shape, generator=draw) + 0.5 if "norm" in name or "inv_std" in name
        else tensor.detach() + 0.1 * torch.randn(tensor.shape, generator=draw)
        for name, tensor in stacked.items()
    }  # fmt: skip
    return [{name: tensor[member] for name, tensor in stacked.items()} for member in range(count)]


def milliseconds(session: at.Session, windows: np.ndarray, timed: int) -> np.ndarray:
    """(timed, 2): on the clock, and of the processor, which others on the machine disturb less."""
    taken = []
    for k in range(WARM_UP + timed):
        window = windows[k % len(windows)]
        start, worked = time.perf_counter(), time.thread_time()
        session.predict_proba(window)
        taken.append((1e3 * (time.perf_counter() - start), 1e3 * (time.thread_time() - worked)))
    return np.array(taken[WARM_UP:])


def rows(sizes: Sequence[tuple[int, int, float]] = SIZES, timed: int = TIMED) -> Iterator[str]:
    yield f"{'model':<17} {'window':>9} {'parts':>5} {'networks':>8} {'p50':>7} {'p99':>7} {'cpu p50':>7}  ms"
    for adaptation, refit, adapt in VARIANTS:
        for channels, times, sfreq in sizes:
            mixed = random_mixture(channels, times, sfreq, adaptation, refit=refit)
            draw = np.random.default_rng(0)
            # Channels that have something in common: of independent ones a covariance has no directions to find.
            mixing = draw.standard_normal((channels, channels)) / channels**0.5
            windows = (mixing @ draw.standard_normal((64, channels, times))).astype(np.float32)
            took = milliseconds(at.Session(mixed, adapt=adapt), windows, timed)
            median, tail = np.percentile(took[:, 0], (50, 99))
            name = ", ".join([adaptation, *["refit"] * refit, *["adapt"] * adapt])
            size = f"{channels} × {times}"
            count = f"{len(mixed.parts):>5} {mixed.card.members:>8}"
            yield f"{name:<17} {size:>9} {count} {median:7.2f} {tail:7.2f} {np.median(took[:, 1]):7.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--windows", type=int, default=TIMED, help="timed, after a few to warm up")
    windows = parser.parse_args().windows
    torch.set_num_threads(1)
    for row in rows(timed=windows):
        print(row, flush=True)


if __name__ == "__main__":
    main()
