"""python -m benchmarks.larger_than_memory --trials 1000000: memory of a training whose recordings need not fit into it.

Windows of noise with a shift for each subject and a signal for each class are written as .npy files into a folder (16
KiB a trial). Another process trains one job on one fold for one epoch and is watched from outside. Its memory is
RssAnon, which nobody but the process can give back; pages of the file that it has read (RssFile) are the system's to
drop.
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


def train(folder: Path) -> None:
    """Train for one epoch, in the process that is watched, then print what it took as one line of JSON."""
    import torch

    import autotransfer as at
    from autotransfer.training import trainer  # noqa: F401  imported later it would count as growth

    torch.set_num_threads(1)
    before, start = memory("self"), time.perf_counter()
    recordings = at.load(folder)
    job = at.Job(at.Setting(max_epochs=1), at.leave_one_subject_out(recordings)[0])
    score = at.train(recordings, [job], "cpu")[0].test_score
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


def watch(folder: Path) -> dict[str, float]:
    """What the training prints, and the largest memory that it was seen to hold."""
    command = [sys.executable, "-m", "benchmarks.larger_than_memory", "--train", str(folder)]
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
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name) / "study"
        write_folder(folder, options.trials)
        size = (folder / "X.npy").stat().st_size
        print(f"{options.trials:,} trials, {size / 1e9:.2f} GB", flush=True)
        for what, value in watch(folder).items():
            print(f"{what:>22}: {value:,.3f}")


if __name__ == "__main__":
    main()
