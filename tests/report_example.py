"""Runs as the report sees them, made up but shaped like real ones.

`python tests/report_example.py FOLDER` writes a page of each, to be looked at.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import autotransfer as at
from autotransfer.report.summary import Summary

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quoted\" & 'more' &lt;b&gt;",
    "<b>bold</b> <a href='javascript:alert(1)'>link</a>",
    "null",
    "a\x00b\u202ec",
    "var(--ink)",
    "%{x} $x^2$ =1+1",
)


def finished(
    n_subjects: int = 12, *, gain: float = 0.05, seed: int = 0, names: tuple[str, ...] = (), grid: str = "quick",
    classes: tuple[str, ...] = ("rest", "13 Hz", "17 Hz", "21 Hz"), chosen: str | None = None,
) -> Summary:  # fmt: skip
    """A finished run in which the censored settings are `gain` better on average, most for the weakest subjects."""
    draw = np.random.default_rng(seed)
    subjects = [
        names[i % len(names)] + ("" if i < len(names) else f" {i}") if names else str(i + 1) for i in range(n_subjects)
    ]
    results = _results(draw, subjects, gain, at.grid(grid), 1 / len(classes))
    folds = results[results["setting"].isin(results[results["stage"] == "folds"]["setting"])]  # the first is shared
    validated = _by_subject(folds)
    q25 = {name: float(np.percentile(list(own.values()), 25)) for name, own in validated.items()}
    ranked = sorted(q25, key=lambda name: -q25[name])
    chosen = chosen or ranked[0]
    by_name = {s.name: s for s in at.grid(grid)}
    tested = {(r["setting"], r["test_subject"]): r["test_score"] for r in folds.to_dict("records")}
    other = chosen if chosen == "baseline" else ranked[1]
    picks = {s: other if i % 5 == 4 else chosen for i, s in enumerate(subjects)}
    trials = {s: int(draw.integers(90, 130)) for s in subjects}
    return Summary(
        name="SSVEP exoskeleton",
        source="eeg_ssvep_exo.npz",
        command="autotransfer run eeg_ssvep_exo.npz --out runs/exo --grid quick --epochs 60 --seed 0",
        complete=True,
        jobs_done=len(results),
        jobs_total=len(results),
        started="2026-03-02T10:15:00+00:00",
        seconds=1234.5,
        device="cpu (2 threads)",
        versions={"autotransfer": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "numpy": "2.4.6"},
        options={"grid": grid, "search": "grid", "epochs": 60, "seeds": 1, "seed": 0, "nested": "cheap"},
        data={"n_trials": sum(trials.values()), "n_channels": 8, "n_times": 256, "sfreq": 256.0,
              "channels": ["Oz", "O1", "O2", "POz", "PO3", "PO4", "PO7", "PO8"], "classes": list(classes),
              "subjects": subjects, "trials": trials},
        splits=[{"fold": i, "validation_subject": subjects[i - 1], "test_subject": s,
                 "n_train": sum(trials.values()) - trials[s] - trials[subjects[i - 1]],
                 "n_validation": trials[subjects[i - 1]], "n_test": trials[s]} for i, s in enumerate(subjects)],
        results=results,
        choice={
            "chosen": {"name": chosen, **by_name[chosen].as_row()},
            "baseline": {"name": "baseline", **by_name["baseline"].as_row()},
            "validation_q25": q25,
            "validation_mean": {name: float(np.mean(list(own.values()))) for name, own in validated.items()},
            "test_scores": {
                "chosen": {s: tested[chosen, s] for s in subjects},
                "baseline": {s: tested["baseline", s] for s in subjects},
            },
            "nested_test_scores": {s: tested[picks[s], s] for s in subjects},
            "nested_choices": picks,
            "baseline_won": chosen == "baseline",
            "shortlist": list(q25),
        },
        histories={name: [_history(draw, i, name) for i in range(n_subjects)] for name in q25},
        confusion={"baseline": _confusion(draw, len(classes), 0.5), "chosen": _confusion(draw, len(classes), 0.6)},
        leakage={"baseline": _leakage(draw, n_subjects, 0.72), "chosen": _leakage(draw, n_subjects, 0.31)},
        latent={"baseline": _latent(draw, subjects[2:] or subjects, classes, 3.0),
                "chosen": _latent(draw, subjects[2:] or subjects, classes, 0.5)},
    )  # fmt: skip


def _results(draw: Any, subjects: list[str], gain: float, settings: list[at.Setting], chance: float) -> pd.DataFrame:
    skill = np.sort(draw.uniform(chance + 0.05, 0.92, len(subjects)))
    draw.shuffle(skill)
    rows = []
    stages = [("search", s, 0) for s in settings]
    kept = _shortlist(settings)
    stages += [("folds", s, fold) for s in kept for fold in range(1, len(subjects))]
    for stage, setting, fold in stages:
        lift = 0.0 if setting.method is None else gain * draw.normal(1, 0.3)
        better = skill + lift * (1.4 - skill) * 1.6
        test, validation = np.clip(draw.normal((better[fold], better[fold - 1]), 0.025), 0, 1)
        rows.append(
            {"stage": stage, "setting": setting.name, **setting.as_row(), "fold": fold,
             "validation_subject": subjects[fold - 1], "test_subject": subjects[fold], "seed": 0,
             "best_epoch": int(draw.integers(8, 50)), "epochs": 60, "validation_score": float(validation),
             "test_score": float(test), "swapped_validation_score": float(test),
             "swapped_test_score": float(validation), "seconds": float(draw.uniform(2, 9)), "failure": None}
        )  # fmt: skip
    return pd.DataFrame(rows)


def _by_subject(folds: pd.DataFrame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, list[float]]] = {}
    for row in folds.to_dict("records"):
        own = found.setdefault(row["setting"], {})
        own.setdefault(row["validation_subject"], []).append(row["validation_score"])
        own.setdefault(row["test_subject"], []).append(row["swapped_validation_score"])
    return {name: {s: float(np.mean(v)) for s, v in own.items()} for name, own in found.items()}


def _shortlist(settings: list[at.Setting]) -> list[at.Setting]:
    kept: list[at.Setting] = []
    for setting in settings:
        if sum(other.method == setting.method for other in kept) < 3:
            kept.append(setting)
    return kept


def _history(draw: Any, fold: int, name: str) -> dict[str, Any]:
    epochs = np.arange(1, 61 - fold % 3 * 10)
    fall = np.exp(-epochs / draw.uniform(10, 18))
    noise = draw.normal(0, 0.02, (4, len(epochs)))
    penalty = 0 * fall if name == "baseline" else 0.4 * fall + 0.05 + noise[1] / 4
    return {"fold": fold, "train_loss": (0.35 + fall + noise[0]).tolist(), "penalty": penalty.tolist(),
            "validation_loss": (0.85 + 0.5 * fall + 0.004 * epochs + noise[2]).tolist(),
            "validation_score": np.clip(0.62 - 0.4 * fall + noise[3], 0, 1).tolist()}  # fmt: skip


def _confusion(draw: Any, n: int, hit: float) -> list[list[int]]:
    law = np.full((n, n), (1 - hit) / max(n - 1, 1))
    np.fill_diagonal(law, hit if n > 1 else 1.0)
    counts: list[list[int]] = draw.multinomial(320, law).tolist()
    return counts


def _leakage(draw: Any, n_subjects: int, level: float) -> list[dict[str, float]]:
    read = np.clip(draw.normal(level, 0.05, n_subjects), 0, 1)
    return [{"accuracy": float(a), "chance": 1 / max(n_subjects - 2, 1), "bits": float(2 * a * level)} for a in read]


def _latent(draw: Any, subjects: list[str], classes: tuple[str, ...], apart: float) -> pd.DataFrame:
    s, c = draw.integers(0, len(subjects), 900), draw.integers(0, len(classes), 900)
    turn = 2 * np.pi * np.arange(len(subjects)) / len(subjects)
    centre = apart * np.stack([np.cos(turn), np.sin(turn)], 1)
    side = 1.6 * np.stack([np.cos(2 * np.pi * c / len(classes)), np.sin(2 * np.pi * c / len(classes))], 1)
    xy = centre[s] + side + draw.normal(0, 0.5, (900, 2))
    return pd.DataFrame(
        {"x": xy[:, 0], "y": xy[:, 1], "subject": [subjects[i] for i in s], "class": [classes[i] for i in c]}
    )


def baseline_won(n_subjects: int = 9) -> Summary:
    return finished(n_subjects, gain=-0.03, chosen="baseline", seed=3)


def no_clear_gain() -> Summary:
    return finished(8, gain=0.0, seed=5)


def unfinished() -> Summary:
    """Stopped in stage two, with two failed jobs."""
    run = finished(10, seed=2)
    results = run.results.iloc[:40].copy()
    results["failure"] = [None] * 36 + ["the loss is not finite after epoch 3", None, "out of memory", None]
    results.loc[results["failure"].notna(), ["validation_score", "test_score"]] = np.nan
    return replace(run, results=results, complete=False, choice=None, jobs_done=38, jobs_total=132,
                   confusion={}, leakage={}, latent={}, histories={"baseline": run.histories["baseline"]})  # fmt: skip


def hostile(name: str = HOSTILE[0], *, names: tuple[str, ...] = HOSTILE) -> Summary:
    """Every name that a user can give is an attack, or at least rude."""
    run = finished(max(6, len(names)), names=names, classes=(*names[:3], "rest"))
    results = run.results.copy()
    results["failure"] = results["failure"].astype(object)
    results.loc[results.index[-1], "failure"] = name
    return replace(run, name=name, source=name, command=f"autotransfer run {name}", device=name, results=results,
                   data={**run.data, "channels": list(names)}, options={**run.options, name: name},
                   versions={**run.versions, name: name})  # fmt: skip


def empty() -> Summary:
    """Asked for a report before the first job has ended."""
    return Summary(
        name="new", source="new.npz", command="autotransfer run new.npz", complete=False, jobs_done=0, jobs_total=12,
        started="2026-03-02T10:15:00+00:00", seconds=0.0, device="cpu", versions={}, options={}, data={}, splits=[],
        results=pd.DataFrame(),
    )  # fmt: skip


def nested_full() -> Summary:
    run = finished(7, seed=4)
    assert run.choice is not None
    full = {s: v - 0.01 for s, v in run.choice["nested_test_scores"].items()}
    choice = {**run.choice, "nested_full_test_scores": full, "nested_full_choices": run.choice["nested_choices"]}
    return replace(run, choice=choice)


EXAMPLES = {
    "gain": finished,
    "unclear": no_clear_gain,
    "baseline": baseline_won,
    "unfinished": unfinished,
    "hostile": hostile,
    "empty": empty,
    "two": lambda: finished(2, seed=1),
    "three": lambda: finished(3, seed=1),
    "forty": lambda: finished(40, seed=6, grid="paper"),
    "nested_full": nested_full,
}

if __name__ == "__main__":
    from autotransfer.report.page import write

    for label, make in EXAMPLES.items():
        print(write(make(), Path(sys.argv[1]) / f"{label}.html"))
