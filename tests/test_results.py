"""The committed pages follow from the committed tables of scores."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from benchmarks import anytime, default_runs, first_stage
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


def test_runs_as_they_ship_are_compared_with_the_best_baseline_of_the_set() -> None:
    people = [
        {"data": "a", "adaptation": "zero-shot", "version": "v", "subject": str(k), "score": 0.8, "first": 0.7,
         "stages": 3, "first_seconds": 9, "seconds": 90, "time": "30m", "seeds": 3, "LDA": 0.6, "Riemann": 0.75}
        for k in range(4)
    ]  # fmt: skip
    line = default_runs.format_table(pd.DataFrame(people)).splitlines()[2]
    assert line == "| a | 4 | .750 → .800, +.050 (+.050 to +.050) |"


def test_what_a_limit_costs_is_paired_by_subject(tmp_path: Path) -> None:
    scores = {anytime.LIMITED: (0.5, 0.7, 0.9), anytime.FULL: (0.6, 0.8, 1.0)}
    results = [
        {"data": "a", "machine": machine, "subjects": 3, "result": number, "stage": "s", "seconds": seconds,
         "score": sum(values) / 3 - 0.1 * (number == 1), "end_reason": ""}
        for machine, values in scores.items()
        for number, seconds in enumerate((70.0, 200.0), 1)
    ]  # fmt: skip
    people = [
        {"data": "a", "machine": machine, "subject": str(k), "score": value}
        for machine, values in scores.items()
        for k, value in enumerate(values)
    ]
    people.append({"data": "a", "machine": anytime.FULL, "subject": "only here", "score": 0.0})
    pd.DataFrame(results).to_csv(tmp_path / "anytime.csv", index=False)
    pd.DataFrame(people).to_csv(tmp_path / "last_scores.csv", index=False)
    cells = [cell.strip() for cell in anytime.limit_costs(tmp_path).splitlines()[2].split("|")[1:-1]]
    assert cells[:4] == ["a", ".600 after 70 s", ".600", ".700 after 200 s"]
    assert cells[5] == "−.100 (−.100 to −.100)"


def test_the_first_stage_is_compared_on_subjects_with_both_scores(tmp_path: Path) -> None:
    cases = {"zero_shot": 0.7, "LDA": 0.6, "worse": 0.5, "windows": 0.6, "session": 0.8, "all_windows": 0.8,
             "before 5": 0.6, "calibrated 5": 0.9, "own 5": 0.7}  # fmt: skip
    rows = [
        {"data": data, "case": case, "subject": subject, "score": score}
        for data in ("a", "b")
        for case, score in cases.items()
        for subject in "pqr"
        if (data, case, subject) != ("a", "session", "p")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "first_stage.csv", index=False)
    table = first_stage.first_stage_table(tmp_path)
    assert "| best baseline → zero-shot | .600 → .700 | +.100 (+.100 to +.100) | 2 of 2 |" in table
    assert "| zero-shot → online session | .600 → .800 | +.200" in table
    few = pd.DataFrame([row for row in rows if row["case"] != "all_windows"])
    few.to_csv(tmp_path / "first_stage.csv", index=False)
    assert "| zero-shot → all windows at once | – |" in first_stage.first_stage_table(tmp_path)
