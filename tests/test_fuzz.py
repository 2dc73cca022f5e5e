"""A few hundred cases of tests/fuzz.py on every run, and a hundred thousand when asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autotransfer.errors import UserError
from autotransfer.runs.saved_model import load_model
from fuzz import SOME, Fuzz


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(tmp_path_factory.mktemp("fuzz") / "home")


@pytest.mark.parametrize("target", SOME)
def test_bad_input_gives_a_result_or_one_line(fuzz: Fuzz, target: str) -> None:
    outcomes = {fuzz.case(target, seed) for seed in range(12)}
    assert "refused" in outcomes
    assert not fuzz.trap.exists()


@pytest.mark.parametrize(("name", "value"), [("kernel", 0), ("members", 0), ("channels", []), ("classes", [])])
def test_a_model_of_nothing_is_refused(fuzz: Fuzz, tmp_path: Path, name: str, value: object) -> None:
    """The right types, but no filters: a division by zero before it was looked at."""
    (tmp_path / "model.json").write_text(json.dumps(json.loads(fuzz.card) | {name: value}))
    (tmp_path / "model.safetensors").write_bytes(fuzz.weights)
    with pytest.raises(UserError, match=f"{name} of a model is 0, it must be at least 1; make the model again"):
        load_model(tmp_path)


@pytest.mark.faults
def test_a_hundred_thousand(tmp_path: Path) -> None:
    """AUTOTRANSFER_FUZZ says how many; findings are printed with what repeats them."""
    found: list[str] = []
    counts = Fuzz(tmp_path / "home").run(int(os.environ.get("AUTOTRANSFER_FUZZ", "5000")), tell=found.append)
    print("\n".join(found))
    assert not any(own["found"] for own in counts.values())
