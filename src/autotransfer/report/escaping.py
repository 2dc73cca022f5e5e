"""Functions that clean users' text for labels, plots and JSON. Templates escape the text for HTML."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from markupsafe import Markup, escape

from ..errors import plain_value

# Control characters, lone surrogates (without UTF-8) and direction overrides (which reorder other characters).
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def replace_unshowable(value: object) -> str:
    """Return a value as text, with a replacement mark for each character that cannot be shown."""
    return _UNSHOWABLE.sub("\ufffd", str(value))


def shorten_label(value: object, length: int = 22) -> str:
    """Shorten a label in the middle, because names in a study often differ at both ends."""
    text = " ".join(replace_unshowable(value).split())
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[head + 1 - length :]}"


def format_label(value: object, length: int = 22) -> str:
    """Shorten a label, and escape the tags and entities that plotly would interpret."""
    return shorten_label(value, length).replace("&", "&amp;").replace("<", "&lt;")


def mute_brackets(sentence: str) -> Markup:
    """Escape a sentence, and put text in brackets into <span>, which the page prints in a lighter color."""
    pieces = re.split(r"(\([^()]*\))", replace_unshowable(sentence).replace(" %", "\u00a0%"))
    return Markup("").join(
        Markup("<span>{}</span>").format(piece) if piece.startswith("(") else escape(piece) for piece in pieces
    )


def script_json(value: Any) -> Markup:
    """Return JSON for a <script> element, without NaN, infinity and "<", which could end the element."""
    text = json.dumps(_clean_values(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _clean_values(value: Any) -> Any:
    if isinstance(value, str):
        return replace_unshowable(value)
    if isinstance(value, dict):
        return {replace_unshowable(key): _clean_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean_values(item) for item in value]
    value = plain_value(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else replace_unshowable(value)
