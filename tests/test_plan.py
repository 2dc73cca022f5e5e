"""Plans: what a run will do, in which order, what a limit cuts, and that a run does what its plan says."""

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
from autotransfer.runs.options import RunOptions, describe_run, parse_time, resolved
from autotransfer.runs.preparation import Preparation
from autotransfer.search import plan as plans
from autotransfer.search import planning
from autotransfer.search.costs import Costs
from autotransfer.search.kinds import candidates_of
from autotransfer.search.plan import Plan, read_plan
from autotransfer.search.planning import begin, plan_of, plan_within_limit
from autotransfer.training.timing import SolvingSpeed, Speed
from faults import assert_one_line, call
from tiny import tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")


class Known(Costs):
    """Every training of a network takes as long as it has epochs."""

    def __init__(self, recordings: at.Recordings) -> None:
        super().__init__(recordings, {})

    def training(self, setting: at.Setting, held_out: int) -> float:
        return 0.01 if setting.network.closed_form else float(setting.max_epochs)


MANY = tiny(24, per_class=2)


def options(**changes: object) -> RunOptions:
    return describe_run({"source": "tiny.npz", "device": "cpu"} | changes)


def prepared(asked: RunOptions, recordings: at.Recordings = MANY) -> Preparation:
    return Preparation(resolved(asked, recordings), recordings)


def planned(spent: float = 0.0, costs: type[Known] = Known, **changes: object) -> Plan:
    asked = options(**changes)
    return plan_within_limit(prepared(asked), asked, costs(MANY), spent)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("90s", 90), ("0.5h", 1800), (" 2H ", 7200)]
)
def test_a_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


def test_a_limit_is_usual_where_kinds_are_averaged_and_nowhere_else() -> None:
    assert options().time == "30m"
    assert options(time="none").seconds is None
    for changes in ({"rule": "published"}, {"grid": "paper"}, {"search": "tpe"}):
        assert options(**{"adaptation": "auto"} | changes).time is None
        assert options(**{"adaptation": "auto", "time": "1h"} | changes).seconds == 3600


def test_stages_go_from_what_is_quick_to_what_gains_least() -> None:
    plan = planned(time="none")
    first, second, third, *rest = plan.stages
    assert first.solved
    assert [one.trainings[0].setting.kind for one in (second, third)] == ["eegnet", "shallow"]
    assert not any(one.solved for one in rest)
    last = [setting.penalty is not None for stage in rest for setting, _ in stage.trainings]
    assert last == sorted(last), "penalties come last"
    seeds = [training.seed for stage in plan.stages for training in stage.trainings if training.setting.penalty is None]
    assert seeds == sorted(seeds), "one seed after the other"
    every = candidates_of(prepared(options())).networks
    trained = {training for stage in plan.stages for training in stage.trainings}
    assert {(one, seed) for one in every for seed in range(3)} <= trained, "everything is in it"


def test_a_limit_makes_room_for_a_network_of_each_kind() -> None:
    whole = planned(time="none")
    main = sum(stage.seconds for stage in whole.stages if stage.main)
    before: list[str] = []
    for share in (1.3, 0.8, 0.4, 0.2):
        plan = planned(time=f"{main * share:.0f}s")
        assert len(plan.left_out) >= len(before), "less time, more left out"
        assert sum(stage.seconds for stage in plan.stages if stage.main) <= main * share
        assert any(not stage.solved for stage in plan.expected)
        before = plan.left_out
    assert plan.folds == 5
    assert planned(time=f"{10 * main:.0f}s").left_out == []


def test_the_papers_rule_keeps_its_folds() -> None:
    asked = {"grid": "quick", "rule": "published", "adaptation": None}
    whole = planned(**asked, time="none")
    plan = planned(**asked, time=f"{whole.stages[0].seconds / 40:.0f}s")
    assert plan.folds == 24


def test_a_search_that_does_not_fit_is_refused_with_the_least() -> None:
    with pytest.raises(UserError, match=r"time 30s is too short.*--time \d+m"):
        planned(time="30s", grid="paper", rule="average")


def test_costs_are_measured_and_grow_with_the_work() -> None:
    own = prepared(options(batch_size=8, max_epochs=4, grid="uncensored", time="none"), tiny(6))
    costs = Costs.measure(own, candidates_of(own).every)

    def trained(**changes: int) -> float:
        plan = plan_of(replace(own, options=replace(own.options, **changes)))
        trainings = [one for stage in plan.stages for one, _ in stage.trainings]
        return sum(costs.training(one, 2) for one in trainings if not one.network.closed_form)

    assert trained(seeds=3) == pytest.approx(3 * trained(seeds=1), rel=0.05)
    assert trained(constants=own.options.constants | {"max_epochs": 8}) > 1.5 * trained()
    assert {type(speed) for speed in costs.speeds.values()} == {Speed, SolvingSpeed}
    assert all(costs.training(one, 2) > 0 for stage in plan_of(own).stages for one in stage.settings)


def test_a_run_begins_with_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Costs, "measure", classmethod(lambda cls, prepared, *_: Known(prepared.recordings)))
    monkeypatch.setattr(planning, "LITTLE", 0)
    own = options(source=str(tiny_file(tmp_path, n_subjects=6)), batch_size=8, max_epochs=8, time="3m")
    run = begin(tmp_path / "run", own, tell=told.append)
    plan = run.ledger.recall("plan", Plan)
    assert plan is not None
    assert plan == plan_within_limit(prepared(own, run.recordings), own, Known(run.recordings), plan.spent), (
        "a dry run's"
    )
    assert plan.options.source == own.source
    assert run.options == replace(plan.options, source=run.options.source)
    assert any("first answer" in line for line in told)
    run.ledger.close()
    with pytest.raises(UserError, match="--cluster"):
        begin(tmp_path / "other", replace(own, time="1h"), here=False)
    assert not (tmp_path / "other").exists()


def test_a_plan_is_written_and_read(tmp_path: Path) -> None:
    plan = planned().as_performed([0, 2])
    plans.write_plan(tmp_path, plan)
    for path in (tmp_path, tmp_path / "plan.json"):
        assert read_plan(path) == plan
    assert [stage.name for stage in plan.stages] == [planned().stages[n].name for n in (0, 2)]
    assert (plan.limit, plan.fixed) == (None, True)
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
    plans.write_plan(tmp_path, plan_of(own).as_performed([0]))
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
    training: dict[str, Any] = plan["stages"][0]["trainings"][0]
    return training


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: _first(plan).update(seed=-1), "seed is -1"),
        (lambda plan: _first(plan)["setting"].update(delays=63, lag=5, represent="tangent"), "63 copies"),
        (lambda plan: _first(plan)["setting"].update(encoder="strange:go"), "'strange:go' is not known"),
    ],
)
def test_edited_plans_are_refused_before_anything_is_written(
    performed: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(performed, change)
    refused(performed, words)


def test_a_ring_that_a_plan_needs(performed: Path) -> None:
    edit(performed, lambda plan: _first(plan).update(setting={"turn": "transductive"}))
    own = replace(tiny(), ring=None)
    plan = read_plan(performed)
    with pytest.raises(UserError, match=r"cannot be performed.*ring"):
        plan.for_recordings(Preparation(plan.options, own))


def test_a_plan_of_an_earlier_version_is_read(performed: Path) -> None:
    expected = read_plan(performed)
    edit(performed, lambda plan: plan.update(pairs=0, busy=1.5) or plan["options"].update(nested="fast", loss="huber"))
    edit(performed, lambda plan: plan["options"].pop("clean"))
    assert read_plan(performed) == expected
