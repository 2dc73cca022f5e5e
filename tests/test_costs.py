"""What a run is said to cost against what it costs."""

from __future__ import annotations

import time

import pytest

import autotransfer as at
from autotransfer.runs.preparation import Preparation
from autotransfer.search.costs import Costs
from tiny import described, tiny


def test_the_estimate_is_of_stacks_as_they_will_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of a stack costs a fraction of one alone. In time of the processor, which others disturb little."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    recordings = tiny(n_subjects=8)
    options = described(source="tiny", max_epochs=40, batch_size=8, device="cpu", grid="uncensored", adaptation="none")
    (setting,) = options.settings()
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(recordings)]
    expected = len(jobs) * Costs.measure(Preparation(options, recordings), [setting]).training(setting, 2)
    start = time.process_time()
    at.train(recordings, jobs, "cpu", progress=False)
    spent = time.process_time() - start
    assert 0.4 * spent < expected < 2.5 * spent  # eight alone take about five times as long
