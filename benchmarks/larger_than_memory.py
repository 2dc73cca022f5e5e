"""Training from a folder of .npy files that need not fit into memory: seconds per step, and the process's own memory.

`python -m benchmarks.larger_than_memory --trials 1000000 --folder FOLDER` writes windows of noise with a shift for
each subject and a signal for each class into FOLDER (16 KiB a trial), trains one job on one fold for one epoch in a
process of its own, and watches that process from outside. Memory is RssAnon, which nobody but the process can give
back; pages of the file that it has looked at (RssFile) are the system's to drop and are counted apart.

--ways memory stream --rounds 3 compares the two ways to hold windows, interleaved. --cold drops the file from the
system's cache before training, so that every window comes from the disk, as with a file larger than memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from rich.console import Console
from rich.table import Table

SUBJECTS, CLASSES, CHANNELS, TIMES = 20, 4, 16, 256
ROWS = 4096  # written at a time: 64 MiB
WATCHED = ("RssAnon", "RssFile", "VmHWM")
POLL = 0.05  # seconds between two looks at the process
SHOWN = (
    "load_s", "prepare_s", "ms_per_step", "cpu_ms_per_step", "train_s", "evaluate_s", "own_growth_MiB", "RssFile_MiB",
    "VmHWM_MiB",
)  # fmt: skip


def write_folder(folder: Path, trials: int) -> None:
    """X.npy (trials, 16, 256) float32, y.npy, subject.npy, meta.json; people come one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    y, subject = np.arange(trials) % CLASSES, np.arange(trials) * SUBJECTS // trials
    times = np.arange(TIMES, dtype=np.float32)
    signal = np.stack([np.sin(times * (k + 1) / 10) for k in range(CLASSES)])  # (classes, times)
    shift = draw.standard_normal((SUBJECTS, CHANNELS, 1), dtype=np.float32)
    X = open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(trials, CHANNELS, TIMES))
    for start in range(0, trials, ROWS):
        rows = slice(start, min(start + ROWS, trials))
        x = draw.random((rows.stop - start, CHANNELS, TIMES), dtype=np.float32)
        x += shift[subject[rows]]
        x[:, :4] += 0.1 * signal[y[rows], None]
        X[rows] = x
        if start // ROWS % 16 == 15:
            X.flush()  # else all of it waits in memory for the disk
    X.flush()
    np.save(folder / "y.npy", y)
    np.save(folder / "subject.npy", subject)
    (folder / "meta.json").write_text(json.dumps({"sfreq": 128, "name": "noise"}))


# the process that is watched


def child(folder: Path, way: str, steps: int | None, cold: bool) -> None:
    """Load, train one job for one epoch, say the times as one line of JSON."""
    import torch

    import autotransfer as at

    packing: Any = import_module("autotransfer.training.packing")  # to put another `fits` there
    from autotransfer.training.trainer import Trainer

    torch.set_num_threads(1)
    began, start = _status("self"), time.perf_counter()
    recordings = at.load(folder)
    said: dict[str, Any] = {"began_MiB": began["RssAnon"], "load_s": time.perf_counter() - start}
    said["fits"] = packing.fits(recordings, torch.device("cpu"), torch.float32)
    if way != "auto":
        packing.fits = lambda *_: way == "memory"
    fold = at.leave_one_subject_out(recordings)[0]
    setting = at.Setting(max_epochs=1)
    said["fraction_of_epoch"] = 1.0
    if steps is not None:
        rows = np.random.default_rng(0).permutation(fold.train)[: steps * setting.training.batch_size]
        said["fraction_of_epoch"] = len(rows) / len(fold.train)
        fold = type(fold)(np.sort(rows), fold.validation, fold.test, fold.validation_subject, fold.test_subject)

    for name in ("train_epoch", "evaluate"):
        _timed(Trainer, name, said)
    if cold:
        _drop(recordings.X, folder / "X.npy")
    start = time.perf_counter()
    (outcome,) = at.train(recordings, [at.Job(setting, fold)], "cpu")
    said["train_s"], said["train_cpu_s"] = said.pop("train_epoch_s"), said.pop("train_epoch_cpu_s")
    said["prepare_s"] = time.perf_counter() - start - said["train_s"] - said["evaluate_s"]
    said["steps"] = len(fold.train) // setting.training.batch_size
    said["ms_per_step"] = 1e3 * said["train_s"] / said["steps"]
    said["cpu_ms_per_step"] = 1e3 * said["train_cpu_s"] / said["steps"]  # tells on a busy machine too
    said |= {"evaluated": len(fold.validation) + len(fold.test), "test_score": outcome.test_score}
    said |= {"torch": torch.__version__}
    print(json.dumps(said))


