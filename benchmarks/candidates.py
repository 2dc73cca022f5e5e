"""Time one optimizer step of every network of a default run, relative to EEGNet (paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import autotransfer as at
from autotransfer.runs.options import build_options, resolve_options
from autotransfer.search.candidates import network_candidates
from autotransfer.search.plan import network_name

from . import floor
from .steps import noise, plain_step, stacked_step
from .tables import Table, shown
from .timing import Options, Step, measure, release

BATCH = 64
SIGNALS = {  # channels, samples, Hz: names of channels say what a run trains
    "EMG armband": ([f"EMG{n}" for n in range(1, 9)], 100, 200.0),
    "EEG": (
        ["Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "C3", "Cz", "C4", "P3", "Pz", "P4", "O1", "Oz", "O2"],
        128,
        128.0,
    ),
    "ECG": (["ECG1", "ECG2"], 180, 180.0),
}
MEMBERS = {"full": 30, "quick": 10, "tiny": 2}  # ten folds, three seeds
LOOP = "plain Conv2d, bare loop"


def steps_of(recordings: at.Recordings, options: Options) -> dict[str, Step]:
    """Return steps by the names of reports, EEGNet (paper) first."""
    asked = resolve_options(build_options({"source": "noise"}), recordings)
    every = network_candidates(asked.settings(), recordings, "zero-shot")
    settings = [setting for setting in every if setting.penalty is None]
    members = options.members[-1] if options.members else MEMBERS[options.size]
    steps = {}
    for setting in settings:
        name = network_name(setting, 0, asked.reference).removesuffix(", seed 0")
        steps[name] = stacked_step(recordings, setting.replace(batch_size=BATCH), members, options.device)
    return steps


def table_of(signal: str, options: Options, limits: floor.Limits, limit_s: float) -> Table:
    channels, times, sfreq = SIGNALS[signal]
    recordings = noise(channels, times, BATCH, steps=1 if options.size == "tiny" else 2, sfreq=sfreq)
    steps = steps_of(recordings, options)
    plain = next(iter(steps))
    timings = measure(
        steps | {LOOP: plain_step(len(channels), times, BATCH, options.device)},
        rounds=options.rounds, device=options.device, limit_s=limit_s,
    )  # fmt: skip
    least = floor.member_step(len(channels), times, BATCH).seconds(limits)
    table = Table(f"member-step of a default run's networks, {signal}: {len(channels)} × {times}, {options.device}")
    for name, timing in timings.items():
        ratio, used = timing.ratio_to(timings[plain]), timings[plain].usage
        spent = (timing.usage.user + timing.usage.system) / ((used.user + used.system) or math.nan)
        table.add({
            "forward + backward + AdamW": name, **timing.columns("ms", 1e3), "× plain network": ratio.median,
            "least ×": min(ratio.readings), "most ×": max(ratio.readings), "× in processor time": spent,
            "× floor": timing.median / least,
        })  # fmt: skip
    rounds = len(timings[plain].readings)
    table.notes.append(f"{rounds} interleaved rounds; floor of the plain network {shown(least * 1e6)} µs.")
    return table


def tables(options: Options) -> Iterator[Table]:
    limits, signals = floor.limits(options), list(SIGNALS)[: 1 if options.size == "tiny" else None]
    for signal in signals:
        yield table_of(signal, options, limits, options.budget("candidates", len(signals)))
        release(options.device)
