"""Runs as the report sees them, made up but of the types of real ones.

`python tests/report_example.py FOLDER` writes a page of each, to be looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import autotransfer as at
from autotransfer.jobs import Record
from autotransfer.report.summary import ProbeResult, Summary
from autotransfer.runs.choice import (
    Calibration,
    Choice,
    EnsembleWeights,
    NamedSetting,
    PredictionSetScores,
    Reliability,
    ReplayResult,
    StageScore,
    WeightedCandidate,
)
from autotransfer.runs.data_facts import Data
from autotransfer.runs.results import FinishedFit
from autotransfer.search.diagnosis import score_prediction_sets
from tiny import described

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
EPOCHS = 60


def finished(
    n_subjects: int = 12, *, gain: float = 0.05, seed: int = 0, names: tuple[str, ...] = (), grid: str = "quick",
    classes: tuple[str, ...] = ("rest", "13 Hz", "17 Hz", "21 Hz"), chosen: str | None = None,
) -> Summary:  # fmt: skip
    """A finished run in which the censored settings are `gain` better on average, most for the weakest subjects."""
    draw = np.random.default_rng(seed)
    options = described(source="eeg_ssvep_exo.npz", grid=grid, max_epochs=EPOCHS)
    subjects = tuple(
        names[i % len(names)] + ("" if i < len(names) else f" {i}") if names else str(i + 1) for i in range(n_subjects)
    )
    trials = draw.integers(90, 130, n_subjects).tolist()
    fits = _trainings(
        draw, subjects, gain, [NamedSetting(options.name_of(s), s) for s in options.settings()], len(classes)
    )
    run = Summary(
        name="SSVEP exoskeleton",
        source=options.source,
        command="autotransfer run eeg_ssvep_exo.npz --out runs/exo --grid quick --epochs 60 --seed 0",
        jobs_done=len(fits),
        jobs_total=len(fits),
        started="2026-03-02T10:15:00+00:00",
        seconds=1234.5,
        device="cpu (2 threads)",
        versions={"autotransfer": "0.1.0", "python": "3.11.9", "torch": "2.13.0", "numpy": "2.4.6"},
        options=options,
        data=Data(
            n_windows=sum(trials), n_channels=8, n_times=256, sfreq=256.0, classes=classes, subjects=subjects,
            channels=("Oz", "O1", "O2", "POz", "PO3", "PO4", "PO7", "PO8"), windows_by_unit=tuple(trials),
        ),
        folds=n_subjects,
        fits=tuple(fits),
    )  # fmt: skip
    choice = _choice(run, chosen)
    leakage = {"paper_network": _leakage(draw, subjects, 0.72), "chosen": _leakage(draw, subjects, 0.31)}
    if choice.is_paper_network_chosen:
        leakage.pop("chosen")
    return replace(run, choice=choice, leakage=leakage)


def _trainings(
    draw: Any, subjects: tuple[str, ...], gain: float, named: list[NamedSetting], n_classes: int
) -> list[FinishedFit]:
    skill = np.sort(draw.uniform(1 / n_classes + 0.05, 0.92, len(subjects)))
    draw.shuffle(skill)
    kept: list[NamedSetting] = []
    for one in named:
        if sum(other.setting.method == one.setting.method for other in kept) < 3:
            kept.append(one)
    jobs = [("search", one, 0) for one in named]
    jobs += [("folds", one, fold) for one in kept for fold in range(1, len(subjects))]
    found = []
    for stage, one, fold in jobs:
        lift = 0.0 if one.setting.penalty is None else gain * draw.normal(1, 0.3)
        better = skill + lift * (1.4 - skill) * 1.6
        test, validation = np.clip(draw.normal((better[fold], better[fold - 1]), 0.025), 0, 1).tolist()
        history = _history(draw, fold, one.setting)
        record = make_record(draw, validation, test, n_classes, history)
        record = replace(record, swapped=make_record(draw, test, validation, n_classes, history))
        key = f"{one.setting.key}-{fold}-0"
        people = subjects[fold - 1], subjects[fold]
        found.append(FinishedFit(stage, one.name, one.setting, fold, *people, 0, key, record))
    return found


def make_record(draw: Any, validation: float, test: float, n_classes: int, history: dict[str, list[float]]) -> Record:
    return Record(
        best_epoch=int(draw.integers(8, 50)), epochs=EPOCHS, validation_score=validation, test_score=test,
        validation_confusion=_confusion(draw, n_classes, validation), test_confusion=_confusion(draw, n_classes, test),
        history=history, seconds=float(draw.uniform(2, 9)), population=13,
    )  # fmt: skip


def _confusion(draw: Any, n: int, hit: float) -> np.ndarray:
    law = np.full((n, n), (1 - hit) / (n - 1))
    np.fill_diagonal(law, hit)
    counts: np.ndarray = draw.multinomial(27, law)
    return counts


def _history(draw: Any, fold: int, setting: at.Setting) -> dict[str, list[float]]:
    epochs = np.arange(1, EPOCHS + 1 - fold % 3 * 10)
    fall = np.exp(-epochs / draw.uniform(10, 18))
    noise = draw.normal(0, 0.02, (4, len(epochs)))
    penalty = 0 * fall if setting.penalty is None else 0.4 * fall + 0.05 + noise[1] / 4
    return {"train_loss": (0.35 + fall + noise[0]).tolist(), "penalty": penalty.tolist(),
            "validation_loss": (0.85 + 0.5 * fall + 0.004 * epochs + noise[2]).tolist(),
            "validation_score": np.clip(0.62 - 0.4 * fall + noise[3], 0, 1).tolist()}  # fmt: skip


def _choice(run: Summary, chosen: str | None) -> Choice:
    """By validation, but for a setting that is named; every fifth subject has another nested choice."""
    settings = {one.name: one.setting for one in run.fits if one.stage == "folds"}
    tests: dict[str, dict[str, float]] = {name: {} for name in settings}
    validation: dict[str, list[float]] = {name: [] for name in settings}
    for one in run.fits:
        if one.name in settings and one.record.swapped is not None:
            tests[one.name] |= one.scores
            validation[one.name] += [one.record.validation_score, one.record.swapped.validation_score]
    q25 = {name: float(np.percentile(values, 25)) for name, values in validation.items()}
    ranked = sorted(settings, key=lambda name: -q25[name])
    named = {name: NamedSetting(name, settings[name]) for name in ranked}
    best = named[chosen or ranked[0]]
    baseline = named["paper_network"]
    roles = {"chosen": best.name, "paper_network": "paper_network", "best_uncensored": "paper_network"}
    other = best if best is baseline else named[ranked[1]]
    picks = {s: (other if i % 5 == 4 else best).name for i, s in enumerate(run.data.subjects)}
    nested = {s: tests[name][s] for s, name in picks.items()}
    return Choice(
        chosen=best, paper_network=baseline, best_uncensored=baseline, adaptation="none",
        shortlist=list(named.values()),
        validation_q25=q25,
        validation_mean={name: float(np.mean(values)) for name, values in validation.items()},
        test_scores={role: tests[name] for role, name in roles.items()},
        nested_test_scores=nested, nested_choices=picks,
        nested_uncensored_choices=dict.fromkeys(picks, "paper_network"),
        chance=run.data.chance,
        **_beside(nested, len(run.data.classes)),
    )  # fmt: skip


def _beside(nested: dict[str, float], n_classes: int) -> dict[str, Any]:
    """Baselines, one of them nearly as good, and what the delivered model confuses."""
    draw = np.random.default_rng(len(nested))

    def baseline(loss: float) -> dict[str, float]:
        noise = draw.normal(0, 0.015, len(nested))
        return {s: float(np.clip(v - loss + e, 0, 1)) for (s, v), e in zip(nested.items(), noise, strict=True)}

    return {
        "baselines": {"Features + LDA": baseline(0.12), "pyRiemann tangent space + LDA": baseline(0.025)},
        "skipped_baselines": {"Random forest": "no time was left: it takes about 90 s"},
        "confusions": {s: _confusion(draw, n_classes, v).tolist() for s, v in nested.items()},
        "prediction_sets": _prediction_sets(draw, list(nested), n_classes),
        "reliability": {s: Reliability(min(1.0, 0.1 + 0.9 * v), v, 0.05) for s, v in nested.items()},
    }


def _prediction_sets(draw: Any, people: list[str], n_classes: int) -> PredictionSetScores | None:
    """What `score_prediction_sets` finds of subjects who are told apart more or less well."""
    found = {}
    for who in people:
        y = draw.integers(0, n_classes, 60)
        logits = draw.standard_normal((60, n_classes))
        logits[np.arange(60), y] += 1.5 + draw.standard_normal()
        found[who] = y, np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return score_prediction_sets(found)


def _leakage(draw: Any, subjects: tuple[str, ...], level: float) -> list[ProbeResult]:
    read = np.clip(draw.normal(level, 0.05, len(subjects)), 0, 1).tolist()
    return [
        ProbeResult(s, a, 1 / max(len(subjects) - 2, 1), 2 * a * level) for s, a in zip(subjects, read, strict=True)
    ]


KINDS = {"tangent": 0.28, "shallow": 0.14, "features": 0.1, "templates": 0.0, "my_encoder": 0.03}


def averaged(run: Summary | None = None, *, seed: int = 0, own: str = "my_encoder") -> Summary:
    """The run with an average of two settings and a candidate of each other kind, the last one a user's encoder. All
    kinds but templates help."""
    run = run or finished()
    draw, choice = np.random.default_rng(seed), run.choice
    first, *more = dict.fromkeys([choice.chosen.name, "paper_network"])
    weights = [WeightedCandidate(first, "eegnet", 0.45 - 0.1 * len(more), 0.0)]
    weights += [WeightedCandidate(name, "eegnet", 0.1, 0.0) for name in more]
    for kind, share in KINDS.items():
        kind = own if kind == "my_encoder" else kind
        weights.append(WeightedCandidate(f"candidate of {kind}", kind, share, 0.0))
    weights.sort(key=lambda one: -one.share)
    weights = [replace(one, weight=one.share / 1.37) for one in weights]

    def less(loss: float) -> dict[str, float]:
        noise = draw.normal(0, 0.004, len(nested))
        return {s: float(np.clip(v - loss + e, 0, 1)) for (s, v), e in zip(nested.items(), noise, strict=True)}

    nested = {s: min(1.0, v + 0.03) for s, v in choice.nested_test_scores.items()}
    moved = {s: draw.dirichlet([1 + 60 * one.share for one in weights]) for s in nested}
    confidence = [0.32, 0.45, 0.58, 0.71, 0.84, 0.95]
    names = [one.name for one in weights]
    found = EnsembleWeights(candidates=[one for one in weights if one.share > 0],
                     nested={s: dict(zip(names, own.tolist(), strict=True)) for s, own in moved.items()})  # fmt: skip
    others = {"best_single": less(0.03), "equal_weights": less(0.012), "uncensored": less(0.008)}
    calibration = Calibration(
        confidence, [c - 0.02 for c in confidence], [0.05, 0.12, 0.18, 0.2, 0.25, 0.2], 0.021, 0.083
    )
    mean = choice.validation_mean | {one.name: 0.5 + 0.1 * one.share for one in weights if "candidate" in one.name}
    q25 = choice.validation_q25 | {name: value - 0.05 for name, value in mean.items() if "candidate" in name}
    others["paper_network"] = less(0.02)
    return replace(
        run,
        choice=replace(
            choice, ensemble=found, nested_test_scores=nested, validation_mean=mean, validation_q25=q25,
            alternatives=others, calibration=calibration, replay=played(nested),
        ),
    )  # fmt: skip


def played(scores: dict[str, float]) -> ReplayResult:
    """These subjects gain by labels, and a little by adaptation but in one order."""

    def more(gain: float) -> dict[str, float]:
        return {s: min(1.0, v + gain * (1 - v)) for s, v in scores.items()}

    orders = {"recorded": 0.1, "balanced": 0.15, "one-sided": 0.0, "one class first": 0.05}
    labels = {"1": 0.3, "2": 0.4, "5": 0.6, "10": 0.7}
    return ReplayResult(
        zero_shot=dict.fromkeys(orders, scores), adapted={name: more(gain) for name, gain in orders.items()},
        before_calibration=dict.fromkeys(labels, scores), calibrated={k: more(gain) for k, gain in labels.items()},
        personal={k: {s: v * gain for s, v in scores.items()} for k, gain in labels.items()},
        calibrates_with=[1, 2, 5, 10], all_windows=more(0.2), session_method="class means",
        transductive_method="centering and class means",
    )  # fmt: skip


def in_stages() -> Summary:
    """The average of a run that answered three times, and ended because its time was over."""
    run = averaged()
    scores = run.choice.nested_test_scores
    found = [
        StageScore.from_scores(name, number, seconds, {s: max(0.0, v - less) for s, v in scores.items()})
        for number, (name, seconds, less) in enumerate(
            [("simple models", 12.0, 0.2), ("plain networks", 400.0, 0.05), ("penalties <b>", 1500.0, 0.0)]
        )
    ]
    return replace(run, choice=replace(run.choice, stages=found, end_reason="the time is over"))


def paper_network_chosen(n_subjects: int = 9) -> Summary:
    return finished(n_subjects, gain=-0.03, chosen="paper_network", seed=3)


def failing(run: Summary, reasons: dict[int, str]) -> Summary:
    """The run with some of its fits failed."""
    fits = list(run.fits)
    for place, reason in reasons.items():
        record = replace(fits[place].record, failure=reason, test_score=float("nan"))
        fits[place] = replace(fits[place], record=record)
    return replace(run, fits=tuple(fits))


def unfinished() -> Summary:
    """Stopped in stage two, with two failed jobs."""
    run = finished(10, seed=2)
    run = failing(run, {36: "the loss is not finite after epoch 3", 38: "out of memory"})
    return replace(run, fits=run.fits[:40], choice=None, leakage={}, jobs_done=38, jobs_total=132)


def hostile(name: str = HOSTILE[0], *, names: tuple[str, ...] = HOSTILE) -> Summary:
    """Every name that a user can give is an attack, or at least rude."""
    run = failing(finished(max(6, len(names)), names=names, classes=(*names[:3], "rest")), {-1: name})
    run = averaged(run, own=name)
    return replace(run, name=name, source=name, command=f"autotransfer run {name}", device=name,
                   data=replace(run.data, channels=names), options=replace(run.options, encoder=name),
                   versions={**run.versions, name: name})  # fmt: skip


def empty() -> Summary:
    """Asked for a report before the first job has ended."""
    return replace(unfinished(), fits=(), folds=0, jobs_done=0, jobs_total=12)


EXAMPLES: dict[str, Callable[[], Summary]] = {
    "gain": finished,
    "average": averaged,
    "stages": in_stages,
    "average of three": lambda: averaged(finished(3, seed=1)),
    "paper_network": paper_network_chosen,
    "unfinished": unfinished,
    "hostile": hostile,
    "empty": empty,
}

if __name__ == "__main__":
    from autotransfer.report.page import write_page

    for label, make in EXAMPLES.items():
        print(write_page(make(), Path(sys.argv[1]) / f"{label}.html"))
