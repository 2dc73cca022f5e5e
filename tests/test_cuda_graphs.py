"""Ended members may stay in a stack, and a population frees its memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import autotransfer as at
from autotransfer.training.cuda_graphs import GraphFunction, allow_tf32
from autotransfer.training.train import train_population
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows
from tiny import tiny


def population(settings: list[at.Setting]) -> Trainer:
    recordings = tiny()
    fold = at.leave_one_subject_out(recordings)[0]
    jobs = [at.Job(setting, fold) for setting in settings]
    windows = prepare_windows(recordings, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    return Trainer(jobs, windows)


def test_members_that_are_over_may_stay_idle() -> None:
    """On a GPU a stack is not rebuilt for every member that ends: the idle ones change nothing for the others."""
    settings = [at.Setting(max_epochs=2 if i == 3 else 5, lr=1e-3 * (1 + i), batch_size=16) for i in range(10)]
    expected = {outcome.job.setting.lr: outcome for outcome in train_population(population(settings))}
    stack = population(settings)
    held: list[int] = []
    call = stack.train_on_next_batch.call

    class Held(GraphFunction):
        def __call__(self) -> None:
            held.append(len(stack.jobs))
            call()

    stack.train_on_next_batch = Held(call, uses_graph=True)
    found = {}
    for outcome in train_population(stack):
        found[outcome.job.setting.lr] = outcome
        assert outcome.epochs == outcome.job.setting.max_epochs
    assert set(held) == {10}, "the stack was rebuilt although most of it goes on"
    assert found.keys() == expected.keys()
    for lr, outcome in expected.items():
        assert outcome.history == found[lr].history
        for name, tensor in outcome.state.items():
            assert torch.equal(tensor, found[lr].state[name])


def test_precision_is_put_back() -> None:
    before = torch.backends.cuda.matmul.allow_tf32

    def stop() -> None:
        with allow_tf32(torch.device("cuda")):
            assert torch.backends.cuda.matmul.allow_tf32
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stop()
    assert torch.backends.cuda.matmul.allow_tf32 == before
    with allow_tf32(torch.device("cpu")):
        assert torch.backends.cuda.matmul.allow_tf32 == before


def test_a_population_goes_with_its_last_reference() -> None:
    """Without waiting for the collector: on a GPU it holds memory and captured graphs."""
    gc.collect()
    gc.disable()
    try:
        stack = population([at.Setting(method="mmd", max_epochs=1, batch_size=8)])
        stack.train_epoch()
        stack.evaluate()
        gone = weakref.ref(stack)
        del stack
        assert gone() is None
    finally:
        gc.enable()
