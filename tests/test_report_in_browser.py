"""The report as a browser shows it: drawn without an error, on a screen, a phone, in the dark and on paper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotransfer.report.page import write
from browser import Browser, find_chromium
from report_example import EXAMPLES, HOSTILE

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs Chromium (Debian's package chromium)")

# A figure has data if something of it is drawn: dots, lines with a length, or the cells of a heatmap.
UNDRAWN = """[...document.querySelectorAll('figure')].filter((figure) =>
    !figure.querySelector('.plot .points path, .plot .hm image') ).map((figure) => figure.dataset.figure)"""
TEXTS = "[...document.querySelectorAll('.plot text')].map((text) => text.textContent).join('\\n')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser()
    yield started
    started.close()


class Pages:
    """Reports of the examples, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        path = self.folder / name
        return path if path.exists() else write(EXAMPLES[path.stem](), path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


OPEN_ALL = "document.querySelector('[data-open]').click()"
OPENED = "document.querySelectorAll('.part').forEach((part) => part.open = true)"
# Pairs of texts in a plot, and dots in it, that lie on each other by more than a pixel or two.
CLASHES = """[...document.querySelectorAll('.plot')].flatMap((plot) => {
    const boxes = [...plot.querySelectorAll('text')].filter((t) => t.textContent.trim() && !t.closest('.hoverlayer'))
        .map((t) => [t.textContent, t.getBoundingClientRect()]).filter(([, b]) => b.width);
    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
        Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2 &&
        Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3).map(([b]) => [plot.parentNode.id, a, b].join('|')));
})"""
HIDDEN_DOTS = """(() => {
    const dots = [...document.querySelectorAll('#figure-glance .points path')].map((d) => d.getBoundingClientRect());
    return dots.filter((a, i) => dots.slice(i + 1).some((b) => Math.hypot(a.x - b.x, a.y - b.y) < 6)).length;
})()"""


def assert_drawn(browser: Browser, n_figures: int) -> None:
    """Every figure, once its section is open."""
    browser.evaluate(OPENED)
    browser.wait_for(f"document.documentElement.dataset.rendered === '{n_figures}' || !{n_figures}")
    seen = json.loads(browser.evaluate("JSON.stringify(document.documentElement.dataset)"))
    assert browser.problems == []
    assert "errors" not in seen
    assert int(seen["figures"]) == n_figures
    assert browser.evaluate(UNDRAWN) == []


@pytest.mark.parametrize(
    ("name", "n_figures"),
    [pytest.param("gain", 14, marks=pytest.mark.slow), ("average", 20), ("unfinished", 5), ("empty", 0)],
)
def test_every_figure_is_drawn(browser: Browser, pages: Pages, name: str, n_figures: int) -> None:
    browser.open(pages / f"{name}.html")
    assert_drawn(browser, n_figures)
    assert browser.evaluate(CLASHES) == [], "no label lies on another"


@pytest.mark.parametrize(
    ("name", "n_figures"),
    [
        ("hostile", 20),  # as many figures as the average, with longer names
        pytest.param("average", 20, marks=pytest.mark.slow),
        pytest.param("forty", 14, marks=pytest.mark.slow),
    ],
)
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, pages: Pages, name: str, n_figures: int) -> None:
    browser.open(pages / f"{name}.html", width=390, height=844, phone=True)
    assert_drawn(browser, n_figures)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate(HIDDEN_DOTS) == 0
    assert browser.evaluate(CLASHES) == []
    assert browser.evaluate("Math.max(...[...document.querySelectorAll('.main-svg')].map((s) => s.clientWidth))") <= 358


@pytest.mark.parametrize(("width", "height"), [(1280, 900), pytest.param(400, 800, marks=pytest.mark.slow)])
def test_the_first_screen_is_a_sentence_a_number_and_a_figure(
    browser: Browser, pages: Pages, width: int, height: int
) -> None:
    browser.open(pages / "average.html", width=width, height=height, phone=width < 500)
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    for part in ("#answer-title", ".people p", "#figure-glance .plot svg"):
        assert 0 < browser.evaluate(bottom.format(part)) <= height, part
    drawn = "[...document.querySelectorAll('.plot')].filter((plot) => plot.querySelector('svg')).length"
    assert browser.evaluate(drawn) == 1, "figures of closed sections wait"
    assert browser.evaluate("[...document.querySelectorAll('main details')].every((box) => !box.open)")
    browser.evaluate("document.querySelector('#average').closest('.part').open = true")
    browser.wait_for("document.querySelector('#figure-shares .plot svg')")
    assert browser.evaluate("document.querySelector('#figure-results .plot svg')") is None
    browser.evaluate(OPEN_ALL)
    browser.wait_for("document.querySelector('#figure-curves .plot svg')")
    assert browser.problems == []


