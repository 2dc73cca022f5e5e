"""Plans state what a run will do and in which order, and a run does what its plan states."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.runs.options import RunOptions, build_options, parse_time, resolve_options
from autotransfer.runs.preparation import Preparation
from autotransfer.search import plan as plans
from autotransfer.search.candidates import find_candidates
from autotransfer.search.plan import Plan, Stage, make_plan, read_plan, start_run
from faults import assert_one_line, call
from tiny import tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_results")


MANY = tiny(24, per_class=2)


def options(**changes: object) -> RunOptions:
    return build_options({"source": "tiny.npz", "device": "cpu"} | changes)


def prepared(asked: RunOptions, recordings: at.Recordings = MANY) -> Preparation:
    return Preparation(resolve_options(asked, recordings), recordings)


def planned(**changes: object) -> Plan:
    return make_plan(prepared(options(**changes)))


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("90s", 90), ("0.5h", 1800), (" 2H ", 7200)]
)
def test_a_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


def test_only_ensemble_runs_have_a_default_time_limit() -> None:
    assert options().time == "10m"
    assert options(time="none").seconds is None
    for changes in ({"rule": "published"}, {"grid": "paper"}, {"search": "tpe"}):
        assert options(**changes).seconds is None
        assert options(**{"time": "1h"} | changes).seconds == 3600


def test_stages_are_ordered_by_cost_and_gain() -> None:
    plan = planned(time="none")
    first, others, second, third, *rest = plan.stages
    assert closed(first)
    assert closed(others)
    assert [setting.family for setting in first.settings] == ["features", "tangent"]
    assert [one.fits[0].setting.family for one in (second, third)] == ["eegnet", "shallow"]
    assert not any(map(closed, rest))
    last = [training.setting.penalty is not None for stage in rest for training in stage.fits]
    assert last == sorted(last), "penalties come last"
    seeds = [training.seed for stage in plan.stages for training in stage.fits if training.setting.penalty is None]
    assert seeds == sorted(seeds), "one seed after the other"
    every = find_candidates(prepared(options())).networks
    trained = {(training.setting, training.seed) for stage in plan.stages for training in stage.fits}
    assert {(one, seed) for one in every for seed in range(3)} <= trained, "everything is in it"


def test_an_encoder_of_the_users_is_trained_first_after_the_linear_models() -> None:
    plan = planned(encoder="shallow")
    assert [setting.family for setting in plan.stages[0].settings] == ["features", "tangent"]
    assert plan.stages[1].settings == [plan.options.reference]
    assert [stage.ignores_time_limit for stage in plan.stages[:3]] == [False, True, False]
    for changes in ({"networks": "none"}, {"kinds": "linear"}):
        with pytest.raises(UserError, match="encoder is 'shallow'"):
            planned(encoder="shallow", **changes)
        assert not any(not stage.settings[0].network.is_closed_form for stage in planned(**changes).stages)


def closed(stage: Stage) -> bool:
    return all(setting.network.is_closed_form for setting in stage.settings)


def test_a_plan_depends_on_what_is_asked_and_not_on_the_time() -> None:
    for changes in ({}, {"adaptation": "none", "grid": "quick"}, {"grid": "paper", "rule": "average"}):
        one, other = (planned(**changes, time=time) for time in ("10s", "none"))
        assert replace(one, options=other.options) == other
        assert replace(one.options, time="none") == other.options


def test_a_run_begins_with_its_plan(tmp_path: Path) -> None:
    told: list[str] = []
    own = options(source=str(tiny_file(tmp_path, n_subjects=6)), batch_size=8, max_epochs=8, time="3m")
    run = start_run(tmp_path / "run", own, tell=told.append)
    plan = run.database.load_fact("plan", Plan)
    assert plan == make_plan(prepared(own, run.recordings)), "a dry run's"
    assert plan.options.source == own.source
    assert run.options == replace(plan.options, source=run.options.source)
    assert any("time limit 3:00" in line for line in told)
    run.database.close()


def test_a_plan_is_written_and_read(tmp_path: Path) -> None:
    plan = planned().as_performed(2)
    plans.write_plan(tmp_path, plan)
    for path in (tmp_path, tmp_path / "plan.json"):
        assert read_plan(path) == plan
    assert plan.stages == planned().stages[:2]
    assert plan.is_repeated
    for text, words in (
        ("{", "no plan"), ("[]", "no plan"), (schema.to_json(replace(plan, stages=[])), "no stages"),
        (schema.to_json(plan).replace('"seed": 0', '"seed": "x"'), "no plan"),
    ):  # fmt: skip
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(UserError, match=words):
            read_plan(tmp_path)
    with pytest.raises(UserError, match="there is no file"):
        read_plan(tmp_path / "nothing.json")


@pytest.fixture
def performed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which is the current one, with recordings and the plan of a run on them."""
    tiny_file(tmp_path).rename(tmp_path / "data.npz")
    own = prepared(options(source="data.npz", max_epochs=2, batch_size=8), tiny())
    plans.write_plan(tmp_path, make_plan(own).as_performed(1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads((folder / "plan.json").read_text())
    change(values)
    (folder / "plan.json").write_text(json.dumps(values))


def refused(folder: Path, *words: str, given: tuple[str, ...] = ()) -> None:
    """Both by a dry run and by a run, which leaves nothing behind."""
    for last in (("--dry-run",), ("--out", "run")):
        assert_one_line(call("run", "data.npz", "--plan", "plan.json", *given, *last), 2, *words)
    assert not (folder / "run").exists()


def test_a_plan_imports_nothing_by_itself(performed: Path) -> None:
    (performed / "strange.py").write_text("from pathlib import Path\nPath('imported').touch()\ndef go(**_): pass\n")
    edit(performed, lambda plan: plan["options"].update(encoder="strange:go"))
    refused(performed, "'strange:go'", "give it again: --encoder")
    refused(performed, "'strange:go', not 'shallow'", given=("--encoder", "shallow"))
    assert not (performed / "imported").exists()
    assert "strange" not in sys.modules
    named = call("run", "gone.npz", "--plan", "plan.json", "--encoder", "strange:go", "--dry-run")
    assert_one_line(named, 2, "gone.npz")
    assert (performed / "imported").exists(), "the user named it"


def _first(plan: dict[str, Any]) -> dict[str, Any]:
    training: dict[str, Any] = plan["stages"][0]["fits"][0]
    return training


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: _first(plan).update(seed=-1), "seed is -1"),
        (lambda plan: _first(plan)["setting"].update(delays=63, lag=5, represent="tangent"), "63 copies"),
        (lambda plan: _first(plan)["setting"].update(encoder="strange:go"), "'strange:go' is not registered"),
    ],
)
def test_edited_plans_are_refused_before_anything_is_written(
    performed: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(performed, change)
    refused(performed, words)
