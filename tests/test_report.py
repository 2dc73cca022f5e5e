"""The report file is well formed, self-contained and complete."""

from __future__ import annotations

import base64
import gzip
import math
import re
from dataclasses import replace
from functools import lru_cache

import pytest
from plotly.offline import get_plotlyjs

from autotransfer.report.escaping import replace_unshowable
from autotransfer.report.page import plotly_library, render_page
from autotransfer.report.summary import ProbeResult
from report_example import EXAMPLES, HOSTILE, finished, hostile
from report_outline import Outline, example, figure_data, labels, light


@pytest.mark.parametrize("name", EXAMPLES)
def test_structure(name: str) -> None:
    outline = Outline(example(name))
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert outline.tags.count("h1") == outline.tags.count("main") == outline.tags.count("title") == 1
    assert set(outline.values("aria-labelledby")) <= set(ids)
    assert {link[1:] for link in outline.values("href")} <= set(ids)
    assert len(outline.values("data-figure")) == len(figure_data(example(name))) <= 12


def test_nothing_is_loaded_from_anywhere() -> None:
    text = render_page(finished())
    outline = Outline(text)
    assert "src" not in [key for _, key, _ in outline.attributes]
    assert all(link.startswith("#") for link in outline.values("href"))
    assert not re.search(r"https?:|//cdn|@import|url\(", text)
    policy = next(value for _, key, value in outline.attributes if key == "content" and "default-src" in (value or ""))
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy  # falls back to 'none'


def test_plotly_is_in_the_file_once_and_packed() -> None:
    text = render_page(finished())
    packed = re.findall(r'<script type="text/plain" id="plotly-packed">([A-Za-z0-9+/=]+)</script>', text)
    assert len(packed) == 1
    assert gzip.decompress(base64.b64decode(packed[0])).decode() == get_plotlyjs()


def test_equal_runs_give_equal_files() -> None:
    assert light(finished()) == example("gain")
    first = plotly_library()
    plotly_library.cache_clear()
    assert first == plotly_library()


def test_numbers_that_are_not_finite_are_left_out() -> None:
    run = finished(6)
    fits = list(run.fits)
    for place in range(0, len(fits), 3):
        one = fits[place]
        history = {key: [1.0, math.inf, math.nan] for key in one.record.history}
        record = replace(one.record, validation_score=math.nan, test_score=math.nan, history=history)
        fits[place] = replace(one, record=record)
    leakage = {"paper_network": [ProbeResult("1", math.nan, 0.2, math.inf)]}
    choice = replace(run.choice, nested_test_scores=run.choice.nested_test_scores | {"1": math.nan})
    text = light(replace(run, fits=tuple(fits), leakage=leakage, choice=choice))
    assert not re.search(r"\bNaN\b|Infinity|\bnan\b|\binf\b", text)
    figure_data(text)


@lru_cache
def tame_tags() -> list[str]:
    return Outline(light(hostile("tame", names=("tame",)))).tags


@pytest.mark.parametrize(
    "name", [HOSTILE[0], HOSTILE[2], *(pytest.param(one, marks=pytest.mark.slow) for one in (HOSTILE[1], *HOSTILE[3:]))]
)
def test_hostile_names_are_text(name: str) -> None:
    text = light(hostile(name, names=(name,)))
    assert Outline(text).tags == tame_tags()
    assert " ".join(replace_unshowable(name).split()) in Outline(text).text
    assert "<script>alert" not in text
    _no_markup_in_plots(text)


def _no_markup_in_plots(text: str) -> None:
    for label in labels(figure_data(text)):
        rest = re.sub(r"</?b>|<br>|<extra></extra>", "", label)
        assert "<" not in rest, label
