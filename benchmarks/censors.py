"""Time a step of a population with a penalty, relative to one without, and compare with its limit."""

from __future__ import annotations

from collections.abc import Iterator

import autotransfer as at
from autotransfer.censoring import CENSORS, MODES
from autotransfer.censoring.kernel_matrices import LENGTH_SCALES
from autotransfer.censoring.mige import MIGEOptions
from autotransfer.censoring.scores import ESTIMATORS

from .steps import has_room, noise, stacked_step
from .tables import Table
from .timing import Options, Step, measure, release

LIMIT, SPECTRAL_LIMIT = 2.0, 3.0
SHAPE = {"full": (16, 128, 128), "quick": (16, 128, 128), "tiny": (2, 32, 16)}  # channels, times, batch
MEMBERS: dict[str, dict[str, tuple[int, ...]]] = {
    "full": {"cpu": (8, 32), "cuda": (128, 1024)},
    "quick": {"cpu": (2,), "cuda": (128,)},
    "tiny": {"cpu": (2,), "cuda": (2,)},
}
STEPS = {"cpu": 1, "cuda": 2}


def mige_of(setting: at.Setting) -> MIGEOptions | None:
    options = None if setting.penalty is None else setting.penalty.options
    return options if isinstance(options, MIGEOptions) else None


def limit_of(setting: at.Setting) -> float:
    """Return the limit of a ratio: eigenvectors and a length scale for every row may cost more."""
    mige = mige_of(setting)
    slow = mige is not None and (mige.estimator in ("ssge", "nu_method") or mige.length_scale == "perplexity")
    return SPECTRAL_LIMIT if slow else LIMIT


def parts(size: str) -> list[list[at.Setting]]:
    """Return settings that are measured together: a method in every mode, an estimator of MIGE with every scale."""
    batch = SHAPE[size][2]
    modes = tuple(MODES)[: {"full": 3, "quick": 2, "tiny": 1}[size]]
    methods = [[at.Setting(method=method, mode=mode, batch_size=batch) for mode in modes] for method in CENSORS]
    variants = [
        [
            at.Setting(method="mige", mode=mode, estimator=e, length_scale=scale, batch_size=batch)
            for scale in LENGTH_SCALES
            for mode in (modes if size == "full" else modes[-1:])
            if (e, scale) != ("stein", "median")  # MIGE's default, which is among the methods
        ]
        for e in ESTIMATORS
    ]
    return methods + variants


def label(setting: at.Setting) -> str:
    mige = mige_of(setting)
    details = "" if mige is None else f" {mige.estimator} {mige.length_scale}"
    return f"{setting.method}{details}, {setting.mode}"


def table_of(members: int, options: Options, limit_s: float) -> Table:
    device, (channels, times, batch) = options.device, SHAPE[options.size]
    recordings = noise(channels, times, batch, steps=STEPS[device])
    title = f"censored over uncensored step, {channels} channels × {times} samples, batch {batch}"
    table = Table(f"{title}, P = {members}, {device}")
    missed = 0
    for settings in parts(options.size):
        steps: dict[str, Step] = {"": stacked_step(recordings, at.Setting(batch_size=batch), members, device)}
        steps |= {label(setting): stacked_step(recordings, setting, members, device) for setting in settings}
        timings = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
        if not table.rows:
            table.add({"step": "uncensored", "µs per member": timings[""].median * 1e6})
        for setting in settings:
            timing, limit = timings[label(setting)], limit_of(setting)
            ratio = timing.ratio_to(timings[""])
            missed += ratio.median > limit
            table.add({
                "step": label(setting), "µs per member": timing.median * 1e6, **ratio.columns("ratio"),
                "limit": limit, "kept": "yes" if ratio.median <= limit else "MISSED",
            })  # fmt: skip
        steps.clear()
        release(device)  # captured steps keep their memory: only one part is alive at a time
    table.notes.append(f"{missed} of {len(table.rows) - 1} miss their limit. Ratios round by round, within a part.")
    return table


def tables(options: Options) -> Iterator[Table]:
    channels, times, batch = SHAPE[options.size]
    recordings = noise(channels, times, batch, steps=STEPS[options.device])
    asked = options.members or MEMBERS[options.size][options.device]
    heavy = at.Setting(method="mmd", batch_size=batch)
    members = [p for p in asked if has_room(recordings, heavy, p, options.device)]
    for p in members:
        yield table_of(p, options, options.budget("censors", len(members) * len(parts(options.size))))
