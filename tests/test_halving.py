"""Successive halving in stage one: who gives up, when, and that a run goes through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import autotransfer as at
from autotransfer.runs import pruning
from autotransfer.runs.options import RunOptions
from autotransfer.runs.pruning import Pruning
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct
from autotransfer.training.evaluation import MEASURED
from tiny import tiny_file


def test_cuts_come_when_the_epochs_have_doubled() -> None:
    halving, once = Pruning(3, by_method=True), Pruning(3, by_method=False)
    assert [epoch for epoch in range(1, 30) if halving.due(epoch)] == [3, 6, 12, 24]
    assert [epoch for epoch in range(1, 30) if once.due(epoch)] == [3]
    assert not any(Pruning(None, by_method=True).due(epoch) for epoch in range(30))


def population(
    scores: list[float], methods: list[str | None], over: set[int], schedules: list[str] | None = None
) -> SimpleNamespace:
    """Members with these validation scores in the present epoch, on side 1; side 0 says the opposite."""
    history = torch.zeros(len(scores), 1, len(MEASURED))
    history[:, 0, MEASURED.index("score_1")] = torch.tensor(scores)
    history[:, 0, MEASURED.index("score_0")] = -torch.tensor(scores)
    ways = schedules or ["inverse_sqrt"] * len(methods)
    settings = [at.Setting(method=method, schedule=way) for method, way in zip(methods, ways, strict=True)]
    jobs = [SimpleNamespace(setting=setting) for setting in settings]
    return SimpleNamespace(
        jobs=jobs, over=over, epoch=1, side=lambda member: 1, snapshots=SimpleNamespace(history=history)
    )


def test_the_worse_half_of_every_method_gives_up_but_three_stay() -> None:
    methods: list[str | None] = [None] + ["mmd"] * 8 + ["began"] * 4
    scores = [0.0, 0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4, 0.1, 0.4, 0.2, 0.3]
    keys = [f"{member:02d}" for member in range(13)]
    stack = population(scores, methods, over=set())
    assert sorted(Pruning(1, by_method=True).losers(stack, keys)) == ["02", "04", "06", "08", "09"]
    assert sorted(Pruning(1, by_method=False).losers(stack, keys)) == ["02", "04", "06", "09", "11", "12"]
    stack = population(scores, methods, over={2, 4, 6, 8, 9})
    assert sorted(Pruning(1, by_method=True).losers(stack, keys)) == ["07"]


def test_ways_of_training_do_not_crowd_each_other_out() -> None:
    """A rate that does not fall is ahead early on, whoever wins in the end: all four losers would be of the other."""
    scores = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]
    ways = ["inverse_sqrt"] * 4 + ["constant"] * 4
    stack = population(scores, ["mmd"] * 8, over=set(), schedules=ways)
    assert sorted(Pruning(1, by_method=True).losers(stack, [str(member) for member in range(8)])) == ["0", "4"]


def test_a_run_with_halving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who gave up trained for less, are no candidates, and the choice is among the others."""
    monkeypatch.setattr(pruning, "STAY", 1)
    options = RunOptions(source=str(tiny_file(tmp_path)), search="halving", epochs=8, batch_size=16, device="cpu")
    run = Run.create(tmp_path / "run", options)
    choice = conduct(run, lambda *_: None, shown=False)
    searched = run.ledger.entries("search")
    pruned = [entry for entry in searched if entry.record.pruned]
    assert {entry.record.epochs for entry in pruned} <= {1, 2, 4}
    # of every method's settings half give up, one at least stays
    counts = Counter(setting.method for setting in at.grid("quick") if setting.penalty is not None)
    assert len(pruned) == sum(count - max(1, count // 2) for count in counts.values()) > 3
    assert not {entry.setting for entry in pruned} & {named.setting for named in choice.shortlist}
    assert len(choice.shortlist) == len(at.grid("quick")) - len(pruned)
