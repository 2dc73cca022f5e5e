"""The committed pages follow from the committed tables of scores."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.results import PAGES, main

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.slow
def test_the_committed_pages_are_those_that_the_csvs_make(tmp_path: Path) -> None:
    copy = tmp_path / "results"
    for path in (DOCS / "results").rglob("*.csv"):
        target = copy / path.relative_to(DOCS / "results")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    pages = [tmp_path / page.name for page in PAGES]
    for page, committed in zip(pages, PAGES, strict=True):
        page.write_bytes(committed.read_bytes())
    main([str(copy), "--page", *map(str, pages)])
    for page, committed in zip(pages, PAGES, strict=True):
        assert page.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")
    for drawing in copy.glob("*.svg"):
        assert drawing.read_text(encoding="utf-8") == (DOCS / "results" / drawing.name).read_text(encoding="utf-8")
