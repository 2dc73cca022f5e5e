"""What a run is said to cost against what it costs."""

from __future__ import annotations

import time

import pytest

import autotransfer as at
from autotransfer.models.assembly import ensemble
from autotransfer.preprocessing.represent.base import EveryWindow
from autotransfer.runs.options import RunOptions
from autotransfer.runs.preparation import Preparation
from autotransfer.search.costs import Costs
from autotransfer.search.kinds import candidates_of
from autotransfer.search.planning import plan_of
from tiny import tiny


def test_the_estimate_is_of_stacks_as_they_will_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of a stack costs a fraction of one alone. In time of the processor, which others disturb little."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    recordings = tiny(n_subjects=8)
    options = RunOptions(source="tiny", epochs=40, batch_size=8, device="cpu", grid="uncensored", adaptation="none")
    (setting,) = options.settings()
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(recordings)]
    expected = len(jobs) * Costs.measure(Preparation(options, recordings), [setting]).training(setting, 2)
    start = time.process_time()
    at.train(recordings, jobs, "cpu", progress=False)
    spent = time.process_time() - start
    assert 0.4 * spent < expected < 2.5 * spent  # eight alone take about five times as long


def test_windows_are_represented_once_for_training_and_for_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a person who is held out nor the fold changes a representation, so nobody works it out twice."""
    recordings = tiny(n_subjects=5, per_class=8)
    setting = at.Setting(encoder="linear", represent="features", standardize="none")
    rows, forward = [], EveryWindow.forward
    monkeypatch.setattr(
        EveryWindow, "forward", lambda self, x, people=None: (rows.append(x.shape[1]), forward(self, x, people))[1]
    )
    folds = at.leave_one_subject_out(recordings)
    result = at.train(recordings, [at.Job(setting, fold) for fold in folds], "cpu", progress=False)
    for outcome, fold in zip(result, folds, strict=True):
        ensemble(recordings, setting, [outcome.state], [fold], kind="ensemble", scores={})
    assert sum(rows) == recordings.n_trials


def test_an_estimate_of_long_epochs_takes_few_of_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotransfer.training.trainer import Trainer

    taken = []
    step = Trainer._step
    monkeypatch.setattr(Trainer, "_step", lambda self, *args: (taken.append(1), step(self, *args))[1])
    recordings = tiny(per_class=60)
    options = RunOptions(source="tiny", epochs=3, batch_size=2, device="cpu")
    prepared = Preparation(options, recordings)
    assert plan_of(prepared, Costs.measure(prepared, candidates_of(prepared).every)).seconds > 0
    assert len(taken) < 100, "an epoch has 120 steps"
