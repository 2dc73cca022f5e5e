"""python -m benchmarks.larger_than_memory --trials 1000000: memory of a training whose recordings need not fit into it.

Windows of noise with a shift for each subject and a signal for each class are written as .npy files into a folder (16
KiB a trial). Another process trains one job on one fold for one epoch and is watched from outside. Its memory is
RssAnon, which nobody but the process can give back; pages of the file that it has read (RssFile) are the system's to
drop. With --pretrain there are two such folders, and the process trains one network of a base on both, as on a machine
with 256 MiB of free memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

SUBJECTS, CLASSES, CHANNELS, TIMES = 20, 4, 16, 256
ROWS = 4096  # written at a time: 64 MiB
WATCHED = ("RssAnon", "RssFile")
FREE = 2**28  # bytes, with --pretrain
POLL = 0.05  # seconds between two looks at the process


def write_folder(folder: Path, trials: int, seed: int = 0) -> None:
    """X.npy (trials, 16, 256) float32, y.npy, subject.npy, meta.json; people come one after the other."""
    folder.mkdir()
    draw = np.random.default_rng(seed)
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


def train(folders: list[Path]) -> None:
    """In the process that is watched: train for one epoch, or a base of several studies, then print what it took as one
    line of JSON."""
    import torch

    import autotransfer as at
    from autotransfer.training import packing, trainer  # noqa: F401  imported later it would count as growth

    torch.set_num_threads(1)
    before, start = memory("self"), time.perf_counter()
    if len(folders) == 1:
        recordings = at.load(folders[0])
        job = at.Job(at.Setting(max_epochs=1), at.leave_one_subject_out(recordings)[0])
        score = at.train(recordings, [job], "cpu")[0].test_score
    else:
        packing.free_memory = lambda device: FREE
        with tempfile.TemporaryDirectory(dir=folders[0].parent) as out:
            base = at.pretrain(at.Studies(folders), out, members=1, epochs=1, device="cpu", progress=False)
        score = sum(study["score"] for study in base.card.studies) / len(folders)
    seconds = round(time.perf_counter() - start, 1)
    print(json.dumps({"before_MiB": before["RssAnon"], "seconds": seconds, "test_score": score}))


def memory(process: int | str) -> dict[str, float]:
    """MiB by name, of those in WATCHED; empty if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    values = dict(line.split(":", 1) for line in lines)
    return {name: int(values[name].split()[0]) / 1024 for name in WATCHED if name in values}


def watch(folders: list[Path]) -> dict[str, float]:
    """What the training prints, and the largest memory that it was seen to hold."""
    command = [sys.executable, "-m", "benchmarks.larger_than_memory", "--train", *map(str, folders)]
    most = dict.fromkeys(WATCHED, 0.0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            for name, value in memory(process.pid).items():
                most[name] = max(most[name], value)
            time.sleep(POLL)
        assert process.stdout is not None
        printed = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the training ended with {process.returncode}")
    measured: dict[str, float] = json.loads(printed.splitlines()[-1])
    grown = most["RssAnon"] - measured["before_MiB"]
    return {**measured, "grown_MiB": grown, "pages_of_the_file_MiB": most["RssFile"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument(
        "--folder", type=Path, help="where there is room for them; default: the system's for such files"
    )
    parser.add_argument("--pretrain", action="store_true", help="a base of two studies, each of half the trials")
    parser.add_argument("--train", type=Path, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folders = [Path(name) / f"study {number}" for number in range(1 + options.pretrain)]
        for seed, folder in enumerate(folders):
            write_folder(folder, options.trials // len(folders), seed)
        size = sum((folder / "X.npy").stat().st_size for folder in folders)
        print(f"{options.trials:,} trials, {size / 1e9:.2f} GB", flush=True)
        for what, value in watch(folders).items():
            print(f"{what:>22}: {value:,.3f}")


if __name__ == "__main__":
    main()
