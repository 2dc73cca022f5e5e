"""A benchmark over data sets, one after another: what is measured is kept, so that a later call goes on."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch

import autotransfer as at
from autotransfer.files import write_atomically
from autotransfer.runs.csv_tables import csv_of

from .csv_rows import read_table

Measure = Callable[[at.Recordings, argparse.Namespace], Iterable[dict[Any, Any]]]


def measure_datasets(options: argparse.Namespace, columns: list[str], measured: Measure) -> pd.DataFrame:
    """The rows of `options.out`, with those of each of `options.files` that was not measured before.

    columns: of the CSV; the first holds the name of the data set.
    """
    torch.set_num_threads(1)
    table = read_table(options.out, dtype={columns[0]: str}) if options.out.exists() else pd.DataFrame(columns=columns)
    for source in options.files:
        recordings = at.load(source)
        if recordings.name in set(table[columns[0]]):
            continue
        rows = pd.DataFrame(list(measured(recordings, options)), columns=columns)
        table = pd.concat([table, rows], ignore_index=True) if len(table) else rows
        write_atomically(options.out, csv_of(table))
        print(f"{recordings.name}: {len(rows)} rows", flush=True)
    return table
