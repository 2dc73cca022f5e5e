"""python -m benchmarks.soak_stream: `autotransfer stream` for ten minutes against a stream that loses samples.

A child process replays signals over the Lab Streaming Layer on this machine, drops bursts of samples and stamps some
late; another decodes them with the largest average that a run delivers. In the end every window must have been decoded
or reported as missed, and memory must not have grown.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from .latency import random_mixture

CHANNELS, TIMES, RATE, HOP = 8, 200, 200.0, 50
SETTLED = 60.0  # seconds after which memory is compared
CONFIG = """[multicast]
ResolveScope = machine
[lab]
KnownPeers = {127.0.0.1}
SessionID = autotransfer-soak
[ports]
IPv6 = disable
[log]
level = -3
"""


def soak(folder: Path, seconds: float, drops: float, jitter: float) -> dict[str, object]:
    random_mixture(CHANNELS, TIMES, RATE, "online").save(folder / "run" / "model")
    draw = np.random.default_rng(0)
    meta = json.dumps({"sfreq": RATE})
    np.savez(folder / "signal.npz", X=draw.standard_normal((1, CHANNELS, 60 * int(RATE))).astype(np.float32), meta=meta)
    (folder / "lsl.cfg").write_text(CONFIG)
    env = os.environ | {"LSLAPICFG": str(folder / "lsl.cfg"), "OMP_NUM_THREADS": "1"}
    replay = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.replay", str(folder / "signal.npz"), "soak", "--seconds", str(seconds),
         "--drop", str(drops), "--jitter", str(jitter)],
        env=env, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    decoding = subprocess.Popen(
        [sys.executable, "-m", "autotransfer", "stream", str(folder / "run"), "--source", "lsl:soak", "--by-position",
         "--out", str(folder / "out.csv"), "--hop", str(HOP / RATE), "--seconds", str(seconds + 5)],
        env=env, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    memory = watch(decoding, folder / "out.csv")
    printed = decoding.communicate()[1]
    sent = json.loads(replay.communicate()[0])
    return judged(folder / "out.csv", printed, sent) | grown(memory) | {"summary": printed.splitlines()[-1]}


def watch(process: subprocess.Popen[str], out: Path) -> list[tuple[float, float]]:
    """Seconds since the first decision, and MiB of memory."""
    seen: list[tuple[float, float]] = []
    begun = None
    while process.poll() is None:
        begun = time.monotonic() if begun is None and out.exists() else begun
        if begun is not None:
            try:
                seen.append((time.monotonic() - begun, psutil.Process(process.pid).memory_info().rss / 2**20))
            except psutil.NoSuchProcess:
                break
        time.sleep(1.0)
    return seen


def grown(memory: list[tuple[float, float]]) -> dict[str, object]:
    settled = [mib for second, mib in memory if second >= SETTLED] or [mib for _, mib in memory]
    tenth = max(1, len(settled) // 10)
    first, last = float(np.median(settled[:tenth])), float(np.median(settled[-tenth:]))
    return {"memory_mib": round(last, 1), "growth_mib": round(last - first, 2)}


def judged(out: Path, printed: str, sent: dict[str, Any]) -> dict[str, object]:
    """Windows by what was sent, against those that were decoded or reported."""
    samples, bursts = sent["samples"], sent["bursts"]
    usable = np.ones(samples, bool)
    for first, last in bursts:
        usable[first:last] = False
    starts = range(0, samples - TIMES + 1, HOP)
    whole = {k for k, start in enumerate(starts) if usable[start : start + TIMES].all()}
    with out.open() as file:
        decoded = {int(row["window"]) for row in csv.DictReader(file)}
    reported = int(re.search(r"([\d,]+) missed", printed).group(1).replace(",", ""))  # type: ignore[union-attr]  # it always says so
    return {
        "windows": len(starts),
        "decoded": len(decoded),
        "missed": reported,
        "decoded_with_a_hole": len(decoded - whole),
        "whole_but_not_decoded": len(whole - decoded),
        "unreported": len(starts) - len(decoded) - reported,
        "dropped_samples": sent["dropped"],
        "bursts": len(bursts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_stream", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--drop", type=float, default=6.0, help="bursts of lost samples a minute")
    parser.add_argument("--jitter", type=float, default=0.002, help="seconds that a chunk may be stamped late")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in soak(Path(folder), given.seconds, given.drop, given.jitter).items():
            print(f"{name:>22}: {value}", flush=True)


if __name__ == "__main__":
    main()
