"""Windows read by minibatch equal windows in memory, and take as little memory as stated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.preprocessing import Preprocessing
from autotransfer.training import packing
from autotransfer.training.prepared import PreparedWindows
from autotransfer.training.windows import Windows
from tiny import save_folder, tiny

CPU = torch.device("cpu")


def from_file(recordings: at.Recordings, standardize: str) -> PreparedWindows:
    """What is gathered is compared with windows in memory in test_preprocessing_contract.py."""
    way = Preprocessing.from_values({"standardize": standardize})
    windows = Windows(recordings, way, 5, device=CPU, dtype=torch.float32, in_memory=False)
    return PreparedWindows(windows, [np.arange(20), np.arange(24)], [np.arange(0)] * 2)


def test_batches_come_in_the_order_of_the_plan() -> None:
    recordings = tiny()
    prepared = from_file(recordings, "train")
    plan = torch.randint(0, recordings.n_windows, (6, 2, 4))
    seen = list(prepared.batches(plan))
    assert torch.equal(torch.stack([rows for rows, _ in seen]), plan)
    for rows, x in seen:
        torch.testing.assert_close(x, prepared.gather(rows))


def test_a_batch_stays_what_it_is_while_others_are_read() -> None:
    """One channel as it was recorded: nothing is computed or moved, so the buffer itself would do, and must not."""
    recordings = tiny()
    single = at.Recordings(recordings.X[:, :1].contiguous(), recordings.y, recordings.subject)
    for rows, x in list(from_file(single, "none").batches(torch.randint(0, single.n_windows, (6, 2, 4)))):
        assert torch.equal(x, single.X[rows])


def test_training_from_a_folder_gives_the_same_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = tiny()
    save_folder(tmp_path / "folder", recordings)
    setting = at.Setting(method="mmd", standardize="train", max_epochs=3, batch_size=16)
    jobs = [at.Job(setting, fold) for fold in at.leave_one_subject_out(recordings)[:2]]
    held = at.train(recordings, jobs, "cpu", dtype=torch.float64)
    monkeypatch.setattr(packing, "free_values_per_window", lambda *_: -1.0)
    read = at.train(at.load(tmp_path / "folder"), jobs, "cpu", dtype=torch.float64)
    for first, second in zip(held, read, strict=True):
        assert first.best_epoch == second.best_epoch
        for name, tensor in first.state.items():
            torch.testing.assert_close(tensor, second.state[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """256 MiB of windows are trained on with far less of the process's own memory."""
    code = """
import sys, numpy as np, torch, autotransfer as at
from pathlib import Path
from autotransfer.training import packing, windows as t
from autotransfer.training.prepared import PreparedWindows
from autotransfer.preprocessing import Preprocessing
folder = Path(sys.argv[1]); n = 65536
X = np.lib.format.open_memmap(folder / 'X.npy', mode='w+', dtype=np.float32, shape=(n, 8, 128))
g = np.random.default_rng(0)
for i in range(0, n, 4096): X[i : i + 4096] = g.standard_normal((4096, 8, 128), dtype=np.float32)
X.flush(); del X
np.save(folder / 'y.npy', np.arange(n) % 2); np.save(folder / 'subject.npy', np.arange(n) // (n // 4))
packing.free_values_per_window = lambda *_: -1.0
torch.set_num_threads(1)
def own(): return int(next(l for l in open('/proc/self/status') if l.startswith('RssAnon')).split()[1]) // 1024
rec = at.load(folder)
fold = at.leave_one_subject_out(rec)[0]
fold = type(fold)(fold.train[:2048], fold.validation[:256], fold.test[:256], 'a', 'b')
before, seen = own(), []
read = PreparedWindows._read
PreparedWindows._read = lambda self, *rest: (seen.append(own()), read(self, *rest))[1]
at.train(rec, [at.Job(at.Setting(max_epochs=1), fold)], 'cpu')
print(max(seen) - before)
way = Preprocessing.from_values({'standardize': 'trial'})
windows = t.Windows(rec, way, 0, device=torch.device('cpu'), dtype=torch.float32, in_memory=False)
prepared = PreparedWindows(windows, [fold.train], [fold.test])
before, seen = own(), []
for rows, x in prepared.batches(torch.randint(0, n, (400, 1, 512))): seen.append(own())
print(max(seen) - before)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    training, reading = map(int, done.stdout.split())
    assert training < 128
    assert reading < 40, "batches of 2 MiB pile up"
