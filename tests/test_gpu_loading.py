"""Precompiled kernels: everything is compiled once, nothing is run, and no trace is left."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.steps import noise, spread_jobs

import autotransfer as at
from autotransfer import gpu
from autotransfer.gpu import loading
from autotransfer.training import trainer as trainer_module
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import windows_for

CPU = torch.device("cpu")


class Kernel:
    """As Triton's are launched and compiled."""

    arg_names = ("x", "y", "n", "TILE")

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


def test_precompiling_compiles_each_kind_of_launch_once_and_runs_none(kernel: Kernel) -> None:
    x = torch.ones(64)
    with loading.precompiling(CPU) as precompiled:
        add = loading.loaded("kernels").add
        for _ in range(3):
            add[(4,)](x, x, 32, TILE=16)
        add[(9,)](x + 1, x, 64, TILE=16)  # other numbers, the same program
        add[(4,)](x, x, 32, TILE=32)
        add[(4,)](x, x, 33, TILE=16)
        add[(4,)](x, x[1:], 32, TILE=16)  # an address that is no multiple of 16
        add[(4,)](x.double(), x, 32, TILE=16)
        assert precompiled.failure() is None
        loading.loaded("kernels").wrong[(1,)](x)
    assert "no such instruction" in str(precompiled.failure())
    assert len(kernel.compiled) == 5
    assert kernel.launched == 0
    loading.loaded("kernels").add[(4,)](x, x, 32, TILE=16)
    assert (kernel.launched, len(kernel.compiled)) == (1, 5)


def test_another_thread_launches_while_this_one_precompiles(kernel: Kernel) -> None:
    x = torch.ones(64)
    with loading.precompiling(CPU), ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(lambda: loading.loaded("kernels").add[(4,)](x, x, 32, TILE=16)).result()
    assert (kernel.launched, kernel.compiled) == (1, [])


LAUNCHER = """
#include <Python.h>
static PyObject *launch(PyObject *self, PyObject *nothing) { return PyLong_FromLong(NUMBER); }
static PyMethodDef methods[] = {{"launch", launch, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "launcher", NULL, -1, methods};
PyMODINIT_FUNC PyInit_launcher(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two modules of one name, as Triton up to 3.6 makes one for each signature of kernels; each tells its number."""
    include = Path(sysconfig.get_paths()["include"])
    if shutil.which("cc") is None or not (include / "Python.h").exists():
        pytest.skip("needs a C compiler and Python's headers")
    folder = tmp_path_factory.mktemp("launchers")
    (folder / "launcher.c").write_text(LAUNCHER)
    paths = [folder / f"{number}.so" for number in range(2)]
    for number, path in enumerate(paths):
        command = ["cc", "-shared", "-fPIC", f"-I{include}", f"-DNUMBER={number}", "-o", path, folder / "launcher.c"]
        subprocess.run(command, check=True, capture_output=True)
    return paths


