"""A few hundred cases of tests/fuzz.py on every run, and a hundred thousand when asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz import SOME, Fuzz


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(tmp_path_factory.mktemp("fuzz") / "home")


@pytest.mark.parametrize("target", SOME)
def test_bad_input_gives_a_result_or_one_line(fuzz: Fuzz, target: str) -> None:
    outcomes = {fuzz.case(target, seed) for seed in range(12)}
    assert "refused" in outcomes
    assert not fuzz.trap.exists()


@pytest.mark.faults
def test_a_hundred_thousand(tmp_path: Path) -> None:
    """AUTOTRANSFER_FUZZ says how many; findings are printed with what repeats them."""
    found: list[str] = []
    counts = Fuzz(tmp_path / "home").run(int(os.environ.get("AUTOTRANSFER_FUZZ", "5000")), tell=found.append)
    print("\n".join(found))
    assert not any(own["found"] for own in counts.values())
