"""Draw the figures of docs/method.md and docs/guide/prepare.md with `python docs/figures.py`.

The figures follow from `SEED` and the settings below; --epochs shortens the fits for tests.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

import autotransfer as at

SEED = 0
COLORS = ["#0a5ea8", "#c2410c", "#0f766e", "#9d174d", "#a16207", "#6d28d9", "#475569", "#15803d"]
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "autotransfer",  # the same file every time
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def modes(epochs: int | None) -> Any:
    """Draw points that move along the gradient of a penalty in each mode, without a network."""
    generator = torch.Generator().manual_seed(SEED)
    # Two classes (left, right) and two subjects (below, above) with different class proportions.
    counts = {(0, 0): 60, (1, 0): 12, (0, 1): 12, (1, 1): 60}  # (class, subject): windows
    y = torch.cat([torch.full((n,), c) for (c, _), n in counts.items()])
    s = torch.cat([torch.full((n,), k) for (_, k), n in counts.items()])
    start = 0.4 * torch.randn(len(y), 2, generator=generator)
    start += torch.stack([2.0 * y - 1.0, 1.6 * s - 0.8], 1)
    figure, axes = plt.subplots(1, 4, figsize=(8.6, 3.2), sharey=True, sharex=True, layout="constrained")
    _cloud(axes[0], start, y, s, "no penalty")
    for axis, mode in zip(axes[1:], ("marginal", "conditional", "complementary"), strict=True):
        z = start.clone().requires_grad_()
        censor = at.make_censor("mmd", mode, latent_dim=2, n_classes=2, n_subjects=2)
        optimizer = torch.optim.Adam([z], lr=0.03)
        for _ in range(epochs or 120):
            optimizer.zero_grad()
            # A pull towards the start replaces the loss of a task.
            (censor(z, y, s) + 0.02 * (z - start).square().sum(1).mean()).backward()
            optimizer.step()
            censor.after_step()
        _cloud(axis, z.detach(), y, s, mode)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _cloud(axis: Any, z: torch.Tensor, y: torch.Tensor, s: torch.Tensor, mode: str) -> None:
    for c, marker in enumerate("ox"):
        for k in range(2):
            rows = (y == c) & (s == k)
            color = {"facecolors": "none", "edgecolors": COLORS[k]} if marker == "o" else {"color": COLORS[k]}
            axis.scatter(*z[rows].T, s=14, marker=marker, lw=0.9, label=f"class {c}, subject {k}", **color)
    accuracies = [at.leakage(z, labels).accuracy for labels in (y, s)]
    axis.set(title=f"{mode}\nclass {accuracies[0]:.2f}, subject {accuracies[1]:.2f}", xticks=[], yticks=[])
    axis.set_box_aspect(1)


def scores(epochs: int | None) -> Any:
    """Draw score estimates and the analytic score of a mixture of two Gaussians on a line."""
    means, deviation, n = torch.tensor([-2.0, 1.5]), 0.8, 128
    generator = torch.Generator().manual_seed(SEED)
    pick = torch.randint(2, (n,), generator=generator)
    z = (means[pick] + deviation * torch.randn(n, generator=generator)).sort().values[:, None]
    log_p = -((z - means) ** 2) / (2 * deviation**2)  # (n, 2), each up to a constant
    exact = (log_p.softmax(1) * (means - z)).sum(1) / deviation**2
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.5), sharey=True, layout="constrained")
    for axis, scale, title in zip(axes, ("median", 0.8), ("length scale: median", "length scale: 0.8"), strict=True):
        axis.plot(z, exact, color="black", lw=2.2, label="analytic")
        for (label, estimator, gamma), color in zip(ESTIMATORS, COLORS, strict=False):
            values = estimator(z, regularization=gamma, length_scale=scale)
            axis.plot(z, values[:, 0], color=color, lw=1.3, label=f"{label}, γ = {gamma:g}")
        axis.plot(z[:, 0], torch.full((n,), -6.5), "|", color="#475569", ms=7, mew=0.5, label=f"{n} samples")
        axis.set(xlabel="z", ylim=(-7, 7), title=title)
    axes[0].set(ylabel="score  d log p / dz")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# The ridge of Stein's estimator is n·γ: with 128 samples these four smooth about equally.
ESTIMATORS = (
    ("Stein", at.scores.stein, 1e-4),
    ("Tikhonov", at.scores.tikhonov, 0.01),
    ("SSGE", at.scores.ssge, 0.01),
    ("ν-method", at.scores.nu_method, 0.01),
)

RECORDINGS = {
    "n_subjects": 6, "windows_per_class": 24, "n_channels": 6, "n_times": 64, "sfreq": 64.0, "subject_shift": 1.0,
}  # fmt: skip
TRAINING = {"batch_size": 64, "lr": 3e-3}
EPOCHS = 40


def latent(epochs: int | None) -> Any:
    """Draw latent features of the training windows of one fold, without and with a penalty."""
    rec = at.synthetic(**RECORDINGS, seed=SEED)
    fold = at.leave_one_subject_out(rec)[0]
    common = {"max_epochs": epochs or EPOCHS, **TRAINING}
    settings = [
        at.Setting(**common),
        at.Setting(method="mmd", mode="marginal", strength=3.0, **common),
        at.Setting(method="mmd", mode="marginal", strength=3.0, shuffle_subjects=True, **common),
    ]
    outcomes = at.train(rec, [at.Job(setting, fold, SEED) for setting in settings], "cpu", progress=False)
    titles = ("no penalty", "MMD, strength 3", "MMD, shuffled subjects")
    figure, axes = plt.subplots(1, 3, figsize=(8.6, 3.5), layout="constrained")
    s, y = rec.subject[fold.train], rec.y[fold.train]
    for axis, outcome, title in zip(axes, outcomes, titles, strict=True):
        z = at.encode(rec, [outcome], fold.train, final=True)[0][0]
        plane = _principal(z)
        for place, subject in enumerate(s.unique()):
            for c, marker in enumerate("o^"):
                rows = (s == subject) & (y == c)
                axis.scatter(*plane[rows].T, s=15, color=COLORS[place], marker=marker, alpha=0.75, lw=0)
        leakage = at.leakage(z, s)
        axis.set(title=f"{title}\nleakage {leakage.accuracy:.2f} (chance {leakage.chance:.2f})")
        axis.set(xticks=[], yticks=[])
    return figure


def _principal(z: torch.Tensor) -> torch.Tensor:
    """Return the first two principal components of standardized features: (N, D) -> (N, 2)."""
    spread = z.std(0)
    z = (z - z.mean(0)) / torch.where(spread > 0, spread, 1.0)
    u, d, _ = torch.linalg.svd(z, full_matrices=False)
    return u[:, :2] * d[:2]


# title: method, its options and the strengths to try
CENSORS: dict[str, tuple[str, dict[str, str], tuple[float, ...]]] = {
    "MMD": ("mmd", {}, (0.3, 1.0, 3.0, 10.0)),
    "Adversary": ("adversary", {}, (0.03, 0.1, 0.3, 1.0)),
    "BEGAN as printed": ("began", {"variant": "paper"}, (0.3, 1.0, 3.0, 10.0)),
}


def strength(epochs: int | None) -> Any:
    """Draw leakage and test score by strength, with true and with shuffled subjects."""
    rec = at.synthetic(**RECORDINGS, seed=SEED)
    folds = at.leave_one_subject_out(rec)[::2]
    common = {"max_epochs": epochs or EPOCHS, **TRAINING}
    settings = [at.Setting(**common)] + [
        at.Setting(method=method, mode="marginal", strength=value, shuffle_subjects=shuffled, **options, **common)
        for method, options, values in CENSORS.values()
        for value in values
        for shuffled in (False, True)
    ]
    jobs = [at.Job(setting, fold, SEED) for setting in settings for fold in folds]
    results: dict[Any, list[tuple[float, float]]] = {}
    for outcome in at.train(rec, jobs, "cpu", progress=False):
        own, rows = outcome.job.setting, outcome.job.fold.train
        z = at.encode(rec, [outcome], rows, final=True)[0][0]
        found = (at.leakage(z, rec.subject[rows]).accuracy, outcome.test_score)
        results.setdefault((own.method, own.strength, own.shuffle_subjects), []).append(found)
    mean = {key: np.mean(values, axis=0) for key, values in results.items()}
    figure, axes = plt.subplots(2, 3, figsize=(8.6, 4.6), sharex="col", sharey="row", layout="constrained")
    for column, (title, (method, _, values)) in enumerate(CENSORS.items()):
        for row, label in enumerate(("leakage", "test score, unseen subject")):
            axis = axes[row, column]
            axis.axhline(mean[None, None, False][row], color="black", lw=1.2, label="no penalty")
            chance = 1 / (rec.n_subjects - 2) if row == 0 else 1 / rec.n_classes
            axis.axhline(chance, color="#475569", lw=1, ls=":", label="chance")
            for shuffled, color, name in ((False, COLORS[0], "true subjects"), (True, COLORS[1], "shuffled")):
                own = [mean[method, value, shuffled][row] for value in values]
                axis.semilogx(values, own, "o-", color=color, lw=1.5, ms=4, label=name)
            axis.set(ylim=(0, 1.02))
            if column == 0:
                axis.set(ylabel=label)
        axes[0, column].set(title=title)
        axes[1, column].set(xlabel="strength λ")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def windows(epochs: int | None) -> Any:
    """Draw a signal with events, and the windows that are cut from it."""
    rng = np.random.default_rng(SEED)
    rate, offset, window, hop = 200, 0.5, 1.0, 0.5
    events = [(0.0, "rest"), (2.0, "fist"), (5.0, "rest")]
    end, drawn = 7.0, [(2.0, 5.0)]
    times = np.arange(int(end * rate)) / rate
    is_active = (times >= events[1][0] + 0.25) & (times < events[2][0] + 0.1)
    signal = np.where(is_active, 0.55, 0.08) * rng.standard_normal(len(times))
    figure, axis = plt.subplots(figsize=(8.6, 3.4), layout="constrained")
    axis.plot(times, signal, color="#475569", lw=0.5)
    for onset, name in events:
        axis.axvline(onset, color=COLORS[1], lw=1.5, ymin=0.38)
        axis.text(onset + 0.05, 1.95, f"event: {name}", color=COLORS[1], va="top")
    for onset, stop in drawn:
        starts = np.arange(onset + offset, stop - window + 1e-9, hop)
        for k, start in enumerate(starts):
            axis.plot([start, start + window], [-2.2 - 0.35 * k] * 2, color=COLORS[0], lw=7, solid_capstyle="butt")
            axis.text(start + window / 2, -2.2 - 0.35 * k, f"window {k + 1}", color="white", fontsize=7, ha="center",
                      va="center")  # fmt: skip
        for left, right, height, text in (
            (onset, starts[0], -1.75, "offset"), (starts[0], starts[0] + window, -1.75, "length of a window"),
            (starts[0], starts[1], -2.55, "hop"),
        ):  # fmt: skip
            axis.annotate(
                "", (left, height), (right, height), arrowprops={"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0}
            )
            below = text == "hop"
            axis.text((left + right) / 2, height + (-0.06 if below else 0.06), text, ha="center",
                      va="top" if below else "bottom", fontsize=9)  # fmt: skip
    axis.set(xlabel="time, s", yticks=[], ylim=(-3.7, 2.05), xlim=(-0.1, end))
    axis.spines["left"].set_visible(False)
    return figure


FIGURES: dict[str, Callable[[int | None], Any]] = {
    "modes": modes, "scores": scores, "latent": latent, "strength": strength, "windows": windows,
}  # fmt: skip


def main() -> None:
    here = Path(__file__).parent / "images"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"figures: {', '.join(FIGURES)}; default: all")
    parser.add_argument("--out", type=Path, default=here)
    parser.add_argument("--epochs", type=int, help="epochs of every fit; default: those of the figures")
    chosen = parser.parse_args()
    for name in chosen.names or FIGURES:
        start = time.perf_counter()
        with mpl.rc_context(STYLE):
            figure = FIGURES[name](chosen.epochs)
            figure.savefig(chosen.out / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(figure)
        print(f"{name}.svg  {math.ceil(time.perf_counter() - start)} s", flush=True)


if __name__ == "__main__":
    main()
