"""How a CSV file is written: its encoding, comments, separator, names of columns and decimal mark.

What two programs would read in two ways is refused unless the file itself settles it: an extra field in every row, and
commas that may be decimal marks or separate thousands.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UserError, shown
from ..words import count
from .stamps import is_date, rises

HEAD = 2**20  # characters in which the first two rows must lie
SOME = 20  # rows that show the separator
MARKS = "#%"  # that begin a comment
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"}
)  # what stands for a number that there is not
NUMBER = re.compile(
    r"[+-]?((\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?|\d{1,3}([.,]\d{3})+([.,]\d+)?|inf(inity)?)", re.IGNORECASE
)
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}(\1\d{3})*")  # 1,234: thousands, or three decimals
COMMA_PAIRS = re.compile(r"[+-]?(0|[1-9]\d*),\d+(,[+-]?(0|[1-9]\d*),\d+)*")  # 0,5,-1,25: decimal commas, or columns
COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)?")
WHOLE = re.compile("[0-9]{1,15}")
POINT = "write decimals with a point, and thousands without a separator"


class Form(NamedTuple):
    encoding: str
    skipped: int  # lines before the first row of values
    separator: str
    columns: list[str]
    first: list[str]  # cells of the first row of values
    decimal: str | None = None  # where it is known
    unused: tuple[int, ...] = ()  # columns that hold names of rows
    notes: tuple[str, ...] = ()


def form_of(path: Path) -> Form:
    """How a file is written, from its first rows; from all of them where these leave it open."""
    encoding = _encoding(path)
    with _opened(path, encoding) as stream:
        lines = list(io.StringIO(stream.read(HEAD), newline=""))
    before, comment = 0, ""
    while before < len(lines) and _is_aside(lines[before]):
        comment = lines[before].strip() or comment
        before += 1
    if before < len(lines) and "\0" in lines[before]:
        raise UserError(f"{str(path)!r} is no text in UTF-8, nor in UTF-16 that says so; export it as UTF-8")
    content = lines[before:]
    try:
        separator = _separator([line for line in content if not _is_aside(line)][:SOME])
        reader = csv.reader(content, delimiter=separator)
        cells = _clean(next(reader, []))
        if all(is_number(cell) or is_date(cell) for cell in cells):
            names = _clean(next(csv.reader([comment.lstrip(MARKS)], delimiter=separator), []))
            if len(names) != len(cells) or len(names) < 2 or all(map(is_number, names)):  # no row of names
                names = [f"ch{n}" for n in range(len(cells))]
            form = Form(encoding, before, separator, names, cells)
            return _checked(_without_names(path, form) if separator == "," else form, path)
        skipped = before + reader.line_num
        first = next((_clean(row) for row in reader if any(row) and not row[0].lstrip().startswith(tuple(MARKS))), [])
    except csv.Error as error:
        raise UserError(f"{str(path)!r} is no table ({error}); export it again") from None
    form = Form(encoding, skipped, separator, cells, first)
    return _checked(_with_more_fields(path, form) if len(first) > len(cells) else form, path)


def is_number(cell: str) -> bool:
    """Whether a cell holds a number, with a decimal point or comma, or none."""
    return cell in MISSING or NUMBER.fullmatch(cell) is not None


def rows_of(path: Path, form: Form) -> Iterator[tuple[int, list[str]]]:
    """Every row of values: the number of its line, and its cells."""
    with _opened(path, form.encoding) as stream:
        lines = _Lines(stream, form)
        reader = csv.reader(lines, delimiter=form.separator)
        try:
            for row in reader:
                if row:
                    yield lines.begin, _clean(row)
                lines.begin = 0
        except csv.Error as error:
            raise UserError(f"line {lines.number} of {str(path)!r} is no row of a table ({error}); export it") from None


class _Lines(io.TextIOBase):
    """The lines of values of a stream, without comments, as csv and pandas take them."""

    def __init__(self, stream: io.TextIOBase, form: Form) -> None:
        super().__init__()
        self.stream, self.form = stream, form
        self.number, self.begin = form.skipped, 0  # of the last line, and of the first since this was set to 0
        for _ in islice(stream, form.skipped):
            pass

    def __next__(self) -> str:  # type: ignore[override]  # lines of text, as of the standard library's
        for line in self.stream:
            self.number += 1
            self.begin = self.begin or self.number
            # A label may begin with such a mark, but then it stands in a row with all fields.
            if line.lstrip(" ")[:1] not in MARKS or line.count(self.form.separator) == len(self.form.columns) - 1 > 0:
                return line
        raise StopIteration

    def close(self) -> None:
        self.stream.close()
        super().close()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> str:
        wanted, length = float("inf") if size is None or size < 0 else size, 0
        parts: list[str] = []
        while length < wanted and (line := next(self, "")):
            parts.append(line)
            length += len(line)
        return "".join(parts)


def values_of(path: Path, form: Form) -> _Lines:
    """The rows of values as a stream, which the caller closes."""
    return _Lines(_opened(path, form.encoding), form)


def decimal_of(path: Path, form: Form, columns: Collection[int]) -> str:
    """The decimal mark of these columns. Refuses numbers that may have three decimals or thousands apart."""
    content = b"" if form.decimal is not None else path.read_bytes()
    if form.decimal is not None or not any(mark in content for mark in (b'"' if form.separator == "," else b",", b".")):
        return form.decimal or "."
    doubtful: dict[str, tuple[int, str, str]] = {}  # by mark: line, column and cell
    short, long = "", False  # whole numbers below 1000, as thousands leave them, and others, as thousands never are
    for line, cells in rows_of(path, form):
        for n, cell in ((n, cells[n]) for n in columns if n < len(cells)):
            if "," not in cell and "." not in cell:
                digits = len(cell.lstrip("+-")) if cell.lstrip("+-").isdigit() else 0
                short, long = (cell if 0 < digits < 4 else short), long or digits > 3
            elif (grouped := GROUPED.fullmatch(cell)) is not None:
                doubtful.setdefault(grouped[1], (line, form.columns[n], cell))
            elif NUMBER.fullmatch(cell) is not None:
                mark, other = (",", ".") if "," in cell else (".", ",")
                if other in cell or other in doubtful:
                    where = doubtful.get(other, (line, form.columns[n], cell))
                    raise UserError(f"{_cell(path, *where)}, with thousands apart; {POINT}")
                return mark
    mark = "," if "," in doubtful else "."
    if mark not in doubtful or long or (mark == "." and not short):
        return mark
    cell = doubtful[mark][2]
    raise UserError(
        f"{_cell(path, *doubtful[mark])}{f' beside {short}' if short else ''}: {cell.replace(mark, '')} with thousands "
        f"apart, or {cell.replace(mark, '.', 1)}; {POINT}"
    )


def misfit(path: Path, form: Form, numbers: Collection[int], decimal: str) -> str | None:
    """What is wrong with the first row that does not fit, and what to do about it."""
    for line, cells in rows_of(path, form):
        if len(cells) > len(form.columns):
            return (
                f"line {line} of {str(path)!r} has {len(cells)} fields, and the table {len(form.columns)} columns; "
                "take out what is too much"
            )
        for n, cell in ((n, cells[n]) for n in numbers if n < len(cells)):
            if not is_number(cell):
                remedy = f"correct it, or leave the column out with ?ignore={form.columns[n]} after the path"
                return f"{_cell(path, line, form.columns[n], cell)}, which holds numbers; {remedy}"
            if ("." if decimal == "," else ",") in cell or cell.count(decimal) > 1:
                return f"{_cell(path, line, form.columns[n], cell)}, and {decimal!r} is the decimal mark; {POINT}"
    return None


def unfilled(path: Path, form: Form, width: int) -> int:
    """How many of so many fields every row has; rows of which some have fewer than others are refused."""
    lengths: dict[int, int] = {}  # of rows, each with the first line that has it
    for line, cells in rows_of(path, form):
        if len(cells) > 1 or cells[0]:  # pandas leaves lines of blanks out
            lengths.setdefault(min(len(cells), width), line)
    if len(lengths) > 1:
        line = min(first for length, first in lengths.items() if length < max(lengths))
        fields = next(length for length, first in lengths.items() if first == line)
        raise UserError(
            f"line {line} of {str(path)!r} has {count(fields, 'field')}, and other rows have {max(lengths)}; complete "
            "it or take it out"
        )
    return next(iter(lengths), width)


def _cell(path: Path, line: int, column: str, cell: str) -> str:
    return f"line {line} of {str(path)!r} has {shown(cell)} in the column {shown(column)}"


def _encoding(path: Path) -> str:
    """By the mark at the beginning of the file; Latin-1 where it is no UTF-8."""
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        head.decode()
    except UnicodeDecodeError as error:
        if error.end < len(head) - 3:  # a letter at the end may be cut in two
            return "latin-1"
    return "utf-8-sig"


def _opened(path: Path, encoding: str) -> io.TextIOWrapper:
    return path.open(encoding=encoding, errors="replace", newline="")


def _is_aside(line: str) -> bool:
    """Blank lines, comments and the separator as Excel notes it."""
    text = line.strip()
    return not text or text[0] in MARKS or re.fullmatch(r'"?sep=.?"?', text, re.I) is not None


def _clean(cells: list[str]) -> list[str]:
    return [" ".join(cell.split()) for cell in cells]


def _separator(lines: list[str]) -> str:
    """The one that is equally frequent in all lines. Commas come last, because they may be decimal marks."""
    for part in (lines, lines[1:]):
        for separator in "\t;,":
            counts = {len(next(csv.reader([line], delimiter=separator), [])) for line in part}
            if len(counts) == 1 and counts != {1}:
                return separator
    first = lines[0] if lines else ""
    return max(",;\t", key=first.count)


def _checked(form: Form, path: Path) -> Form:
    named = [name for name in form.columns if name]
    twice = next((name for n, name in enumerate(named) if name in named[:n]), None)
    if twice is not None:
        raise UserError(f"{str(path)!r} has two columns named {shown(twice)}; give each its own name")
    return form


def _without_names(path: Path, form: Form) -> Form:
    """A table of whole numbers between commas, without names, may be one of decimal commas. A fraction such as 05 shows
    it, where no number before a comma has such a zero."""
    proof = None
    for line, cells in rows_of(path, form):
        text = ",".join(cells)
        if (COMMA_PAIRS if len(form.columns) > 2 else COMMA_NUMBER).fullmatch(text) is None:
            return form
        if any(re.fullmatch(r"[+-]?0\d+", cell) for cell in cells[::2]) or len(form.columns) % 2:
            return form
        if proof is None and ("-0" in cells[::2] or any(re.fullmatch(r"0\d+", cell) for cell in cells[1::2])):
            proof = line, text
    if proof is None:
        return form
    if len(form.columns) > 2:
        raise UserError(
            f"line {proof[0]} of {str(path)!r} has commas within numbers and between them ({shown(proof[1])}); write "
            "decimals with a point, or a semicolon between columns"
        )
    note = "the comma is taken for the decimal mark: one column without a name"
    return form._replace(separator=";", decimal=",", columns=["ch0"], first=[",".join(form.first)], notes=(note,))


def _with_more_fields(path: Path, form: Form) -> Form:
    """A table whose first row has more fields than names: rows end with a separator, or begin with names of rows as R
    writes them, or are one column of decimal commas; anything else is refused."""
    n, width = len(form.columns), len(form.first)
    rows = [(line, len(cells), cells[0], cells[n:]) for line, cells in rows_of(path, form)]
    if not any(any(extra) for *_, extra in rows):
        return form._replace(columns=[*form.columns, *[""] * (width - n)])
    uneven = next(((line, fields) for line, fields, *_ in rows if fields != width), None)
    names = [name for _, _, name, _ in rows]
    if uneven is None and width == n + 1:
        if _name_rows(names):
            note = "rows have one field more than the header: the first is the name of the row, as R writes it"
            counted = all(map(WHOLE.fullmatch, names)) and rises(np.array(names, np.float64))
            return form._replace(columns=["", *form.columns], unused=() if counted else (0,), notes=(note,))
        if n == 1 and form.separator == "," and all(COMMA_NUMBER.fullmatch(f"{row[2]},{row[3][0]}") for row in rows):
            return form._replace(separator=";", decimal=",", first=[",".join(form.first)])
    line, fields = uneven or rows[0][:2]
    also = " (commas within numbers need a semicolon between columns)" if form.separator == "," else ""
    raise UserError(
        f"line {line} of {str(path)!r} has {fields} fields, and the header names {n} of up to {width} columns; give "
        f"every column a name and every row a field for each{also}"
    )


def _name_rows(cells: list[str]) -> bool:
    """Whether cells can be the names of rows: text, each once, or whole numbers that rise."""
    if all(map(WHOLE.fullmatch, cells)):
        numbers = list(map(int, cells))
        return all(a < b for a, b in pairwise(numbers))
    return not any(map(is_number, cells)) and len(set(cells)) == len(cells)
