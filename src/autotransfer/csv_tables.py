"""Tables as CSV in which no spreadsheet finds a formula.

Names of people, classes and data sets may begin with = + - @, a tab or a line break, and a spreadsheet computes such
text, or runs it. Every CSV that we write has an apostrophe before it, after which spreadsheets show plain text. Text
that already begins so gets one more. Numbers stay numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # cells need no pandas, only tables do
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # wide letters count in some spreadsheets
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def harmless(value: Any) -> Any:
    """Return text that a spreadsheet would compute with an apostrophe before it, anything else as it is."""
    if not isinstance(value, str) or not FORMULA.match(value) or NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def csv_text(table: pd.DataFrame, **options: Any) -> str:
    """Return a table as CSV without an index. options: of pandas' `to_csv`"""
    table = changed(table, harmless)
    text: str = table.to_csv(index=False, **options)
    return text


def changed(table: pd.DataFrame, change: Any) -> pd.DataFrame:
    """Return a table with every text and every name of a column changed."""
    table = table.copy()
    for place in range(table.shape[1]):  # by position: names of columns may be equal
        column = table.iloc[:, place]
        if column.dtype.kind not in "biufc":
            table.isetitem(place, [change(value) for value in column.tolist()])  # quicker than to iterate over it
    return table.set_axis([change(name) for name in table.columns], axis=1)
