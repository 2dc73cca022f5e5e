"""The CSV of peers' scores: what has been computed is not computed again."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autotransfer.runs.csv_tables import as_it_was, harmless

COLUMNS = ("dataset", "pipeline", "subject", "seed", "score", "seconds")


def known_rows(out: Path) -> list[dict[str, str]]:
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return [{name: as_it_was(value) for name, value in row.items()} for row in csv.DictReader(file)]


def begin(out: Path, columns: Sequence[str] = COLUMNS) -> None:
    """The header, where there is no file yet."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(",".join(columns) + "\n")


def append(out: Path, rows: Iterable[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
