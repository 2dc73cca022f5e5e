"""Time one optimizer step of EEGNet: in a plain torch loop, in skorch, and in populations of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from unittest.mock import patch

import autotransfer as at
from autotransfer import cpu

from .steps import build_plain_step, build_population_step, build_skorch_step, has_room, make_noise
from .tables import Table
from .timing import Options, Step, call_here, call_in_new_process, cuda_peak, measure, read_memory, release

SHAPES: dict[str, tuple[list[tuple[int, int]], int]] = {  # pairs (channels, samples), and the batch size
    "full": ([(c, t) for t in (128, 384) for c in (8, 16, 56)], 64),
    "quick": ([(16, 128)], 64),
    "tiny": ([(2, 32)], 8),
}
LONGER = [(16, 256), (16, 512)]  # (channels, samples) measured on a GPU only
MEMBERS: dict[str, dict[str, tuple[int, ...]]] = {
    "full": {"cpu": (1, 8, 32), "cuda": (1, 8, 32, 128, 1024)},
    "quick": {"cpu": (1, 8), "cuda": (1, 8, 128, 1024)},
    "tiny": {"cpu": (1, 3), "cuda": (1, 3)},
}
STEPS = {"cpu": 2, "cuda": 4}  # optimizer steps per epoch; one call of `Step.run` trains a population for one epoch
PLAIN, SKORCH = "EEGNet (torch), own loop", "EEGNet (torch), skorch"

Shape = tuple[int, int, int]  # channels, times, batch


def build_population(shape: Shape, members: int, device: str, *, alone: bool = False) -> Step:
    recordings = make_noise(*shape, steps=STEPS[device])
    return build_population_step(recordings, at.Setting(batch_size=shape[2]), members, device, alone=alone)


def disable_kernels(step: Step) -> Step:
    """Return a step that uses torch's operations instead of kernels."""

    def run() -> None:
        with patch.object(cpu, "is_available", return_value=False):
            step.run()

    return Step(run, step.units, step.keeps_memory)


def measure_peaks(makers: Sequence[Callable[[], Step]]) -> list[int | None]:
    """Return the peak memory in bytes that building and running each step adds to this process."""
    build_plain_step(2, 32, 4, "cpu").run()  # libraries allocate memory at their first call
    build_population((2, 32, 8), 2, "cpu").run()
    before, peaks = read_memory(peak=False), list[int | None]()
    for make in makers:
        step = make()
        step.run()
        step.run()
        del step
        peak = read_memory(peak=True)
        peaks.append(None if peak is None or before is None else peak - before)
    return peaks


def build_steps(
    shape: Shape, members: Sequence[int], device: str, call: Callable[..., list[int | None]] = call_in_new_process
) -> tuple[dict[str, Step], dict[str, int | None]]:
    """Return steps by name, and their peak memory in bytes if it was measured."""
    makers: dict[str, Callable[[], Step]] = {PLAIN: partial(build_plain_step, *shape, device)}
    makers |= {f"population, P = {p}": partial(build_population, shape, p, device) for p in members}
    if device == "cuda":
        measured = {name: cuda_peak(make) for name, make in makers.items()}
        steps = {name: step for name, (step, _) in measured.items()}
        memory: dict[str, int | None] = {name: peak for name, (_, peak) in measured.items()}
    else:
        steps = {name: make() for name, make in makers.items()}
        steps |= {f"{name}, without kernels": disable_kernels(step) for name, step in steps.items() if name != PLAIN}
        plain, *populations = makers.values()
        memory = dict(zip(makers, call(measure_peaks, [plain]) + call(measure_peaks, populations), strict=True))
    skorch = build_skorch_step(*shape, device)
    if skorch is not None:
        steps = {PLAIN: steps.pop(PLAIN), SKORCH: skorch, **steps}
    if members:
        steps[f"P = {members[-1]}, no shared minibatches"] = build_population(shape, members[-1], device, alone=True)
    return steps, memory


def build_table(shape: Shape, sizes: Sequence[int], options: Options, limit_s: float) -> Table:
    channels, times, batch = shape
    device = options.device
    recordings, setting = make_noise(*shape, steps=STEPS[device]), at.Setting(batch_size=batch)
    members = [p for p in sizes if has_room(recordings, setting, p, device)]
    steps, memory = build_steps(shape, members, device, call_here if options.size == "tiny" else call_in_new_process)
    timings = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
    table = Table(f"optimizer step of a member, {channels} channels × {times} samples, batch {batch}, {device}")
    for name, timing in timings.items():
        peak = memory.get(name)
        table.add({
            "forward + backward + AdamW": name, **timing.columns("ms", 1e3),
            "speed-up": timings[PLAIN].ratio_to(timing).median,
            "peak MiB": None if peak is None else peak / 2**20, "faults": timing.usage.faults,
            "system ms": 1e3 * timing.usage.system,
        })  # fmt: skip
    rounds = len(timings[PLAIN].readings)
    table.notes.append(f"{rounds} interleaved rounds; per member and step.")
    if SKORCH not in steps:
        table.notes.append("skorch is not installed, so it is not measured.")
    if len(members) < len(sizes):
        table.notes.append(f"P = {', '.join(str(p) for p in sizes if p not in members)} do not fit into memory.")
    return table


def build_tables(options: Options) -> Iterator[Table]:
    shapes, batch = SHAPES[options.size]
    shapes = shapes + LONGER if (options.size, options.device) == ("full", "cuda") else shapes
    members = sorted(options.members or MEMBERS[options.size][options.device])
    for channels, times in shapes:
        limit_s = options.budget(len(shapes))
        yield build_table((channels, times, batch), members, options, limit_s)
        release(options.device)