def test_a_link_opens_the_section_it_leads_into(browser: Browser, pages: Pages) -> None:
    browser.open(pages / "unfinished.html")
    browser.evaluate("document.querySelectorAll('.part').forEach((part) => part.open = false)")
    browser.evaluate("document.querySelector('a[href=\"#failures\"]').click()")
    browser.wait_for("document.getElementById('failures').closest('.part').open")


def test_heads_stand_above_their_columns(browser: Browser, pages: Pages) -> None:
    browser.open(pages / "average.html")
    browser.evaluate("document.querySelector('#figure-glance details').open = true")
    browser.wait_for("document.querySelector('#figure-glance table')?.rows.length > 10")
    ends = """(() => {
        const cells = [...document.querySelector('#figure-glance table').rows].slice(0, 2).map((row) => [...row.cells]);
        const edge = (cell, side) => { const range = document.createRange(); range.selectNodeContents(cell);
            return range.getBoundingClientRect()[side]; };
        return cells[0].map((head, i) => ['left', 'right'].some((side) =>
            Math.abs(edge(head, side) - edge(cells[1][i], side)) < 2));
    })()"""
    assert browser.evaluate(ends) == [True] * 4


def test_hostile_names_are_only_text_also_in_what_is_saved(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    browser.open(pages / "hostile.html", dark=True)
    assert_drawn(browser, 20)
    assert browser.evaluate("document.querySelectorAll('svg a, svg script, img, .plot [onerror]').length") == 0
    drawn = browser.evaluate(TEXTS)
    assert "<script>al…1)</script>" in drawn
    assert '"quoted" &…\' &lt;b&gt;' in drawn
    assert "var(--ink)" in drawn
    assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE[0]
    browser.evaluate("document.querySelector('#figure-results details').open = true")
    browser.wait_for("document.querySelector('#figure-results table')?.rows.length > 10")
    assert HOSTILE[0] in browser.evaluate("document.querySelector('#figure-results table').textContent")
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("png", "svg", "csv"):
        browser.evaluate(f"document.querySelector('#figure-by-subject [data-save={kind}]').click()")
        _wait_for_file(tmp_path / f"by-subject.{kind}")
    assert (tmp_path / "by-subject.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "by-subject.svg").read_text()
    table = (tmp_path / "by-subject.csv").read_text(encoding="utf-8-sig")
    assert table.startswith("test_subject,row,test_score\n")
    assert '"""quoted"" & \'more\' &lt;b&gt;",Baseline,0.' in table
    assert browser.problems == []


def test_colours_follow_the_screen(browser: Browser, pages: Pages) -> None:
    colour = "getComputedStyle(document.querySelector('#figure-glance .xtick text')).fill"
    browser.open(pages / "gain.html")
    assert browser.evaluate(colour) == "rgb(27, 31, 39)"
    browser.scheme(dark=True)
    browser.wait_for(f"{colour} === 'rgb(233, 236, 241)'")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert browser.problems == []


def test_print_is_light_fits_the_paper_and_opens_the_tables(browser: Browser, pages: Pages, tmp_path: Path) -> None:
    browser.open(pages / "gain.html", dark=True)
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    widths = "[...document.querySelectorAll('.main-svg')].map((svg) => svg.clientWidth)"
    browser.wait_for(f"Math.max(...{widths}) <= 690")
    ink = "getComputedStyle(document.querySelector('#figure-confusion .xtick text')).fill"
    browser.wait_for(f"{ink} === 'rgb(27, 31, 39)'")
    unfolded = "[...document.querySelectorAll('section details:not(.tools *)')].filter((box) => box.open).length"
    assert browser.evaluate(unfolded) > 8
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    browser.wait_for(f"{unfolded} === 0")
    assert browser.problems == []


def _wait_for_file(path: Path) -> None:
    end = time.monotonic() + 120
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < end, path
        time.sleep(0.05)
    time.sleep(0.1)
