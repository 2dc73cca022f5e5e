"""Tables as CSV whose text cannot run as a formula in a spreadsheet.

Names of subjects, classes and data sets may begin with = + - @, a tab or a line break, which spreadsheets take for
formulas. Such text gets an apostrophe in front, after which spreadsheets show plain text; numbers stay numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # pandas takes long to import, and `escape_formula` does not need it
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # wide letters count in some spreadsheets
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(value: Any) -> Any:
    """Return text that begins like a formula with an apostrophe in front, and other values unchanged."""
    if not isinstance(value, str) or not FORMULA.match(value) or NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def csv_text(table: pd.DataFrame, **options: Any) -> str:
    """Return a table as CSV text without its index. options: options of `DataFrame.to_csv`."""
    table = map_text(table, escape_formula)
    text: str = table.to_csv(index=False, **options)
    return text


def map_text(table: pd.DataFrame, change: Any) -> pd.DataFrame:
    """Return a table with a function applied to all text and names of columns."""
    table = table.copy()
    for position in range(table.shape[1]):  # names of columns may be equal
        column = table.iloc[:, position]
        if column.dtype.kind not in "biufc":
            table.isetitem(position, [change(value) for value in column.tolist()])  # a list is faster than a column
    return table.set_axis([change(name) for name in table.columns], axis=1)
