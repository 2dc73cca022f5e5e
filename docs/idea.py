"""Draw the picture of docs/censoring.md: python docs/idea.py

A network is fitted on six synthetic subjects without and with a penalty. Each mark is a window in the plane of the
first two principal components of its latent features; color is the subject, shape is the class. The colors are legible
on light and dark pages.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from figures import STYLE, _principal

import autotransfer as at

COLORS = ("#2f7fd1", "#e0662b", "#1f9e84", "#c2458f", "#b08400", "#8a63d2", "#7d8794")
GREY = "#7d8794"
RECORDINGS = {
    "n_subjects": 8, "windows_per_class": 30, "n_channels": 6, "n_times": 64, "sfreq": 64.0, "subject_shift": 1.0,
}  # fmt: skip
PENALTY = {"method": "mmd", "mode": "conditional", "strength": 3.0}
TITLES = ("Without a penalty: clusters by subject", "With a penalty: clusters by class")


def idea(epochs: int) -> Any:
    rec = at.synthetic(**RECORDINGS, seed=0)
    fold = at.leave_one_subject_out(rec)[0]
    common = {"max_epochs": epochs, "batch_size": 64, "lr": 3e-3}
    jobs = [at.Job(at.Setting(**own, **common), fold, 0) for own in ({}, PENALTY)]
    outcomes = at.train(rec, jobs, "cpu", progress=False)
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.7), layout="constrained")
    s, y = rec.subject[fold.train], rec.y[fold.train]
    for axis, outcome, title in zip(axes, outcomes, TITLES, strict=True):
        z = at.encode(rec, [outcome], fold.train, final=True)[0][0]
        _draw(axis, _principal(z), s, y)
        subject, label = at.leakage(z, s), at.leakage(z, y)
        axis.set_title(title, color=GREY, fontsize=12, fontweight="bold", loc="left")
        caption = f"accuracy of subject: {subject.accuracy:.0%} (chance {subject.chance:.0%}), of class: {label.accuracy:.0%}"
        axis.set_xlabel(caption, color=GREY, fontsize=9.5, loc="left")
        print(f"{caption}; balanced accuracy on the held-out subject {outcome.test_score:.2f}")
    return figure


def _draw(axis: Any, plane: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> None:
    """Draw windows. plane: (N, 2), s: (N,) subjects, y: (N,) classes."""
    for color, subject in zip(COLORS, s.unique(), strict=False):
        for c, marker in enumerate("o^"):
            rows = (s == subject) & (y == c)
            axis.scatter(*plane[rows].T, s=20, color=color, marker=marker, alpha=0.85, lw=0)
    axis.set(xticks=[], yticks=[])
    axis.patch.set_alpha(0)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(GREY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--epochs", type=int, default=40)
    chosen = parser.parse_args()
    with mpl.rc_context(STYLE):
        figure = idea(chosen.epochs)
        figure.savefig(chosen.out / "idea.svg", metadata={"Date": None}, bbox_inches="tight", transparent=True)


if __name__ == "__main__":
    main()
