"""Time optimizer steps, and write the tables to bench-results, with python -m benchmarks."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from .encoder import build_tables
from .tables import Table, describe_machine, find_load_warning, write
from .timing import Options


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=Options.rounds, help="maximum number of rounds, at least 2")
    parser.add_argument("--quick", action="store_true", help="measure few sizes in under a minute")
    parser.add_argument("--members", type=int, nargs="+", help="sizes of populations; default: depends on the device")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; leave --device out to measure the CPU")
    if options.rounds < 1 or min(options.members or [1]) < 1:
        parser.error("--rounds and --members must be at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    parsed = parse(arguments)
    members = tuple(parsed.members) if parsed.members else None
    options = Options(parsed.device, "quick" if parsed.quick else "full", parsed.rounds, members)
    facts, start, measured = describe_machine(options.device), time.perf_counter(), list[Table]()
    if warning := find_load_warning(facts):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    for table in build_tables(options):
        if options.device == "cpu":
            table.notes.append(f"CPU kernels: {facts['kernels']}.")
        print(table.markdown(), flush=True)
        measured.append(table)
        # written after each table, so that an interrupted run keeps its results
        path = write(parsed.out, "encoder", options, facts, measured)
    print(f"{time.perf_counter() - start:.0f} s, {path}\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
