"""The command line of a benchmark over data sets, and its CSV: what has been computed is not computed again."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotransfer.runs.csv_tables import as_it_was, changed, harmless

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("dataset", "pipeline", "subject", "seed", "score", "seconds")


def command(description: str | None, out: str | None, *names: str, files: str = "+") -> argparse.ArgumentParser:
    """A parser of data sets, of --out, which is required where it has no default, and of the named options below."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=files, metavar="DATA", help=".npz, or anything that autotransfer.load takes")
    parser.add_argument("--out", type=Path, required=out is None, default=None if out is None else Path(out))
    options: dict[str, dict[str, Any]] = {
        "seeds": {"type": int, "default": 1, "help": "of what is random"},
        "epochs": {"type": int, "help": "default: as many as a run would have"},
        "device": {"default": "auto", "help": "cpu, cuda or auto"},
        "minutes": {"type": float, "default": float("inf"), "help": "after which nothing more is begun"},
    }
    for name in names:
        parser.add_argument(f"--{name}", **options[name])
    return parser


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """What `csv_of` wrote; options of pandas' `read_csv`. Empty text stays text."""
    import pandas as pd  # peers that need no table do without

    return changed(pd.read_csv(path, keep_default_na=False, **options), as_it_was)


def known_rows(out: Path) -> list[dict[str, str]]:
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return [{name: as_it_was(value) for name, value in row.items()} for row in csv.DictReader(file)]


def append(out: Path, rows: Iterable[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Add rows to a CSV, which is begun where there is none."""
    begun = out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
