"""Convert docstrings to Markdown for the API reference.

mkdocstrings parses the sections of the NumPy convention (Parameters, Returns, Attributes, Examples). The text before
them, and docstrings without sections, keep their lines and columns.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, Extension, Object

COLUMNS = re.compile(r"\S {2,}\S")  # two blanks inside a line: a table drawn with spaces
NAME = r"`?[A-Za-z_]\w*`?"
ENTRY = re.compile(rf"^({NAME}(?:, {NAME})*(?: \([^)]*\))?): ")  # a line that explains one or more names
COMMENT = re.compile(r"\s# (.*)$")
SECTION = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}$", re.MULTILINE)
FIELDS = re.compile(r"^(Parameters|Attributes)\n-{3,}$", re.MULTILINE)
OWN_PAGE = ("Setting",)  # classes whose fields are described on a page of their own


class KeepLines(Extension):
    """Extension that keeps lines of tables and lists, and lists the commented fields of a dataclass in a table."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)  # a new Docstring would have no parser

    def on_class(self, *, cls: Class, **_: Any) -> None:
        if cls.name in OWN_PAGE or not any("dataclass" in str(decorator.value) for decorator in cls.decorators):
            return
        if cls.docstring is not None and FIELDS.search(cls.docstring.value):
            return
        rows = []
        for name, field in cls.all_members.items():  # also inherited ones, which may be defined in another file
            if not field.is_attribute or field.annotation is None or field.lineno is None:
                continue
            if "property" in field.labels or "ClassVar" in str(field.annotation):
                continue
            source = Path(str(field.filepath)).read_text(encoding="utf-8").splitlines()
            comment = COMMENT.search(source[field.lineno - 1])
            kind = str(field.annotation).replace(" | ", " or ")  # a bar would end the cell
            rows.append(f"| `{name}` | `{kind}` | {comment[1] if comment else ''} |")
        if rows:
            text = cls.docstring.value if cls.docstring else ""
            table = "\n".join(["| field | type | |", "| --- | --- | --- |", *rows])
            cls.docstring = Docstring(f"{text}\n\n{table}", parent=cls)


def as_markdown(text: str) -> str:
    """Return the text before the first section as Markdown, and the sections as they are."""
    section = SECTION.search(text)
    end = len(text) if section is None else section.start()
    return "\n\n".join(_paragraph(part) for part in text[:end].split("\n\n")) + text[end:]


def _paragraph(part: str) -> str:
    lines = part.split("\n")
    if all(line.startswith("    ") for line in lines):
        return part  # a code block already
    if any(COLUMNS.search(line) for line in lines):
        opening = [] if COLUMNS.search(lines[0]) or ENTRY.match(lines[0]) else [lines.pop(0), ""]
        return "\n".join([*opening, *(f"    {line}" for line in lines)])
    if len(lines) > 1 and sum(ENTRY.match(line) is not None for line in lines) > 1:
        items = (ENTRY.sub(r"- **\1**: ", line) if ENTRY.match(line) else f"  {line.strip()}" for line in lines)
        return "\n".join(items)
    return part
