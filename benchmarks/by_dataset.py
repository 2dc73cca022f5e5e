"""A benchmark over data sets, one after another: what is measured is kept, so that a later call goes on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import autotransfer as at
from autotransfer.files import write_atomically
from autotransfer.runs.csv_tables import csv_of, read_table

Measure = Callable[..., Iterable[dict[Any, Any]]]


def measure_datasets(
    arguments: Sequence[str] | None, about: str | None, out: str, columns: list[str], measured: Measure,
    **numbers: int,
) -> pd.DataFrame:  # fmt: skip
    """The table of all rows, of files that the command line names and of those measured before.

    measured: rows of recordings, given the numbers by name. numbers: its options, with their defaults.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="DATA", help=".npz, or anything that autotransfer.load takes")
    parser.add_argument("--out", type=Path, default=Path(out))
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[dict[Any, Any]] = read_table(options.out).to_dict("records") if options.out.exists() else []
    for source in options.files:
        recordings = at.load(source)
        if recordings.name in {row["dataset"] for row in rows}:
            continue
        rows += measured(recordings, **{name: getattr(options, name) for name in numbers})
        write_atomically(options.out, csv_of(pd.DataFrame(rows, columns=columns)))
        print(recordings.name, flush=True)
    return pd.DataFrame(rows, columns=columns)
