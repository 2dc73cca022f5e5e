"""What a run is said to cost against what it costs."""

from __future__ import annotations

import re
import time

import pytest

import autotransfer as at
from autotransfer.runs.options import RunOptions
from autotransfer.search.costs import Costs
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
    assert expected == pytest.approx(time.process_time() - start, rel=0.5)


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
