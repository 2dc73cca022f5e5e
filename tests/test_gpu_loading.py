"""Rehearsals of kernels: everything is compiled once, nothing is run, and no trace is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.steps import noise, spread_jobs

import autotransfer as at
from autotransfer.gpu import loading
from autotransfer.training import trainer as trainer_module
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import windows_for

CPU = torch.device("cpu")


class Kernel:
    """As Triton's are launched and compiled."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.compiled: list[tuple[Any, ...]] = []
        self.launched = 0
        self.run = "what launches it"

    def warmup(self, *arguments: object, grid: tuple[int, ...], **options: object) -> Kernel:
        if self.broken:
            raise RuntimeError("no such instruction")
        self.compiled.append((*arguments, options))
        return self

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*_: object, **__: object) -> None:
            self.launched += 1

        return launch


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    own = Kernel()
    monkeypatch.setattr(loading, "_file", lambda name: SimpleNamespace(add=own, wrong=Kernel(broken=True)))
    return own


def test_a_rehearsal_compiles_each_kind_of_launch_once_and_runs_none(kernel: Kernel) -> None:
    x = torch.ones(64)
    with loading.rehearsing(CPU):
        add = loading.loaded("kernels").add
        for _ in range(3):
            add[(4,)](x, x, 32, TILE=16)
        add[(9,)](x + 1, x, 64, TILE=16)  # other numbers, the same program
        add[(4,)](x, x, 32, TILE=32)
        add[(4,)](x, x, 33, TILE=16)
        add[(4,)](x, x[1:], 32, TILE=16)  # an address that is no multiple of 16
        add[(4,)](x.double(), x, 32, TILE=16)
        loading.loaded("kernels").wrong[(1,)](x)
    assert len(kernel.compiled) == 5
    assert kernel.launched == 0
    loading.loaded("kernels").add[(4,)](x, x, 32, TILE=16)
    assert (kernel.launched, len(kernel.compiled)) == (1, 5)


@pytest.mark.parametrize("method", [None, "adversary"])
def test_a_rehearsal_leaves_a_population_as_it_was(monkeypatch: pytest.MonkeyPatch, method: str | None) -> None:
    rec = noise(3, 32, 8, subjects=4, classes=2, steps=2)
    setting = at.Setting(method=method, batch_size=8, temporal_filters=2, latent_filters=3)
    jobs = spread_jobs(rec, setting, 3, alone=False)
    monkeypatch.setattr(trainer_module, "_rehearsed", set())

    def trained(*, rehearsed: bool) -> Trainer:
        windows = windows_for(rec, jobs[0], device=CPU, dtype=torch.float32)
        population = Trainer(rec, jobs, windows, torch.float32)
        population.train_epoch()
        if rehearsed:
            before = len(trainer_module._rehearsed)
            population.tick.zero_()  # as at the beginning of an epoch
            for _ in range(2):
                population._rehearse(population.groups.plan(2))
            assert len(trainer_module._rehearsed) == before + 1
        population.train_epoch()
        return population

    plain, rehearsed = trained(rehearsed=False), trained(rehearsed=True)
    assert torch.equal(plain.losses, rehearsed.losses)
    for name, tensor in plain.state().items():
        torch.testing.assert_close(rehearsed.state()[name], tensor, rtol=0, atol=0, equal_nan=True)
