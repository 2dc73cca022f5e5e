"""Time one optimizer step of one member: plain Conv2d EEGNet in a bare loop, in skorch, ours alone and stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from unittest.mock import patch

import autotransfer as at
from autotransfer import cpu

from . import floor
from .steps import has_room, noise, plain_step, skorch_step, stacked_step
from .tables import Table, shown
from .timing import Options, Step, cuda_peak, fresh_process, here, measure, release, resident

SHAPES: dict[str, tuple[list[tuple[int, int]], int]] = {  # channels × samples, and the batch
    "full": ([(c, t) for t in (128, 384) for c in (8, 16, 56)], 64),
    "quick": ([(16, 128)], 64),
    "tiny": ([(2, 32)], 8),
}
LONGER = [(16, 256), (16, 512)]  # on a GPU, where kernels are as quick for any length
MEMBERS: dict[str, dict[str, tuple[int, ...]]] = {
    "full": {"cpu": (1, 8, 32), "cuda": (1, 8, 32, 128, 1024)},
    "quick": {"cpu": (1, 8), "cuda": (1, 8, 128, 1024)},
    "tiny": {"cpu": (1, 3), "cuda": (1, 3)},
}
STEPS = {"cpu": 2, "cuda": 4}  # in an epoch, which is what a call of ours does
PLAIN, SKORCH = "plain Conv2d, bare loop", "plain Conv2d, skorch"

Shape = tuple[int, int, int]  # channels, times, batch


def stacked(shape: Shape, members: int, device: str, *, alone: bool = False) -> Step:
    recordings = noise(*shape, steps=STEPS[device])
    return stacked_step(recordings, at.Setting(batch_size=shape[2]), members, device, alone=alone)


def without_kernels(step: Step) -> Step:
    """Return the step with torch's operations instead of kernels."""

    def run() -> None:
        with patch.object(cpu, "available", return_value=False):
            step.run()

    return Step(run, step.units, step.kept)


def peaks_here(makers: Sequence[Callable[[], Step]]) -> list[int | None]:
    """Return the peak memory in bytes that building each step and running it twice has added to this process."""
    plain_step(2, 32, 4, "cpu").run()  # what libraries load once is nobody's
    stacked((2, 32, 8), 2, "cpu").run()
    before, peaks = resident(peak=False), list[int | None]()
    for make in makers:
        step = make()
        step.run()
        step.run()
        del step
        now = resident(peak=True)
        peaks.append(None if now is None or before is None else now - before)
    return peaks


def build(
    shape: Shape, members: Sequence[int], device: str, apart: Callable[..., list[int | None]] = fresh_process
) -> tuple[dict[str, Step], dict[str, int | None]]:
    """Return steps by name, and the peak memory of those for which it was measured."""
    makers: dict[str, Callable[[], Step]] = {PLAIN: partial(plain_step, *shape, device)}
    makers |= {f"stacked, P = {p}": partial(stacked, shape, p, device) for p in members}
    if device == "cuda":
        built = {name: cuda_peak(make) for name, make in makers.items()}
        steps = {name: step for name, (step, _) in built.items()}
        memory: dict[str, int | None] = {name: peak for name, (_, peak) in built.items()}
    else:
        steps = {name: make() for name, make in makers.items()}
        steps |= {f"{name}, no kernels": without_kernels(step) for name, step in steps.items() if name != PLAIN}
        plain, *ours = makers.values()
        memory = dict(zip(makers, apart(peaks_here, [plain]) + apart(peaks_here, ours), strict=True))
    in_skorch = skorch_step(*shape, device)
    if in_skorch is not None:
        steps = {PLAIN: steps.pop(PLAIN), SKORCH: in_skorch, **steps}
    if members:
        steps[f"P = {members[-1]}, no shared minibatches"] = stacked(shape, members[-1], device, alone=True)
    return steps, memory


def table_of(shape: Shape, asked: Sequence[int], options: Options, limits: floor.Limits, limit_s: float) -> Table:
    channels, times, batch = shape
    device = options.device
    recordings, setting = noise(*shape, steps=STEPS[device]), at.Setting(batch_size=batch)
    members = [p for p in asked if has_room(recordings, setting, p, device)]
    steps, memory = build(shape, members, device, here if options.size == "tiny" else fresh_process)
    timings = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
    least = floor.member_step(channels, times, batch).seconds(limits)
    table = Table(f"member-step, {channels} channels × {times} samples, batch {batch}, {device}")
    for name, timing in timings.items():
        peak = memory.get(name)
        table.add({
            "forward + backward + AdamW": name, **timing.columns("ms", 1e3),
            "speed-up": timings[PLAIN].ratio_to(timing).median, "× floor": timing.median / least,
            "peak MiB": None if peak is None else peak / 2**20, "faults": timing.usage.faults,
            "system ms": 1e3 * timing.usage.system,
        })  # fmt: skip
    rounds = len(timings[PLAIN].readings)
    table.notes.append(f"{rounds} interleaved rounds; floor {shown(least * 1e6)} µs; all per member and step.")
    if SKORCH not in steps:
        table.notes.append("skorch is not installed: not measured.")
    if len(members) < len(asked):
        table.notes.append(f"P = {', '.join(str(p) for p in asked if p not in members)} would not fit into memory.")
    return table


def tables(options: Options) -> Iterator[Table]:
    shapes, batch = SHAPES[options.size]
    shapes = shapes + LONGER if (options.size, options.device) == ("full", "cuda") else shapes
    members = sorted(options.members or MEMBERS[options.size][options.device])
    limits = floor.limits(options)
    for channels, times in shapes:
        limit_s = options.budget("encoder", len(shapes))
        yield table_of((channels, times, batch), members, options, limits, limit_s)
        release(options.device)
