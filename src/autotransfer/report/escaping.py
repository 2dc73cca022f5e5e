"""Cleaning of text from users for labels, plots and JSON. Templates escape it for HTML."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from markupsafe import Markup, escape

from ..errors import plain_value

# Control characters, lone surrogates (without UTF-8) and direction overrides (which reorder other characters).
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def plain(value: object) -> str:
    """Replace characters that cannot be shown."""
    return _UNSHOWABLE.sub("\ufffd", str(value))


def short(value: object, length: int = 22) -> str:
    """Shorten a label in the middle, because names in a study often differ at their ends."""
    text = " ".join(plain(value).split())
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def plot_text(value: object, length: int = 22) -> str:
    """Shorten and escape a label for plotly, which interprets tags and entities."""
    return short(value, length).replace("&", "&amp;").replace("<", "&lt;")


def muted_brackets(sentence: str) -> Markup:
    """Escape a sentence, and put text in brackets into spans, which the page prints in a lighter color."""
    pieces = re.split(r"(\([^()]*\))", plain(sentence).replace(" %", "\u00a0%"))
    return Markup("").join(
        Markup("<span>{}</span>").format(piece) if piece.startswith("(") else escape(piece) for piece in pieces
    )


def script_json(value: Any) -> Markup:
    """Return JSON for a <script> element, without "<", which could end it, and without NaN and infinity."""
    text = json.dumps(_cleaned(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item) for item in value]
    value = plain_value(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else plain(value)
