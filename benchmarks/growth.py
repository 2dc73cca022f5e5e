"""How the cost of a step grows: one factor at a time, with the exponent of a power law fitted to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import autotransfer as at

from .steps import noise, stacked_step
from .tables import Table
from .timing import Options, Step, Timing, measure, release

BASE = {"subjects": 12, "classes": 4, "channels": 16, "samples": 128, "batch": 64}
MEMBERS = {"full": {"cpu": 8, "cuda": 128}, "quick": {"cpu": 2, "cuda": 128}}
LEVELS: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {
        "subjects": (6, 12, 24, 48), "classes": (2, 4, 8, 16), "channels": (8, 16, 32, 64),
        "samples": (64, 128, 256, 512), "batch": (32, 64, 128, 256), "members": (1, 4, 16, 32),
    },
    "cuda": {
        "subjects": (6, 12, 24, 48, 96), "classes": (2, 4, 8, 16), "channels": (8, 16, 32, 64),
        "samples": (64, 128, 256, 512), "batch": (32, 64, 128, 256), "members": (32, 128, 512, 2048),
    },
}  # fmt: skip
TINY_BASE = {"subjects": 4, "classes": 2, "channels": 2, "samples": 32, "batch": 8, "members": 2}
TINY_LEVELS: dict[str, tuple[int, ...]] = {"subjects": (4, 8), "members": (1, 3)}
CENSORS: tuple[tuple[str | None, str | None], ...] = (
    (None, None),
    ("mmd", "conditional"),
    ("mige", "conditional"),
    ("adversary", "conditional"),
)


def base_of(options: Options) -> dict[str, int]:
    """Where every factor stands while another one grows."""
    return TINY_BASE if options.size == "tiny" else BASE | {"members": MEMBERS[options.size][options.device]}


def exponent(levels: Sequence[float], seconds: Sequence[float]) -> float:
    """a of seconds ∝ level^a: the slope in logarithms, by least squares."""
    slope, _ = np.polyfit(np.log(levels), np.log(seconds), 1)
    return float(slope)


def step_at(point: dict[str, int], method: str | None, mode: str | None, device: str) -> Step:
    """A step of the whole population: counted as one, however many members it has."""
    recordings = noise(
        point["channels"], point["samples"], point["batch"], subjects=point["subjects"], classes=point["classes"]
    )
    setting = at.Setting(method=method, mode=mode, batch_size=point["batch"])
    step = stacked_step(recordings, setting, point["members"], device)
    return step._replace(units=max(step.units // point["members"], 1))


def grow(factor: str, levels: Sequence[int], options: Options, limit_s: float) -> dict[tuple[str, int], Timing]:
    """Every censor at every level of a factor; the levels of a censor are interleaved."""
    by_level: dict[tuple[str, int], Timing] = {}
    censors = CENSORS[:2] if options.size != "full" else CENSORS
    for method, mode in censors:
        name = "uncensored" if method is None else f"{method}, {mode}"
        steps = {
            str(level): step_at(base_of(options) | {factor: level}, method, mode, options.device) for level in levels
        }
        timings = measure(steps, rounds=options.rounds, device=options.device, limit_s=limit_s / len(censors))
        by_level |= {(name, level): timings[str(level)] for level in levels}
        steps.clear()
        release(options.device)
    return by_level


def tables(options: Options) -> Iterator[Table]:
    device = options.device
    factors = LEVELS[device] if options.size != "tiny" else TINY_LEVELS
    if options.size == "quick":
        factors = {factor: levels[:3:2] for factor, levels in factors.items()}
    for factor, levels in factors.items():
        timings = grow(factor, levels, options, options.budget("growth", len(factors)))
        table = Table(f"growth with {factor}: ms of a population's step, {device}")
        for name in dict.fromkeys(name for name, _ in timings):
            medians = [timings[name, level].median for level in levels]
            readings = [timings[name, level].readings for level in levels]
            spread = max(max(seconds) / min(seconds) for seconds in readings)
            table.add({
                "step": name, **{str(level): s * 1e3 for level, s in zip(levels, medians, strict=True)},
                "exponent": exponent(levels, medians), "most / least": spread,
            })  # fmt: skip
        rest = ", ".join(f"{key} {value}" for key, value in base_of(options).items() if key != factor)
        table.notes.append(
            f"The rest: {rest}. Exponent a of time ∝ {factor}^a; most / least: the widest spread over rounds."
        )
        yield table
