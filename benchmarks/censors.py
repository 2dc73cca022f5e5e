"""Time optimizer steps with and without a penalty, and compare the ratio with a limit."""

from __future__ import annotations

from collections.abc import Iterator

import autotransfer as at
from autotransfer.censoring import CENSORS, MODES
from autotransfer.censoring.kernel_matrices import LENGTH_SCALES
from autotransfer.censoring.mige import MIGEOptions
from autotransfer.censoring.scores import ESTIMATORS

from .steps import build_population_step, has_room, make_noise
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


def find_mige_options(setting: at.Setting) -> MIGEOptions | None:
    options = None if setting.penalty is None else setting.penalty.options
    return options if isinstance(options, MIGEOptions) else None


def find_limit(setting: at.Setting) -> float:
    """Return the limit of the ratio, which is higher for eigenvectors and for a length scale per window."""
    mige = find_mige_options(setting)
    is_slow = mige is not None and (mige.estimator in ("ssge", "nu_method") or mige.length_scale == "perplexity")
    return SPECTRAL_LIMIT if is_slow else LIMIT


def group_settings(size: str) -> list[list[at.Setting]]:
    """Return groups of settings that are measured together: a group per method and per estimator of MIGE."""
    batch = SHAPE[size][2]
    modes = tuple(MODES)[: {"full": 3, "quick": 2, "tiny": 1}[size]]
    methods = [[at.Setting(method=method, mode=mode, batch_size=batch) for mode in modes] for method in CENSORS]
    variants = [
        [
            at.Setting(method="mige", mode=mode, estimator=e, length_scale=scale, batch_size=batch)
            for scale in LENGTH_SCALES
            for mode in (modes if size == "full" else modes[-1:])
            if (e, scale) != ("stein", "median")  # the default of MIGE is among the methods
        ]
        for e in ESTIMATORS
    ]
    return methods + variants


def format_setting(setting: at.Setting) -> str:
    mige = find_mige_options(setting)
    details = "" if mige is None else f" {mige.estimator} {mige.length_scale}"
    return f"{setting.method}{details}, {setting.mode}"


def build_table(members: int, options: Options, limit_s: float) -> Table:
    device, (channels, times, batch) = options.device, SHAPE[options.size]
    recordings = make_noise(channels, times, batch, steps=STEPS[device])
    title = f"step with a penalty over step without, {channels} channels × {times} samples, batch {batch}"
    table = Table(f"{title}, P = {members}, {device}")
    n_missed = 0
    for settings in group_settings(options.size):
        steps: dict[str, Step] = {"": build_population_step(recordings, at.Setting(batch_size=batch), members, device)}
        steps |= {
            format_setting(setting): build_population_step(recordings, setting, members, device) for setting in settings
        }
        timings = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
        if not table.rows:
            table.add({"step": "no penalty", "µs per member": timings[""].median * 1e6})
        for setting in settings:
            timing, limit = timings[format_setting(setting)], find_limit(setting)
            ratio = timing.ratio_to(timings[""])
            n_missed += ratio.median > limit
            table.add({
                "step": format_setting(setting), "µs per member": timing.median * 1e6, **ratio.columns("ratio"),
                "limit": limit, "within limit": "yes" if ratio.median <= limit else "NO",
            })  # fmt: skip
        steps.clear()
        release(device)  # CUDA graphs hold memory until they are deleted
    table.notes.append(f"{n_missed} of {len(table.rows) - 1} exceed their limit. Ratios are computed within a round.")
    return table


def build_tables(options: Options) -> Iterator[Table]:
    channels, times, batch = SHAPE[options.size]
    recordings = make_noise(channels, times, batch, steps=STEPS[options.device])
    requested = options.members or MEMBERS[options.size][options.device]
    heavy = at.Setting(method="mmd", batch_size=batch)
    members = [p for p in requested if has_room(recordings, heavy, p, options.device)]
    for p in members:
        yield build_table(p, options, options.budget("censors", len(members) * len(group_settings(options.size))))
