"""Conversion of tables to CSV text that spreadsheets do not run as formulas.

Spreadsheets treat text that begins with = + - @, a tab or a line break as a formula. Names of subjects, classes and
data sets may begin with these characters. An apostrophe is put before such text. Numbers are not changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pandas takes long to import, and `escape_formula` does not need it
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # full-width signs begin formulas in some spreadsheets
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(value: Any) -> Any:
    """Return text that begins like a formula with an apostrophe in front, and any other value unchanged."""
    if not isinstance(value, str) or not FORMULA.match(value) or NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def csv_text(table: pd.DataFrame, **options: Any) -> str:
    """Return a table as CSV text without its index. options: options of `DataFrame.to_csv`."""
    table = map_text(table, escape_formula)
    text: str = table.to_csv(index=False, **options)
    return text


def map_text(table: pd.DataFrame, function: Any) -> pd.DataFrame:
    """Return a table with a function applied to all text and names of columns."""
    table = table.copy()
    for position in range(table.shape[1]):  # names of columns may be equal
        column = table.iloc[:, position]
        if column.dtype.kind not in "biufc":
            table.isetitem(position, [function(value) for value in column.tolist()])  # a list is faster than a column
    return table.set_axis([function(name) for name in table.columns], axis=1)
