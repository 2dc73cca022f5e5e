"""What a run is said to cost against what it costs."""

from __future__ import annotations

import re
import time

import pytest

import autotransfer as at
from autotransfer.models.assembly import ensemble
from autotransfer.preprocessing.represent.base import EveryWindow
from autotransfer.runs.options import RunOptions
from autotransfer.search.costs import Costs, SolvingSpeed
from autotransfer.search.kinds import closed_forms
from autotransfer.search.planning import plan_of
from autotransfer.training import progress
from tiny import tiny


def test_the_estimate_is_of_stacks_as_they_will_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of a stack costs a fraction of one alone. In time of the processor, which others disturb little."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    recordings = tiny(n_subjects=8)
    options = RunOptions(source="tiny", epochs=40, batch_size=8, device="cpu", grid="uncensored", adaptation="none")
    (setting,) = options.settings()
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(recordings)]
    expected = len(jobs) * Costs.measure(recordings, options).training(setting, options)
    start = time.process_time()
    at.train(recordings, jobs, "cpu", progress=False)
    spent = time.process_time() - start
    assert 0.4 * spent < expected < 2.5 * spent  # eight alone take about five times as long


def test_closed_forms_that_are_alike_are_solved_together_and_cost_as_much() -> None:
    """Shares of a shrunk covariance are solved from one set of codes, which a fold pays for once."""
    recordings = tiny(n_subjects=8, per_class=20)
    options = RunOptions.of("recommended", source="tiny", adaptation="zero-shot", device="cpu").for_data(recordings)
    costs = Costs.measure(recordings, options)
    solved = [one for one in closed_forms(options, recordings) if one.encoder == "linear"]
    alike = [one for one in solved if one.preprocessing == solved[0].preprocessing]
    assert len(alike) > 1
    assert costs.stage(alike, 8, options) < 1.5 * len(alike) * costs.stage(alike[:1], 8, options)
    once = sum(speed.once for speed in costs.speeds.values() if isinstance(speed, SolvingSpeed))
    more = costs.stage(solved, 16, options) - costs.stage(solved, 8, options)
    folds = 8 * sum(costs.training(one, options) for one in solved)
    assert more == pytest.approx(folds), "what is done once is paid for once"
    assert costs.stage(solved, 8, options) <= folds + once


def test_windows_are_represented_once_for_training_and_for_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a person who is held out nor the fold changes a representation, so nobody works it out twice."""
    recordings = tiny(n_subjects=5, per_class=8)
    setting = at.Setting(encoder="linear", represent="features", standardise="none")
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
    assert plan_of(options, recordings, Costs.measure(recordings, options)).seconds > 0
    assert len(taken) < 100, "an epoch has 120 steps"


def test_time_left_is_not_told_from_what_is_done_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with progress.Progress(1000, 10, shown=True) as bar:
        for seconds in (30.0, 11.0):  # tables are made and shapes are met for the first time
            now[0] += seconds
            bar.advance(100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("? left")
    left = re.search(r"0:41 elapsed, (\S+) left", lines[1])
    assert left is not None
    assert left[1] == progress.clock(11 * 8)
