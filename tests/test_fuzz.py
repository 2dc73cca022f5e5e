"""A few cases of tests/fuzz.py run in every suite; AUTOTRANSFER_FUZZ asks for more."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import save_npz
from faults import assert_one_line, call, few_settings, tampered
from fuzz import OTHERS, SOME, Fuzz
from fuzz_runs import unchanged_outside
from tiny import tiny

CASES = {"FUZZ": "5000", "SEED": "0"}  # variables of the environment: cases, and the first of them


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(tmp_path_factory.mktemp("fuzz") / "home")


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.slow] if name in OTHERS else []) for name in SOME]
)
def test_bad_input_gives_a_result_or_one_line(fuzz: Fuzz, target: str, campaign: Callable[..., None]) -> None:
    counts = fuzz.piece(target, range(12))
    campaign("fuzzing", counts.total(), counts["found"], counts["silent"])
    assert "refused" in counts or target == "report"  # a page is made of any name
    assert not fuzz.trap.exists()


@pytest.mark.parametrize("text", ["{", "3", "[" * 10**5, '{"chosen": {"name": 7}}', None, ("0.05", "x")])
def test_a_damaged_choice_is_refused(fuzz: Fuzz, tmp_path: Path, text: str | tuple[str, str] | None) -> None:
    run = Path(shutil.copytree(fuzz.folder / "finished", tmp_path / "run"))
    whole = (run / "choice.json").read_text()
    changed = json.dumps(json.loads(whole) | {"validation_q25": 0.5}) if text is None else text
    (run / "choice.json").write_text(changed if isinstance(changed, str) else whole.replace(*changed))
    for command in ("report", "resume"):
        assert_one_line(call(command, run), 2, "choice.json is damaged")


@pytest.mark.parametrize("weights", [None, b"abc", b""])
def test_weights_that_are_none_are_refused(fuzz: Fuzz, tmp_path: Path, weights: bytes | None) -> None:
    run = Path(shutil.copytree(fuzz.folder / "finished", tmp_path / "run"))
    with tampered(run / "run.sqlite") as connection:
        connection.execute("UPDATE jobs SET tensors = ?", (weights,))
        connection.execute("UPDATE facts SET value = 'false' WHERE name = 'complete'")
    with few_settings():
        assert_one_line(call("resume", run), 2, "has a job without weights", "restore the run's folder")


def test_names_without_utf8_reach_the_table_and_the_report(tmp_path: Path) -> None:
    rec = tiny(3)
    people = np.array(["a", "b\ud800", "c"])[rec.subject]
    save_npz(tmp_path / "odd.npz", at.Recordings(rec.X, np.array(["\udcff", "d"])[rec.y], people, sfreq=16))
    with few_settings():
        short = ("--epochs", 1, "--adaptation", "none", "--seeds", 1, "--device", "cpu")
        assert call("run", tmp_path / "odd.npz", *short, "--out", tmp_path / "run").code == 0
    assert "b\\ud800" in (tmp_path / "run" / "results.csv").read_text()
    assert call("predict", tmp_path / "run", tmp_path / "odd.npz", "--out", tmp_path / "predicted.csv").code == 0
    assert "\\udcff" in (tmp_path / "predicted.csv").read_text()


def test_writing_elsewhere_and_markup_would_be_noticed(fuzz: Fuzz, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="written beside the work"), unchanged_outside(tmp_path, tmp_path / "work"):
        (tmp_path / "new").touch()
    page = (fuzz.folder / "finished" / "report.html").read_text()
    fuzz.check_page(page)
    for text in ("<script>1</script>", "<img>", "<p onclick=x></p>", "<a href=http://x></a>"):
        with pytest.raises(AssertionError):
            fuzz.check_page(page.replace("<main>", f"<main>{text}"))


@pytest.mark.faults
def test_many_cases_of_all_targets(tmp_path: Path, campaign: Callable[..., None]) -> None:
    """AUTOTRANSFER_FUZZ is the number of cases. Findings are printed with what `Fuzz.case` repeats."""
    n_cases, seed = (int(os.environ.get(f"AUTOTRANSFER_{name}", value)) for name, value in CASES.items())
    counts = Fuzz(tmp_path / "home").run(n_cases, seed, tell=print)
    campaign("fuzzing", counts.total(), counts["found"], counts["silent"])


def test_a_campaign_that_injects_nothing_fails(campaign: Callable[..., None]) -> None:
    with pytest.raises(AssertionError, match="nothing was injected"):
        campaign("fuzzing", 0)
