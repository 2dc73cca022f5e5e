"""Rows of a long campaign in a CSV file: whoever starts it again goes on where it was stopped."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import TracebackType
from typing import Self


class Table:
    """Rows of one kind, each on disk the moment it is known. rows: all of them, those of earlier processes first."""

    def __init__(self, path: Path | None, columns: tuple[str, ...]) -> None:
        """path: None for rows that are kept in memory alone."""
        self.columns, self.rows = columns, list[dict[str, str]]()
        begun = path is not None and path.exists() and path.stat().st_size > 0
        if path is not None and begun:
            with path.open(newline="") as file:
                text = file.read()
            self.rows = list(csv.DictReader(io.StringIO(text)))
            if not text.endswith("\n"):  # the last row is torn
                self.rows, begun = self.rows[:-1], False
        self.file = None if path is None else path.open("a" if begun else "w", newline="")
        self.writer = None if self.file is None else csv.DictWriter(self.file, columns)
        if self.writer is not None and not begun:
            self.writer.writeheader()
            self.writer.writerows(self.rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.file is not None:
            self.file.close()

    def add(self, *values: object) -> None:
        row = dict(zip(self.columns, map(str, values), strict=True))
        self.rows.append(row)
        if self.writer is not None and self.file is not None:
            self.writer.writerow(row)
            self.file.flush()
