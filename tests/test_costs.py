"""What a run is said to cost against what it costs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import autotransfer as at
from autotransfer import machine
from autotransfer.models.assembly import ensemble
from autotransfer.preprocessing.represent.base import EveryWindow
from autotransfer.runs.options import RunOptions, resolved
from autotransfer.runs.preparation import Preparation
from autotransfer.search import costs
from autotransfer.search.costs import Costs
from autotransfer.search.kinds import SHRINKAGES, candidates_of
from autotransfer.search.planning import plan_of
from autotransfer.training import progress, timing
from autotransfer.training.timing import SolvingSpeed, Speed
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


class Timed:
    """A population that moves a clock: 1 s for the first of its closed forms, 0.1 s for a fold, 1 ms for each row."""

    def __init__(self) -> None:
        self.now, self.known = 0.0, set[object]()
        self.snapshots = SimpleNamespace(loss=np.zeros(1))

    def population(self, jobs: Sequence[at.Job], *more: object) -> Timed:
        (self.jobs,) = {(job.setting.encoder, job.setting.preprocessing, job.fold) for job in jobs}
        return self

    def train_epoch(self, most: int | None = None) -> None:
        encoder, preprocessing, fold = self.jobs
        self.now += 1.0 * ((encoder, preprocessing) not in self.known)
        self.now += 0.1 + 0.001 * (len(fold.train) + len(fold.validation) + len(fold.test))
        self.known.add((encoder, preprocessing))

    def evaluate(self) -> None:
        pass


def test_closed_forms_that_are_alike_are_solved_together_and_share_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shrinkages of a covariance are solved from one set of codes, which a fold pays for once."""
    recordings, timed = tiny(n_subjects=8, per_class=20), Timed()
    options = RunOptions.of("recommended", source="tiny", adaptation="zero-shot", device="cpu", networks="none")
    prepared = Preparation(resolved(options, recordings), recordings)
    monkeypatch.setattr(timing, "population_of", timed.population)
    monkeypatch.setattr(timing, "windows_for", lambda *_, **__: None)
    monkeypatch.setattr(costs, "time_network", lambda *_: Speed(1.0, 1.0))
    monkeypatch.setattr(costs.time, "perf_counter", lambda: timed.now)
    candidates = candidates_of(prepared)
    measured = Costs.measure(prepared, candidates.every)
    solved = [form for form in candidates.solved if form.encoder == "linear"]
    alike = [form for form in solved if form.preprocessing == solved[0].preprocessing]
    assert len(alike) == len(SHRINKAGES) == 2
    for form in alike:
        speed = measured.speeds[form.network_spec]
        assert isinstance(speed, SolvingSpeed)
        assert (speed.once, speed.fold, speed.row) == pytest.approx((0.5, 0.05, 0.0005))
    fold = 0.1 + 0.001 * recordings.n_trials + 2 * costs.WRITING
    assert measured.stage(alike, prepared.groups) == pytest.approx(1.0 + 8 * fold)
    groups = len(solved) / 2
    assert measured.stage(solved, prepared.groups) == pytest.approx(groups * (1.0 + 8 * fold)), (
        "the first work of each once"
    )


def test_a_machine_that_others_use_is_called_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s in the queue for a core, while 1.5 s were computed: everything takes three times as long."""
    recordings, timed = tiny(n_subjects=8, per_class=20), Timed()
    options = RunOptions(source="tiny", epochs=3, batch_size=8, device="cpu", grid="uncensored", adaptation="none")
    monkeypatch.setattr(costs, "time_network", lambda *_: Speed(1.0, 1.0))
    monkeypatch.setattr(timing, "population_of", timed.population)
    monkeypatch.setattr(timing, "windows_for", lambda *_, **__: None)
    for queued, busy in ((3.0, 3.0), (0.0, 1.0)):
        monkeypatch.setattr(costs, "waited", iter([1.0, 1.0 + queued]).__next__)
        monkeypatch.setattr(costs.time, "process_time", iter([10.0, 11.5]).__next__)
        assert Costs.measure(Preparation(options, recordings), options.settings()).busy == pytest.approx(busy)


def test_waiting_for_a_core_is_read_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """schedstat: nanoseconds on a core, nanoseconds in its queue, number of turns."""
    tasks = len(list(Path("/proc/self/task").glob("*")))
    if not tasks:
        pytest.skip("the system has no /proc")
    main = str(os.getpid())
    monkeypatch.setattr(
        machine, "_read", lambda path: "7 2500000000 3" if path.parts[-2:] == (main, "schedstat") else None
    )
    assert machine.waited() == 2.5
    monkeypatch.setattr(machine, "_read", lambda path: None)
    assert machine.waited() == 0


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
    prepared = Preparation(options, recordings)
    assert plan_of(prepared, Costs.measure(prepared, candidates_of(prepared).every)).seconds > 0
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
