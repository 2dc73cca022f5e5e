"""The one way user text enters the page: cleaned, then escaped for where it goes."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

from ..errors import plain_value

# Controls, lone surrogates (they have no UTF-8) and direction overrides (they reorder their neighbours).
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Text that is markup already. Every other string is escaped before it becomes part of the page."""

    __slots__ = ()


def plain(value: object) -> str:
    """Text without characters that cannot be shown."""
    return _UNSHOWABLE.sub("\ufffd", str(value))


def short(value: object, length: int = 22) -> str:
    """For labels: the middle is cut, because names of one study tend to differ at their ends."""
    text = " ".join(plain(value).split())
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def plot_text(value: object, length: int = 22) -> str:
    """For labels that plotly draws: it reads tags such as <b> and <a href>, and entities, hence these two."""
    return short(value, length).replace("&", "&amp;").replace("<", "&lt;")


def distinct_labels(values: Iterable[str], length: int) -> dict[str, str]:
    """Each as `plot_text` has it, but long enough to differ from the others."""
    cut = {value: plot_text(value, length) for value in values}
    times = Counter(cut.values())
    alike = [value for value in cut if times[cut[value]] > 1]
    return cut | distinct_labels(alike, length + 10) if length < max(map(len, alike), default=0) else cut


def tag(name: str, *children: object, **attributes: object) -> Html:
    """tag("p", text, class_="note"): children and attributes are escaped unless they are Html.

    An attribute that is None or False is left out, True is written without a value; "_" stands for "-".
    """
    written = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            label = key.rstrip("_").replace("_", "-")
            written += f" {label}" if value is True else f' {label}="{escape(plain(value), quote=True)}"'
    inside = "".join(
        child if isinstance(child, Html) else escape(plain(child), quote=True)
        for child in children
        if child is not None
    )
    return Html(f"<{name}{written}>{inside}</{name}>")


def join_html(*parts: Html | None) -> Html:
    return Html("".join(part for part in parts if part is not None))


def script_json(value: Any) -> Html:
    """JSON for a <script> element: no "<" is left that could end it, and no number that JSON does not know."""
    text = json.dumps(_known(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def _known(value: Any) -> Any:
    if isinstance(value, str):  # as most are
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): _known(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_known(item) for item in value]
    value = plain_value(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None  # more digits are never seen, only stored
    return value if value is None or isinstance(value, int) else plain(value)
