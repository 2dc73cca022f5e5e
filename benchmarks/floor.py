"""The floor of a member-step: the least operations and bytes it needs, over what this machine was measured to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from .options import Options
from .tables import Table
from .timing import Step, clock, measure

FILTERS, DEPTH, LATENT = 8, 2, 16  # EEGNet's defaults: temporal filters, spatial filters of each, latent filters
WIDE = FILTERS * DEPTH
KERNEL, SECOND_KERNEL = 64, 16
FIRST_POOL, SECOND_POOL = 4, 8
FLOAT = 4  # bytes
COPY = {"full": 2**26, "quick": 2**24, "tiny": 2**12}  # floats in the array that is copied


class Limits(NamedTuple):
    """What the device was measured to do in float32."""

    flops: float  # operations per second of the best matrix product
    bandwidth: float  # bytes per second, read and written, of a copy in main memory


class Floor(NamedTuple):
    """One optimiser step of one member, in the form that filters channels before times."""

    operations: float
    bytes: float

    def seconds(self, limits: Limits) -> float:
        """Arithmetic and traffic can overlap, so the longer of the two."""
        return max(self.operations / limits.flops, self.bytes / limits.bandwidth)


def member_step(channels: int, times: int, batch: int, classes: int = 4) -> Floor:
    """By formula. R = batch rows, C channels, T times, F = 16 filters, T' = T/4 after the first pool.

    Multiply-adds, each 2 operations, forward:  F·C·R·T  channels,  F·K·R·T  times (K taps, a direct filter),
    F·16·R·T'  second times,  F·F·R·T'  pointwise,  D·classes·R  classifier. Backward as much for the weights and,
    but for the channels, as much for the signal: 2 and 3 times the forward.

    Floats through memory if all elementwise work were fused into its neighbours: the window twice (both passes); the
    filtered signal, F·R·T, six times (written, read to normalise, twice to differentiate the normalisation, its
    gradient written and read); the same of both signals at T'; a parameter seven times (AdamW: gradient, and value,
    first and second moment each read and written). What stays in a cache is cheaper: a CPU can go below this.
    """
    short = times // FIRST_POOL
    latent = LATENT * (short // min(SECOND_POOL, short))
    positions, pooled = batch * times, batch * short
    by_channel = WIDE * channels * positions
    rest = WIDE * KERNEL * positions + WIDE * SECOND_KERNEL * pooled + LATENT * WIDE * pooled + latent * classes * batch
    parameters = FILTERS * KERNEL + WIDE * (channels + SECOND_KERNEL + LATENT) + classes * (latent + 1)
    parameters += 2 * (FILTERS + WIDE + LATENT)
    floats = 2 * channels * positions + 6 * (WIDE * positions + (WIDE + LATENT) * pooled) + 7 * parameters
    return Floor(2.0 * (2 * by_channel + 3 * rest), float(FLOAT * floats))


def products(channels: int, times: int, batch: int, members: int) -> dict[str, tuple[int, int, int, int]]:
    """The matrix products of a forward step as (N, rows, inner, columns)."""
    short = times // FIRST_POOL
    tile = min(times, KERNEL)
    return {
        "channels": (members, WIDE, channels, batch * times),
        "times, Toeplitz": (members * FILTERS, DEPTH * batch * (times // tile), tile + KERNEL - 1, tile),
        "second times, Toeplitz": (members * WIDE, batch, short, short),
        "pointwise": (members, LATENT, WIDE, batch * short),
        "one large product": (1, 1024, 1024, 1024),
    }


def product_step(shape: tuple[int, int, int, int], device: str) -> Step:
    count, rows, inner, columns = shape
    a, b = torch.randn(count, rows, inner, device=device), torch.randn(count, inner, columns, device=device)
    out = torch.empty(count, rows, columns, device=device)
    return Step(lambda: torch.bmm(a, b, out=out))


def copy_step(floats: int, device: str) -> Step:
    source = torch.randn(floats, device=device)
    target = torch.empty_like(source)
    return Step(lambda: target.copy_(source))


def limits(options: Options) -> Limits:
    """A quick measurement for use beside other tables: the best of three."""
    device = options.device
    shape = (1, 64, 64, 64) if options.size == "tiny" else (1, 2048 if device == "cuda" else 512, 1024, 2048)
    floats = COPY[options.size]
    best = []
    for step in (product_step(shape, device), copy_step(floats, device)):
        repeats = 20 if device == "cuda" else 3  # enough that waiting for the device does not show
        clock(step, 1, device)
        best.append(min(clock(step, repeats, device) / repeats for _ in range(3)))
    return Limits(2.0 * shape[0] * shape[1] * shape[2] * shape[3] / best[0], 2.0 * FLOAT * floats / best[1])


def tables(options: Options) -> Iterator[Table]:
    device, tiny = options.device, options.size == "tiny"
    limit_s = 2.0 if options.size == "full" else 0.3
    members = 1 if tiny else (options.members or {"cpu": (8,), "cuda": (128,)}[device])[-1]
    channels, times, batch = (2, 32, 8) if tiny else (16, 128, 64)
    shapes = products(channels, times, batch, members)
    steps = {name: product_step(shape, device) for name, shape in shapes.items()}
    precisions = ("highest", "high") if device == "cuda" else ("highest",)
    table = Table(f"matrix products of {channels} channels × {times} samples, batch {batch}, P = {members}, {device}")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in precisions:
            torch.set_float32_matmul_precision(precision)
            found = measure(steps, rounds=options.rounds, device=device, limit_s=limit_s)
            for name, (count, rows, inner, columns) in shapes.items():
                work = 2e-9 * count * rows * inner * columns
                readings = sorted(work / seconds for seconds in found[name].readings)
                table.add({
                    "product": name, "shape": f"{count} × ({rows} × {inner}) ({inner} × {columns})",
                    "precision": "tf32" if precision == "high" else "float32",
                    "GFLOP/s": work / found[name].median, "least": readings[0], "most": readings[-1],
                })  # fmt: skip
    finally:
        torch.set_float32_matmul_precision(before)
    yield table

    sizes = {"one member's signal": WIDE * batch * times, "main memory": COPY[options.size]}
    copies = {name: copy_step(floats, device) for name, floats in sizes.items()}
    table = Table(f"copying, {device}")
    for name, timing in measure(copies, rounds=options.rounds, device=device, limit_s=limit_s).items():
        moved = 2 * FLOAT * sizes[name]
        rates = sorted(moved / seconds / 1e9 for seconds in timing.readings)
        table.add({"where": name, "MiB": FLOAT * sizes[name] / 2**20, "GB/s": moved / timing.median / 1e9,
                     "least": rates[0], "most": rates[-1]})  # fmt: skip
    yield table

    yield floors(limits(options), device)


def floors(machine: Limits, device: str) -> Table:
    table = Table(f"floor of a member-step, batch 64, {device}")
    for channels in (8, 16, 56):
        for times in (128, 384):
            floor = member_step(channels, times, 64)
            table.add({
                "channels × samples": f"{channels} × {times}", "MFLOP": floor.operations / 1e6,
                "MB": floor.bytes / 1e6, "operations, µs": floor.operations / machine.flops * 1e6,
                "bytes, µs": floor.bytes / machine.bandwidth * 1e6, "floor, µs": floor.seconds(machine) * 1e6,
            })  # fmt: skip
    table.notes.append(f"At {machine.flops / 1e9:.3g} GFLOP/s and {machine.bandwidth / 1e9:.3g} GB/s, measured above.")
    return table
