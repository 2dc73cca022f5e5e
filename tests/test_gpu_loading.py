"""Triton kernels are launched one at a time, and steps work without them; no GPU is needed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.steps import make_jobs, make_noise

import autotransfer as at
from autotransfer import gpu
from autotransfer.gpu import loading
from autotransfer.training import trainer as trainer_module
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import prepare_windows


def test_of_two_threads_one_launches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to Triton 3.6 a thread that launches while another one loads a launcher may launch the wrong kernel."""
    present: list[int] = []

    class Kernel:
        arg_names = ("n",)

        def __getitem__(self, grid: object) -> Any:
            return self.launch

        def launch(self, n: int) -> None:
            present.append(n)
            time.sleep(0.002)
            assert present == [n]
            present.remove(n)

    monkeypatch.setattr(loading, "_import_kernels", lambda name: SimpleNamespace(add=Kernel()))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: loading.load_kernels("kernels").add[(1,)](n), range(16)))


def test_what_one_thread_wants_of_kernels_is_not_what_another_wants() -> None:
    with gpu.use_kernels(enabled=True), ThreadPoolExecutor(1) as elsewhere:
        assert gpu._enabled.get()
        assert not elsewhere.submit(gpu._enabled.get).result()
    assert not gpu._enabled.get()


def test_a_backward_pass_knows_what_the_thread_wants() -> None:
    seen = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(gpu._enabled.get())
            return grad

    with gpu.use_kernels(enabled=True):
        Look.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert seen == [True]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("method", [None, "adversary"])
def test_a_step_that_tries_kernels_leaves_a_population_as_it_was(
    monkeypatch: pytest.MonkeyPatch, method: str | None, fails: bool
) -> None:
    """If a kernel cannot be compiled or launched, the plain path serves, with a warning."""
    rec = make_noise(3, 32, 8, subjects=4, classes=2, steps=2)
    setting = at.Setting(method=method, batch_size=8, temporal_filters=2, latent_filters=3)
    jobs = make_jobs(rec, setting, 3, alone=False)
    monkeypatch.setattr(trainer_module, "_kernels_work", {})
    step = Trainer._train_on_batch

    def broken(self: Trainer, rows: Any, x: Any) -> None:
        step(self, rows, x)
        if fails and gpu._enabled.get():
            raise TypeError("function takes exactly 17 arguments (27 given)")

    def trained(*, kernels: bool) -> Trainer:
        population = Trainer(jobs, prepare_windows(rec, jobs[0], device=torch.device("cpu"), dtype=torch.float32))
        population.uses_kernels = population.train_on_next_batch.uses_graph = kernels
        monkeypatch.setattr(population.train_on_next_batch, "_run_on_side_stream", population.train_on_next_batch.call)
        monkeypatch.setattr(population.train_on_next_batch, "_capture", population.train_on_next_batch.call)
        population.train_epoch()
        return population

    plain = trained(kernels=False)
    monkeypatch.setattr(Trainer, "_train_on_batch", broken)
    if fails:
        with pytest.warns(UserWarning, match="without Triton kernels"):
            mended = trained(kernels=True)
    else:
        mended = trained(kernels=True)
    assert mended.uses_kernels != fails
    assert list(trainer_module._kernels_work.values()) == [not fails]
    assert torch.equal(plain.losses, mended.losses)
    for name, tensor in plain.state().items():
        torch.testing.assert_close(mended.state()[name], tensor, rtol=0, atol=0, equal_nan=True)
