"""TPE search fits sampled settings to the end, and continues after an interruption."""

from __future__ import annotations

from pathlib import Path

import optuna
import pandas as pd
import pytest

from autotransfer.censoring import CENSORS, MODES
from autotransfer.runs.run import Run
from autotransfer.search.procedure import perform_plan
from autotransfer.search.tpe import suggest
from faults import Interrupted, quiet, table_of
from tiny import create_run, described, tiny_file


def tpe_run(folder: Path, trials: int) -> Run:
    source = str(tiny_file(folder))
    options = described(source=source, search="tpe", trials=trials, max_epochs=4, batch_size=8, device="cpu")
    return create_run(folder / "run", options)


def test_every_setting_is_trained_to_its_end(tmp_path: Path) -> None:
    run = tpe_run(tmp_path, trials=4)
    choice = perform_plan(run, quiet, progress=False)
    table = pd.read_csv(run.folder / "results.csv")
    search = table[table["stage"] == "search"]
    assert len(search) == 4 + 1
    assert all(e.record.epochs == 4 for e in run.database.entries() if e.stage == "search")
    assert "paper_network" in {named.name for named in choice.shortlist}


@pytest.mark.slow
def test_the_same_seed_samples_the_same_settings_also_when_interrupted(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    choice = perform_plan(tpe_run(first, trials=20), quiet, progress=False)
    run = tpe_run(second, trials=20)
    for after in (5, 13, 1, 20):
        left = after

        def finish(*arguments: object, database: object = run.database) -> None:
            nonlocal left
            type(database).finish(database, *arguments)  # type: ignore[attr-defined]
            left -= 1
            if left == 0:
                raise Interrupted

        run.database.finish = finish  # type: ignore[method-assign]
        with pytest.raises(Interrupted):
            perform_plan(run, quiet, progress=False)
        run.database.close()
        run = Run.open(second / "run")
    perform_plan(run, quiet, progress=False)
    again = table_of(second / "run")
    pd.testing.assert_frame_equal(again, table_of(first / "run"), check_exact=True)
    assert choice.chosen.name in set(again["setting"])


def test_suggestions_are_valid_settings() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    settings = [suggest(study.ask()) for _ in range(300)]
    found = {method: {s.mode for s in settings if s.method == method} for method in CENSORS}
    assert found == {method: set(MODES) for method in CENSORS}
    assert len({s.strength for s in settings}) > 250
