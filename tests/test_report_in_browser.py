"""A browser draws the report without an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotransfer.report.page import write_page
from browser import Browser, find_chromium
from report_example import EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="needs Chromium (Debian's package chromium)"),
]

OPENED = "document.querySelectorAll('.part').forEach((part) => part.open = true)"
# A figure has data if something of it is drawn: dots, lines with a length, or the cells of a heatmap.
UNDRAWN = """[...document.querySelectorAll('figure')].filter((figure) =>
    !figure.querySelector('.plot .points path, .plot .lines path, .plot .hm image')).map((one) => one.dataset.figure)"""
HIDDEN_DOTS = """(() => {
    const dots = [...document.querySelectorAll('#figure-subjects .points path')].map((d) => d.getBoundingClientRect());
    return dots.filter((a, i) => dots.slice(i + 1).some((b) => Math.hypot(a.x - b.x, a.y - b.y) < 6)).length;
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def page(folder: Path, name: str) -> Path:
    """The report of an example, written when it is first asked for."""
    path = folder / f"{name}.html"
    return path if path.exists() else write_page(EXAMPLES[name](), path)


def assert_drawn(browser: Browser, n_figures: int) -> None:
    """Every figure, once its section is open."""
    browser.evaluate(OPENED)
    browser.wait_for(f"document.documentElement.dataset.rendered === '{n_figures}' || !{n_figures}")
    seen = json.loads(browser.evaluate("JSON.stringify(document.documentElement.dataset)"))
    assert browser.problems == []
    assert "errors" not in seen
    assert int(seen["figures"]) == n_figures
    assert browser.evaluate(UNDRAWN) == []


@pytest.mark.parametrize(("name", "n_figures"), [("average", 8), ("stages", 9), ("unfinished", 1), ("empty", 0)])
def test_every_figure_is_drawn(browser: Browser, folder: Path, name: str, n_figures: int) -> None:
    browser.open(page(folder, name))
    assert_drawn(browser, n_figures)


@pytest.mark.parametrize("name", ["hostile", "average"])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, folder: Path, name: str) -> None:
    browser.open(page(folder, name), width=390, height=844, phone=True)
    assert_drawn(browser, int(browser.evaluate("document.documentElement.dataset.figures")))
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate(HIDDEN_DOTS) == 0
    assert browser.evaluate("Math.max(...[...document.querySelectorAll('.main-svg')].map((s) => s.clientWidth))") <= 358