class Launched:
    """A kernel that has been compiled: `run` loads what launches it, as Triton up to 3.6 does. It must be its own."""

    arg_names = ()

    def __init__(self, paths: list[Path], number: int) -> None:
        self.path, self.number, self.wrong = paths[number], number, 0

    def warmup(self, *, grid: object) -> Launched:
        return self

    def __getitem__(self, grid: object) -> Any:
        return lambda: self.run

    @property
    def run(self) -> None:
        spec = importlib.util.spec_from_file_location("launcher", self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        time.sleep(0.002)  # another thread is let in
        self.wrong += module.launch() != self.number


@pytest.mark.parametrize("first", ["compiled", "launched"])
def test_kernels_loaded_side_by_side_keep_their_own_launchers(
    launchers: list[Path], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Python puts what a module of one phase held when it was first loaded into whichever module has its name now: one
    that another thread has just loaded launches the wrong kernel."""

    def wrong() -> int:
        kernels = [Launched(launchers, n % 2) for n in range(64)]
        with ThreadPoolExecutor(8) as threads:
            for n, kernel in enumerate(kernels):
                if n % 2 and first == "launched":
                    threads.submit(loading._Kernel("kernel", kernel)[(1,)])
                else:
                    threads.submit(loading._compile, kernel, (1,), (), {})
        return sum(kernel.wrong for kernel in kernels)

    assert wrong() == 0
    monkeypatch.setattr(loading, "_loading", contextlib.nullcontext())
    assert wrong() > 0, "the fault that the lock prevents"


def test_what_one_thread_wants_of_kernels_is_not_what_another_wants() -> None:
    with gpu.using_kernels(wanted=True), ThreadPoolExecutor(1) as elsewhere:
        assert gpu._wanted.get()
        assert not elsewhere.submit(gpu._wanted.get).result()
    assert not gpu._wanted.get()


def test_a_backward_pass_knows_what_the_thread_wants() -> None:
    seen = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(gpu._wanted.get())
            return grad

    with gpu.using_kernels(wanted=True):
        Look.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert seen == [True]


@pytest.mark.parametrize("fails", ["compiled", "launched"])
def test_a_kernel_that_cannot_be_used_leaves_the_plain_path_with_a_line(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    rec = noise(3, 32, 8, subjects=4, classes=2, steps=2)
    jobs = spread_jobs(rec, at.Setting(batch_size=8, temporal_filters=2, latent_filters=3), 3, alone=False)
    monkeypatch.setattr(trainer_module, "_precompiled", {})
    step, taken = Trainer._step, []

    def broken(self: Trainer, rows: Any, x: Any) -> None:
        taken.append(rows)
        compiling = loading._precompiling.get()
        if compiling is not None and fails == "compiled":
            compiling.launch(Kernel(broken=True), (1,), torch.ones(3))
        if compiling is None and gpu._wanted.get() and fails == "launched":
            raise TypeError("function takes exactly 17 arguments (27 given)")
        step(self, rows, x)

    def trained(*, kernels: bool) -> Trainer:
        population = Trainer(jobs, windows_for(rec, jobs[0], device=CPU, dtype=torch.float32))
        population.kernels = kernels
        population.step.captured = kernels
        monkeypatch.setattr(population.step, "_beside", population.step.work)
        monkeypatch.setattr(population.step, "_capture", population.step.work)
        population.train_epoch()
        return population

    plain = trained(kernels=False)
    monkeypatch.setattr(Trainer, "_step", broken)
    with pytest.warns(UserWarning, match="kernels are not used: (no such instruction|function takes)"):
        mended = trained(kernels=True)
    assert not mended.kernels
    assert list(trainer_module._precompiled.values()) == [False]
    assert torch.equal(plain.losses, mended.losses)
    assert torch.equal(plain.flat.values, mended.flat.values)


@pytest.mark.parametrize("method", [None, "adversary"])
def test_precompiling_leaves_a_population_as_it_was(monkeypatch: pytest.MonkeyPatch, method: str | None) -> None:
    rec = noise(3, 32, 8, subjects=4, classes=2, steps=2)
    setting = at.Setting(method=method, batch_size=8, temporal_filters=2, latent_filters=3)
    jobs = spread_jobs(rec, setting, 3, alone=False)
    monkeypatch.setattr(trainer_module, "_precompiled", {})

    def trained(*, precompiled: bool) -> Trainer:
        windows = windows_for(rec, jobs[0], device=CPU, dtype=torch.float32)
        population = Trainer(jobs, windows)
        population.train_epoch()
        if precompiled:
            before = len(trainer_module._precompiled)
            population.tick.zero_()  # as at the beginning of an epoch
            for _ in range(2):
                assert population._precompile(population.groups.plan(2))
            assert len(trainer_module._precompiled) == before + 1
        population.train_epoch()
        return population

    plain, precompiled = trained(precompiled=False), trained(precompiled=True)
    assert torch.equal(plain.losses, precompiled.losses)
    for name, tensor in plain.state().items():
        torch.testing.assert_close(precompiled.state()[name], tensor, rtol=0, atol=0, equal_nan=True)
