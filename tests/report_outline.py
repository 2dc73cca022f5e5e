"""Parse a report: its tags, words and figures."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any

from markupsafe import Markup

from autotransfer.report.page import render_page
from autotransfer.report.summary import Summary
from report_example import EXAMPLES


class Outline(HTMLParser):
    """Tags, ids, attributes and visible text, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.title = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        self.attributes += [(name, key, value) for key, value in attrs]
        if name != "meta":
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.title += data
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        return [value or "" for _, key, value in self.attributes if key == attribute]


def light(summary: Summary) -> str:
    """The page without plotly: the same text and figures, quick to make and to read."""
    return render_page(summary, plotly=Markup(""))


@lru_cache
def example(name: str) -> str:
    return light(EXAMPLES[name]())


def figure_data(text: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="figure-data">(.*?)</script>', text, re.S)
    data: list[dict[str, Any]] = json.loads(found[1])
    return data


def labels(value: Any, key: str = "") -> list[str]:
    """Every text that plotly would draw."""
    if isinstance(value, dict):
        return [label for k, v in value.items() if k != "table" for label in labels(v, k)]
    if isinstance(value, list):
        return [label for item in value for label in labels(item, key)]
    return (
        [value] if isinstance(value, str) and key in ("text", "ticktext", "name", "hovertext", "hovertemplate") else []
    )


def place(words: str, text: str) -> int:
    """Where the words begin, whatever tags stand between them; an error where they do not."""
    return "".join(text.split()).index("".join(words.split()))
