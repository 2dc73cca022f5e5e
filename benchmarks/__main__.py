"""python -m benchmarks [floor|encoder|candidates|censors|all ...]: tables of timings, JSON in bench-results/."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from . import candidates, censors, encoder, floor
from .tables import Table, crowded, machine, write
from .timing import Options

SECTIONS: dict[str, Callable[[Options], Iterator[Table]]] = {
    "floor": floor.tables,
    "encoder": encoder.tables,
    "candidates": candidates.tables,
    "censors": censors.tables,
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)} or all (default)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=Options.rounds, help="at most; two where time is short")
    parser.add_argument("--quick", action="store_true", help="few sizes, under a minute: a look, not a result")
    parser.add_argument("--members", type=int, nargs="+", help="sizes of populations in place of the usual ones")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.sections if name not in (*SECTIONS, "all")]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}; choose from {', '.join(SECTIONS)}, all")
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; leave --device away to measure the CPU")
    if asked.rounds < 1 or min(asked.members or [1]) < 1:
        parser.error("--rounds and --members take numbers of at least 1")
    return asked


def main(arguments: Sequence[str] | None = None) -> None:
    asked = parse(arguments)
    members = tuple(asked.members) if asked.members else None
    options = Options(asked.device, "quick" if asked.quick else "full", asked.rounds, members)
    sections = SECTIONS if not asked.sections or "all" in asked.sections else dict.fromkeys(asked.sections)
    warning = crowded(machine(options.device))
    if warning:
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    for section in sections:
        facts, start, done = machine(options.device), time.perf_counter(), list[Table]()
        for table in SECTIONS[section](options):
            if options.device == "cpu":
                table.notes.append(f"CPU kernels: {facts['kernels']}.")
            print(table.markdown(), flush=True)
            done.append(table)
            # after each table: an interrupted run keeps its work
            path = write(asked.out, section, options, facts, done)
        print(f"{section}: {time.perf_counter() - start:.0f} s, {path}\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
