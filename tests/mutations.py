"""Values, bytes and names that no honest program writes."""

from __future__ import annotations

import random
from typing import Any

NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 1e308, float("nan"), float("inf"), "", "<script>alert(1)</script>", "../../escaped",
    "/tmp/escaped", "a\x00b", "x" * 5000, [], {}, [[]], [None], {"a": {}}, "mmd", "nan", "os:system", "‮",
)  # fmt: skip
# Joined at random: what would be markup, or end the markup around it, if anybody forgot to escape it.
PIECES = (
    "<script>alert(1)</script>", "</script>", "<script src=//x>", "</title>", "<!--", "-->", "<![CDATA[", "]]>",
    "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<a href='javascript:alert(1)'>x</a>", "<b>", "</style>",
    '"', "'", "`", "&", "&lt;", "&#60;script>", "=", " onclick=alert(1) ", "%{x}", "$x$", "${1}", "\\", "\\u003c",
    "\u2028", "\u202e", "\x00", "\x1b[31m", "\n", "\ud800", "é", "../../escaped", "/tmp/escaped", "x" * 300,
)  # fmt: skip


def name(draw: random.Random) -> str:
    """Of a subject, a class, a channel or a file."""
    return "".join(draw.choices(PIECES, k=draw.choice((1, 2, 4)))) + str(draw.randrange(10**6))


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, cut, repeated, or replaced."""
    body = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if not body:
            break
        place, kind = draw.randrange(len(body)), draw.randrange(6)
        if kind == 0:
            body[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del body[place:]
        elif kind == 2:
            body[place : place + draw.randrange(1, 64)] = draw.randbytes(draw.randrange(64))
        elif kind == 3:
            body[place:place] = body[: draw.randrange(1, 256)]
        elif kind == 4:
            del body[place : place + draw.randrange(1, 256)]
        else:
            body[place : place + 4] = draw.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"))
    return bytes(body)


def twisted(value: Any, draw: random.Random, odd: tuple[Any, ...] = NASTY) -> Any:
    """Return JSON with some value replaced by an odd one, removed or renamed."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        key = draw.choice(list(value))
        changed = dict(value)
        if draw.random() < 0.15:
            del changed[key]
        elif draw.random() < 0.15:
            changed[str(draw.choice(odd))] = changed.pop(key)
        else:
            changed[key] = twisted(value[key], draw, odd)
        return changed
    if isinstance(value, list) and value and draw.random() < 0.6:
        changed_list = list(value)
        place = draw.randrange(len(value))
        changed_list[place] = twisted(value[place], draw, odd)
        return changed_list
    return draw.choice(odd)
