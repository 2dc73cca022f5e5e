"""Parse the command line of a benchmark over data sets, and read and extend its CSV."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotransfer.csv_tables import csv_text, escape_formula, map_text
from autotransfer.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

Rows = Sequence[Sequence[Any]]  # in the order of the columns
KnownRow = dict[str, str]  # row of the CSV
ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")  # text that `escape_formula` has changed
TEXTS = dict.fromkeys(("data", "dataset", "subject", "test_subject", "case"), str)


def build_parser(description: str | None, out: str | None, *names: str) -> argparse.ArgumentParser:
    """Return a parser of data sets, of --out (required if it has no default) and of the named options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="DATA", help=".npz files, or other sources of autotransfer.load")
    parser.add_argument("--out", type=Path, required=out is None, default=None if out is None else Path(out))
    options: dict[str, dict[str, Any]] = {
        "seeds": {"type": int, "default": 1, "help": "seeds of random baselines"},
        "device": {"default": "auto", "help": "cpu, cuda or auto"},
    }
    for name in names:
        parser.add_argument(f"--{name}", **options[name])
    return parser


def unescape_formula(value: Any) -> Any:
    """Undo `escape_formula`."""
    return value[1:] if isinstance(value, str) and ESCAPED.match(value) else value


def read_table(path: Path, dtype: dict[str, type[str]] = TEXTS) -> pd.DataFrame:
    """Read a CSV that `csv_text` wrote, with names and empty cells as text."""
    import pandas as pd  # not needed to append rows

    return map_text(pd.read_csv(path, keep_default_na=False, dtype=dtype), unescape_formula)


def read_known_rows(out: Path) -> list[KnownRow]:
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return [{name: unescape_formula(value) for name, value in row.items()} for row in csv.DictReader(file)]


def append_rows(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    """Append rows to a CSV, or create the file with these columns."""
    exists = out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not exists:
            writer.writerow(columns)
        writer.writerows([escape_formula(value) for value in row] for row in rows)


def replace_rows(out: Path, rows: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Replace the rows of a CSV that have equal `keys`, and return the table."""
    import pandas as pd

    if out.exists():
        table = read_table(out)
        is_replaced = table.set_index([*keys]).index.isin(rows.set_index([*keys]).index)
        rows = pd.concat([table[~is_replaced], rows], ignore_index=True)
    write_atomically(out, csv_text(rows))
    return rows
