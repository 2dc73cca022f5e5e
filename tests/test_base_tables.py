"""Tables of what a base is worth, from invented scores whose means are known."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import base_tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two armband sets with two seeds: a base adds .1 to closed forms on one and takes .02 on the other; one EEG set
    without a fine-tuned network."""
    rows = []
    for seed, people, adaptation in product((0, 1), base_tables.NUMBERS, ("zero-shot", "transductive")):
        for target, closed, base in (("emg_a", 0.6, 0.7), ("emg_b", 0.8, 0.78), ("eeg_c", 0.5, 0.5)):
            scores = dict.fromkeys(base_tables.MODELS | base_tables.ALONE, 0.3) | {
                "closed": closed,
                "closed+base": base,
            }
            scores |= {"closed+pooled": 0.3, "closed+joint": 0.3, "base": 0.4 + 0.02 * seed}
            if target == "eeg_c":
                del scores["closed+network+base+tuned_base"]
            fixed = {"target": target, "adaptation": adaptation, "people": people, "seed": seed}
            rows += [fixed | {"model": model, "score": value} for model, value in scores.items()]
    pd.DataFrame(rows).to_csv(tmp_path / "pretraining.csv", index=False)
    for name, gain in (("first_answer", 0.0), ("based", 0.05)):
        used = [
            (data, case, person, 0.5 + gain * (data == "emg_a"))
            for data, case, person in product(("emg_a", "emg_b"), base_tables.USED.values(), "pq")
        ]
        columns = ["data", "case", "subject", "score"]
        pd.DataFrame(used, columns=columns).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def test_means_are_over_sets_of_a_family_that_have_every_column(folder: Path) -> None:
    lines = base_tables.by_target(folder, base_tables.MODELS, "zero-shot").splitlines()
    assert lines[2].startswith("| emg_a | 0.600 | **0.700** | 0.300")
    assert "| mean of 2 armband sets | 0.700 | **0.740** |" in "\n".join(lines)
    assert lines[-1].startswith("| eeg_c | **0.500** | **0.500** |")
    assert lines[-1].endswith("| – |")


def test_differences_have_sets_and_seeds_as_units(folder: Path) -> None:
    table = base_tables.differences(folder)
    assert "| closed+base − closed | zero-shot | 2 | +0.040" in table
    assert "| base − random_base | transductive | 2 | +0.110" in table
    assert "| +0.100, +0.120 |" in table


def test_runs_with_and_without_a_base_are_compared_on_the_same_people(folder: Path) -> None:
    table = pd.read_csv(folder / "based.csv")
    table[table.subject != "q"].to_csv(folder / "based.csv", index=False)
    first, second, last = base_tables.used(folder).splitlines()[2:]
    assert first.startswith("| emg_a | 0.500 → 0.550 |")
    assert second.startswith("| emg_b | 0.500 → 0.500 |")
    assert "| +0.025 (" in last


def test_people_of_the_target(folder: Path) -> None:
    lines = base_tables.by_people(folder).splitlines()
    assert "people of the target, 2 sets" in lines[0]
    assert lines[2].startswith("| zero-shot | 2 | 0.700 | **0.740** |")
    assert len(lines) == 2 + 2 * len(base_tables.NUMBERS)
