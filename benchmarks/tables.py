"""Format tables of timings as Markdown and write them as JSON with the facts of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from autotransfer.kernels import description

from .timing import Options

Value = str | float | int | None
BUSY = 0.5  # share of the cores in use before the measurement


@dataclass
class Table:
    """Table of unrounded values by heading; `markdown` rounds them."""

    title: str
    rows: list[dict[str, Value]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, row: Mapping[str, Value]) -> None:
        self.rows.append(dict(row))

    def markdown(self) -> str:
        headings = list(dict.fromkeys(heading for row in self.rows for heading in row))
        ruler = ["---", *["---:"] * (len(headings) - 1)]
        cells = [[format_cell(row.get(heading)) for heading in headings] for row in self.rows]
        lines = ["| " + " | ".join(line) + " |" for line in (headings, ruler, *cells)]
        return "\n".join([f"### {self.title}", "", *lines, *(f"\n{note}" for note in self.notes)]) + "\n"


def format_cell(value: Value) -> str:
    """Return a value with three digits; '–' if it was not measured."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def describe_machine(device: str) -> dict[str, Any]:
    """Return facts about the machine that affect timings."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "cores": usable,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,  # load by other programs
        "torch": torch.__version__,
        "kernels": description(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device == "cuda":
        facts["cuda"] = torch.version.cuda
    return facts


def find_load_warning(facts: dict[str, Any]) -> str | None:
    """Return a warning if other programs use the machine when the measurement begins."""
    load, cores = facts["load"], facts["cores"]
    if load is None or cores is None or load < BUSY * cores:
        return None
    return f"the load of this machine is {load:.1f} on {cores} cores; do not quote these timings"


def write(folder: Path, section: str, options: Options, facts: dict[str, Any], tables: Sequence[Table]) -> Path:
    """Write the tables of a section to a file of the section, device and size."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "" if options.size == "full" else f"-{options.size}"
    path = folder / f"{options.device}-{section}{suffix}.json"
    content = {"section": section, "machine": facts, "options": asdict(options), "tables": [asdict(t) for t in tables]}
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")
    return path
