"""Command line and CSV of a benchmark over data sets, so that nothing is computed twice."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import autotransfer as at
from autotransfer.csv_tables import csv_text, escape_formula, map_text
from autotransfer.files import write_atomically

COLUMNS = ("dataset", "pipeline", "subject", "seed", "score", "seconds")  # of baselines
Rows = Sequence[Sequence[Any]]  # in the order of the columns
Known = dict[str, str]  # a row that the CSV has
MARKED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")  # text with the apostrophe of `escape_formula`
TEXTS = dict.fromkeys(("data", "dataset", "subject", "test_subject", "person", "case"), str)


def command(description: str | None, out: str | None, *names: str, files: str = "+") -> argparse.ArgumentParser:
    """Return a parser of data sets, of --out (required if it has no default) and of the named options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=files, metavar="DATA", help=".npz, or anything that autotransfer.load takes")
    parser.add_argument("--out", type=Path, required=out is None, default=None if out is None else Path(out))
    options: dict[str, dict[str, Any]] = {
        "seeds": {"type": int, "default": 1, "help": "of what is random"},
        "epochs": {"type": int, "help": "default: as many as a run would have"},
        "device": {"default": "auto", "help": "cpu, cuda or auto"},
    }
    for name in names:
        parser.add_argument(f"--{name}", **options[name])
    return parser


def as_it_was(value: Any) -> Any:
    """Return what `escape_formula` was given."""
    return value[1:] if isinstance(value, str) and MARKED.match(value) else value


def read_table(path: Path, dtype: dict[str, type[str]] = TEXTS) -> pd.DataFrame:
    """Read what `csv_text` wrote, with names as text. Empty text stays text."""
    return map_text(pd.read_csv(path, keep_default_na=False, dtype=dtype), as_it_was)


def known_rows(out: Path) -> list[Known]:
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return [{name: as_it_was(value) for name, value in row.items()} for row in csv.DictReader(file)]


def append(out: Path, rows: Rows, columns: Sequence[str]) -> None:
    """Append rows, in the order of the columns, to a CSV. Create it if it does not exist."""
    begun = out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not begun:
            writer.writerow(columns)
        writer.writerows([escape_formula(value) for value in row] for row in rows)


def append_missing(
    options: argparse.Namespace,
    columns: Sequence[str],
    measured: Callable[[at.Recordings, argparse.Namespace, list[Known]], Iterable[Rows]],
    *keys: str,
) -> None:
    """Append rows of each of `options.files` to `options.out` as they are computed, then print means over subjects.

    columns: of the CSV; the first holds the name of the data set. measured: yields lists of rows, in the order of the
    columns, that are not among the known rows of the data set. keys: columns that tell what is scored, and who.
    """
    for source in options.files:
        recordings = at.load(source)
        known = [row for row in known_rows(options.out) if row[columns[0]] == recordings.name]
        for rows in measured(recordings, options, known):
            append(options.out, rows, columns)
            print(
                f"{recordings.name}: {len(rows)} rows more, the last of {' '.join(map(str, rows[-1][1:4]))}", flush=True
            )
    if not options.out.exists():
        return
    people = read_table(options.out).groupby(list(keys), sort=False)["score"].mean()  # of seeds
    scores = people.groupby(list(keys[:-1]), sort=False).describe()
    print(scores[["count", "mean", "25%", "min"]].round(3).to_string())


def replace_rows(out: Path, rows: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Write rows into a CSV in place of those with equal `keys`, and return the table."""
    if out.exists():
        table = read_table(out)
        again = table.set_index([*keys]).index.isin(rows.set_index([*keys]).index)
        rows = pd.concat([table[~again], rows], ignore_index=True)
    write_atomically(out, csv_text(rows))
    return rows


def measure_datasets(
    options: argparse.Namespace,
    columns: list[str] | tuple[str, ...],
    measured: Callable[[at.Recordings, argparse.Namespace], Iterable[Any]],
) -> pd.DataFrame:
    """Measure each of `options.files` that `options.out` does not have, and return the table.

    columns: of the CSV; the first holds the name of the data set. measured: yields rows, as dictionaries or in the
    order of the columns.
    """
    torch.set_num_threads(1)
    table = read_table(options.out) if options.out.exists() else pd.DataFrame(columns=columns)
    for source in options.files:
        recordings = at.load(source)
        if recordings.name in set(table[columns[0]]):
            continue
        rows = pd.DataFrame(list(measured(recordings, options)), columns=columns)
        table = replace_rows(options.out, rows, columns[0])
        print(f"{recordings.name}: {len(rows)} rows", flush=True)
    return table
