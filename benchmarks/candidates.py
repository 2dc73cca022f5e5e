"""Time one optimizer step of every network of a default run, relative to EEGNet (paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import autotransfer as at
from autotransfer.runs.options import build_options, resolve_options
from autotransfer.search.candidates import network_candidates
from autotransfer.search.plan import network_name

from . import floor
from .steps import build_plain_step, build_population_step, make_noise
from .tables import Table, format_cell
from .timing import Options, Step, measure, release

BATCH = 64
SIGNALS = {  # channels, samples, Hz; a run finds the signal by the names of channels
    "EMG armband": ([f"EMG{n}" for n in range(1, 9)], 100, 200.0),
    "EEG": (
        ["Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "C3", "Cz", "C4", "P3", "Pz", "P4", "O1", "Oz", "O2"],
        128,
        128.0,
    ),
    "ECG": (["ECG1", "ECG2"], 180, 180.0),
}
MEMBERS = {"full": 30, "quick": 10, "tiny": 2}  # full: ten folds, three seeds
LOOP = "EEGNet (torch), own loop"


def build_steps(recordings: at.Recordings, options: Options) -> dict[str, Step]:
    """Return steps by the names of networks in reports, EEGNet (paper) first."""
    options_of_run = resolve_options(build_options({"source": "noise"}), recordings)
    candidates = network_candidates(options_of_run.settings(), recordings, "zero-shot")
    settings = [setting for setting in candidates if setting.penalty is None]
    members = options.members[-1] if options.members else MEMBERS[options.size]
    steps = {}
    for setting in settings:
        name = network_name(setting, 0, options_of_run.reference).removeprefix("network ").removesuffix(", seed 0")
        steps[name] = build_population_step(recordings, setting.replace(batch_size=BATCH), members, options.device)
    return steps


def build_table(signal: str, options: Options, limits: floor.Limits, limit_s: float) -> Table:
    channels, times, sfreq = SIGNALS[signal]
    recordings = make_noise(channels, times, BATCH, steps=1 if options.size == "tiny" else 2, sfreq=sfreq)
    steps = build_steps(recordings, options)
    reference = next(iter(steps))
    timings = measure(
        steps | {LOOP: build_plain_step(len(channels), times, BATCH, options.device)},
        rounds=options.rounds, device=options.device, limit_s=limit_s,
    )  # fmt: skip
    least = floor.member_step(len(channels), times, BATCH).seconds(limits)
    table = Table(f"optimizer step, networks of a default run, {signal}: {len(channels)} × {times}, {options.device}")
    for name, timing in timings.items():
        ratio, usage = timing.ratio_to(timings[reference]), timings[reference].usage
        cpu_ratio = (timing.usage.user + timing.usage.system) / ((usage.user + usage.system) or math.nan)
        table.add({
            "forward + backward + AdamW": name, **timing.columns("ms", 1e3), "× EEGNet (paper)": ratio.median,
            "least ×": min(ratio.readings), "most ×": max(ratio.readings), "× in processor time": cpu_ratio,
            "× floor": timing.median / least,
        })  # fmt: skip
    rounds = len(timings[reference].readings)
    table.notes.append(f"{rounds} interleaved rounds; floor of EEGNet (paper) {format_cell(least * 1e6)} µs.")
    return table


def build_tables(options: Options) -> Iterator[Table]:
    limits, signals = floor.measure_limits(options), list(SIGNALS)[: 1 if options.size == "tiny" else None]
    for signal in signals:
        yield build_table(signal, options, limits, options.budget("candidates", len(signals)))
        release(options.device)
