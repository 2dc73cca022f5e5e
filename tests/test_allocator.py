"""A population reuses the memory of a step, and frees it when it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRAINED = """
import resource
import numpy as np
import autotransfer as at
import torch
from autotransfer.training.closed_form import make_population
from autotransfer.training.train import train_population
from autotransfer.training.windows import prepare_windows

torch.set_num_threads(1)
X = np.random.default_rng(0).standard_normal((3 * 256, 2, 512)).astype(np.float32)  # signals of 32 MiB
rec = at.Recordings(X, np.arange(768) % 2, np.arange(768) // 256, sfreq=16)
jobs = [at.Job(at.Setting(batch_size=256, max_epochs=6), at.leave_one_subject_out(rec)[0], seed) for seed in range(4)]
windows = prepare_windows(rec, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
faults = []
count = lambda _: faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
list(train_population(make_population(jobs, windows), after_epoch=count))
print(int(np.median(np.diff(faults))))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other allocators")
def test_training_has_no_page_faults_once_it_is_under_way() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "MIMALLOC"))}
    told = subprocess.run(
        [sys.executable, "-c", TRAINED], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert int(told) < 250  # in most epochs: pieces find their places in the first; one signal alone is 8,192 pages


def test_commands_let_waiting_threads_sleep_before_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runs on one machine would otherwise wait for each other's spinning."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    code = (
        "import os, sys, autotransfer.cli as cli\n"
        "loaded = 'torch' in sys.modules\n"
        "cli.app = lambda: print(loaded, os.environ.get('GOMP_SPINCOUNT'))\n"
        "cli.main()"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.split() == ["False", "10000"]