def _timed(owner: type, name: str, said: dict[str, Any]) -> None:
    """Let a method note how long it took, `name`_s, and how much of a processor, `name`_cpu_s."""
    real = getattr(owner, name)

    def method(self: object) -> None:
        start, worked = time.perf_counter(), time.process_time()
        real(self)
        said[f"{name}_s"] = time.perf_counter() - start
        said[f"{name}_cpu_s"] = time.process_time() - worked

    setattr(owner, name, method)


def _drop(X: Any, path: Path) -> None:
    """Take the file's pages from this process and from the system's cache."""
    import ctypes
    import mmap

    start = X.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    length = X.data_ptr() + X.numel() * X.element_size() - start
    call = ctypes.CDLL(None, use_errno=True).madvise
    if call(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), "madvise")
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# the process that watches


def _status(process: int | str) -> dict[str, float]:
    """MiB by name, of those in WATCHED; empty if the process has ended."""
    try:
        with open(f"/proc/{process}/status") as lines:
            pairs = [line.split()[:2] for line in lines]
    except OSError:
        return {}
    return {name[:-1]: int(value) / 1024 for name, value in (p for p in pairs if len(p) == 2) if name[:-1] in WATCHED}


def watch(folder: Path, way: str, steps: int | None, cold: bool) -> dict[str, Any]:
    """One training in a process of its own: what it says, and the largest of what it was seen to hold."""
    command = [sys.executable, "-m", "benchmarks.larger_than_memory", "--child", "--folder", str(folder), "--ways", way]
    command += ["--cold"] * cold + (["--steps", str(steps)] if steps is not None else [])
    most = dict.fromkeys(WATCHED, 0.0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for name, value in _status(process.pid).items():
                most[name] = max(most[name], value)
            time.sleep(POLL)
        assert process.stdout is not None
        text = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the training ended with {process.returncode}")
    said: dict[str, Any] = json.loads(text.splitlines()[-1])
    seen = {f"{name}_MiB": value for name, value in most.items()}
    return {"way": way, **said, **seen, "own_growth_MiB": most["RssAnon"] - said["began_MiB"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, required=True, help="made here and removed afterwards")
    parser.add_argument("--ways", nargs="+", choices=("auto", "memory", "stream"), default=["auto"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, help="train on so many batches instead of the whole epoch")
    parser.add_argument("--cold", action="store_true", help="drop the file from the cache before training")
    parser.add_argument("--keep", action="store_true", help="use FOLDER if it is there, and leave it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.folder, options.ways[0], options.steps, options.cold)
        return
    if options.folder.exists() and not options.keep:
        raise SystemExit(f"{options.folder} exists; choose another, or give --keep to use what is there")
    if not options.folder.exists():
        start = time.perf_counter()
        write_folder(options.folder, options.trials)
        print(f"{options.trials:,} trials written in {time.perf_counter() - start:.0f} s", flush=True)
    try:
        disk = (options.folder / "X.npy").stat().st_size / 1e9
        rounds = range(options.rounds)
        found = [watch(options.folder, way, options.steps, options.cold) for _ in rounds for way in options.ways]
    finally:
        if not options.keep:
            shutil.rmtree(options.folder)
    show(found, options.trials, disk, options.cold)


def show(found: list[dict[str, Any]], trials: int, disk: float, cold: bool) -> None:
    """A row a way: medians over the rounds, with the spread of the time per step. All of it goes to bench-results/."""
    table = Table("way", *(name.replace("_", " ") for name in SHOWN), title=f"{trials:,} trials, {disk:.2f} GB")
    for way in dict.fromkeys(one["way"] for one in found):
        own = [one for one in found if one["way"] == way]
        cells = [f"{statistics.median(one[name] for one in own):,.1f}" for name in SHOWN]
        for name in ("ms_per_step", "cpu_ms_per_step"):
            times = [one[name] for one in own]
            cells[SHOWN.index(name)] += f" ({min(times):.1f} to {max(times):.1f})"
        table.add_row(way, *cells)
    Console(width=160).print(table)
    print(f"{found[0]['steps']:,} steps a training, {found[0]['fraction_of_epoch']:.0%} of an epoch, cold: {cold}")
    folder = Path("bench-results")
    folder.mkdir(exist_ok=True)
    name = f"larger_than_memory-{trials}{'-cold' * cold}.json"
    (folder / name).write_text(json.dumps({"trials": trials, "disk_GB": disk, "cold": cold, "runs": found}, indent=1))


if __name__ == "__main__":
    main()
