"""A search of a list of settings from end to end: what it compares, what it calls a baseline, what it says."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from autotransfer.report.terminal import answer_lines
from autotransfer.runs.choice import read_choice
from autotransfer.runs.run import Run
from autotransfer.search.planning import plan_of
from autotransfer.search.procedure import conduct
from autotransfer.settings import Setting
from tiny import create_run, described, tiny_file

GRID = [
    base.replace(**change)
    for base in (Setting(), Setting(standardize="online"), Setting(standardize="online", align="online"))
    for change in ({}, {"dropout": 0.5}, {"lr": 3e-3}, {"method": "mmd", "mode": "conditional"}, {"method": "mmd"})
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("own")
    source = str(tiny_file(folder))
    made = create_run(
        folder / "run",
        described(source=source, grid=GRID, max_epochs=2, batch_size=8, device="cpu", rule="published"),
    )
    conduct(made, lambda _: None, shown=False)
    return made


def test_the_baseline_is_the_plain_network_and_the_best_uncensored_stands_beside_it(run: Run) -> None:
    choice = read_choice(run.folder)
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert table.loc[table["stage"] == "search", "setting"].is_unique
    assert (table["stage"] == "search").sum() == len(GRID)
    assert choice.paper_network.name == choice.shortlist[0].name == "paper_network"
    plain = table[(table["method"] == "none") & table["setting"].isin([named.name for named in choice.shortlist])]
    names = list(plain["setting"].unique())
    assert len(names) in (3, 4)
    q25 = choice.validation_q25
    assert q25[choice.best_uncensored.name] == max(q25[name] for name in names)
    own = table[(table["setting"] == choice.best_uncensored.name) & (table["stage"] != "nested")]
    scores = dict(zip(own["test_subject"].astype(str), own["test_score"], strict=True))
    assert choice.test_scores["best_uncensored"] == pytest.approx(scores)
    trainings = plan_of(run.prepared).trainings
    assert trainings - 3 <= len(table) <= trainings


def test_the_choice_says_how_it_treats_new_people(run: Run) -> None:
    choice = read_choice(run.folder)
    assert choice.adaptation == choice.chosen.setting.adaptation
    assert any("zero-shot" in line for line in answer_lines(replace(choice, adaptation="online")))
    shown = "\n".join(answer_lines(choice))
    assert ("best uncensored" in shown) == (choice.best_uncensored.name != "paper_network")
