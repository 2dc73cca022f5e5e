"""Runs that fit into a time: what is left out and in which order, what is kept, and that the time is kept."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.runs.choice import read_choice
from autotransfer.runs.options import PRESETS, RunOptions, parse_time
from autotransfer.runs.run import Run
from autotransfer.search import budget as budgets
from autotransfer.search.budget import LADDER, Budget, Plan, TimedExecutor, begin, fitted, shorter, why_folds
from autotransfer.search.estimate import ENDING, Costs, Speed, count_trainings
from autotransfer.search.kinds import closed_forms, networks
from autotransfer.search.procedure import conduct
from faults import quiet
from tiny import tiny, tiny_file


class Known(Costs):
    """Every training takes as long as it has epochs."""

    def __init__(self, recordings: at.Recordings) -> None:
        super().__init__(recordings, {}, 0)

    def training(self, setting: at.Setting, options: RunOptions) -> float:
        return 0.0 if setting.network.closed_form else float(setting.max_epochs)


MANY = tiny(24, per_class=2)


def options(**changes: object) -> RunOptions:
    return RunOptions.of(
        "recommended", **{"source": "tiny.npz", "preprocessing": "zero-shot", "device": "cpu"} | changes
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("90s", 90), ("0.5h", 1800), (" 2H ", 7200)]
)
def test_a_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 days", "0m", "30m2h", "nan", "1e9h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UserError, match="time"):
        RunOptions(source="x", time=text)


def test_the_ladder_is_gone_down_in_its_order_and_no_further_than_needed() -> None:
    costs = Known(MANY)
    whole = costs.seconds(options().for_data(MANY))
    topic = {rung.words: rung.topic for rung in LADDER}
    order = list(dict.fromkeys(topic.values()))
    before: list[str] = []
    for share in (1.3, 0.6, 0.3, 0.1, 0.05, 0.02):
        asked = options(time=f"{whole * share:.0f}s")
        found, left_out = fitted(MANY, asked, costs)
        topics = [topic[words] for words in left_out]
        assert topics == [one for one in order if one in topics], "in the order of the ladder"
        assert set(topics) >= {topic[words] for words in before}, "less time, more left out"
        assert costs.seconds(found.for_data(MANY)) <= whole * share
        before = left_out
    assert "folds above 5" in before
    assert found.for_data(MANY).n_folds == 5
    assert fitted(MANY, options(time=f"{2 * whole:.0f}s"), costs)[1] == []


def test_too_short_a_time_is_refused_with_the_least() -> None:
    with pytest.raises(UserError, match=r"time 30s is too short.*--time \d+m"):
        fitted(MANY, options(time="30s"), Known(MANY))
    found, left_out = fitted(MANY, options(time="300s"), Known(MANY))
    assert found.networks == "none"
    assert LADDER[-1].words in left_out, "the plain network will end early"
    with pytest.raises(UserError, match="nested full"):
        RunOptions(source="x", time="1h", nested="full", rule="published")


def test_the_papers_rule_keeps_its_folds() -> None:
    asked = options(grid="quick", rule="published", preprocessing=None)
    costs = Known(MANY)
    whole = costs.seconds(asked.for_data(MANY))
    found, left_out = fitted(MANY, replace(asked, time=f"{whole / 5:.0f}s"), costs)
    assert found.for_data(MANY).n_folds is None
    assert "all seeds but one" in left_out


def test_networks_that_are_left_out() -> None:
    rec = at.synthetic(n_subjects=4, n_channels=4, n_times=32)
    counts = {
        name: len(networks(options(networks=name), options().settings(), rec))
        for name in ("all", "main", "one", "none")
    }
    assert counts["all"] >= counts["main"] > counts["one"] > counts["none"] == 1
    with pytest.raises(UserError, match="networks"):
        options(networks="some")


def test_what_makes_a_run_shorter_is_named_with_its_time() -> None:
    lines = "\n".join(shorter(MANY, options(), Known(MANY)))
    for flag in ("--quick", "--grid uncensored", "--seeds 1", "--folds 5", "--time"):
        assert flag in lines
    few = options(seeds=1, grid="uncensored", folds=5)
    assert "--seeds" not in "\n".join(shorter(MANY, few, Known(MANY)))


def test_many_people_are_told_why_they_are_grouped() -> None:
    assert "24 people" in " ".join(why_folds(MANY, options()))
    assert why_folds(MANY, options(folds=10)) == why_folds(tiny(), options()) == []


def test_presets_of_a_run() -> None:
    assert options(grid="paper", preprocessing=None).rule == "published"
    assert options(grid="paper", preprocessing=None, rule="average").rule == "average"
    assert options(grid="paper", preprocessing=None).for_data(MANY).n_folds is None
    short = RunOptions.of("quick", source="x", preprocessing="auto")
    assert {name: getattr(short, name) for name in PRESETS["quick"]} == PRESETS["quick"]
    assert RunOptions.of("quick", source="x", seeds=2).seeds == 2
    assert RunOptions.of("quick", source="x", preprocessing="auto", search="tpe").grid == "quick"
    published = RunOptions.of("quick", source="x", rule="published")
    assert (published.grid, published.folds) == ("quick", "all")
    with pytest.raises(UserError, match="preset"):
        RunOptions.of("papre", source="x")


def test_costs_are_measured_in_seconds_and_grow_with_the_work(tmp_path: Path) -> None:
    rec, own = tiny(6), options(batch_size=8, epochs=4)
    start = time.monotonic()
    costs = Costs.measure(rec, own)
    assert time.monotonic() - start < 60
    once, thrice = (costs.seconds(replace(own, seeds=seeds)) - ENDING for seeds in (1, 3))
    assert thrice == pytest.approx(once * 3, rel=0.3)
    assert costs.seconds(replace(own, folds=3)) < costs.seconds(own)
    assert costs.seconds(replace(own, epochs=8)) - ENDING > 1.5 * (costs.seconds(own) - ENDING)
    assert all(isinstance(speed, Speed) and speed.row > 0 for speed in costs.speeds.values())


def small(folder: Path, **changes: object) -> RunOptions:
    return options(source=str(tiny_file(folder, n_subjects=6)), batch_size=8, lr=1e-2, grid="uncensored", **changes)


def planned(folder: Path, seconds: float, **changes: object) -> Run:
    """A run with a budget, without measuring anything."""
    own = small(folder, seeds=2, epochs=3, folds=3, **changes)
    run = Run.create(folder / "run", own)
    every = networks(own, own.settings(), run.recordings) + closed_forms(own, run.recordings)
    plan = Plan(seconds, 0.1 * seconds, ["what the plan left out"], {setting.key: 0.01 for setting in every})
    run.ledger.remember(plan=plan, spent=0.0)
    return run


def test_with_time_enough_nothing_more_is_left_out(tmp_path: Path) -> None:
    run = planned(tmp_path, 1000.0)
    choice = conduct(run, quiet, shown=False)
    assert choice.left_out == ["what the plan left out"]
    assert {e.seed for e in run.ledger.entries() if not e.setting.network.closed_form} == {0, 1}
    assert all(entry.status == "done" for entry in run.ledger.entries())
    assert read_choice(run.folder).left_out == choice.left_out
    run.ledger.close()


def test_what_would_not_end_in_time_is_not_begun(tmp_path: Path) -> None:
    """After the plain network and the closed forms all else is found to be too slow."""
    run = planned(tmp_path, 200.0)
    plan = run.ledger.recall("plan", Plan)
    assert plan is not None
    baseline = run.options.settings()[0].key
    slow = {key: 0.01 if key == baseline else 1e6 for key in plan.expected}
    run.ledger.remember(plan=replace(plan, left_out=[], expected=slow))
    choice = conduct(run, quiet, shown=False)
    trained = {entry.setting for entry in run.ledger.entries() if not entry.setting.network.closed_form}
    assert trained == {run.options.settings()[0]}
    assert len(choice.left_out) == 3 * 2, "three networks with two seeds"
    assert set(choice.nested_test_scores) == {str(person) for person in range(6)}, "everybody is tested"
    run.ledger.close()


def test_what_is_needed_ends_with_what_it_has_and_the_rest_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock stands still until the second network is being trained, and then it is late."""
    run = planned(tmp_path, 1000.0)
    late = {"needed": False, "others": False}
    monkeypatch.setattr(TimedExecutor, "ends", lambda self: self.needed and late["needed"])

    def after_epoch(self: TimedExecutor) -> None:
        if not self.needed and late["others"]:
            raise budgets.OutOfTime

    monkeypatch.setattr(TimedExecutor, "after_epoch", after_epoch)
    late.update(needed=True, others=True)
    choice = conduct(run, quiet, shown=False)
    plain = [entry for entry in run.ledger.entries() if entry.setting == run.options.settings()[0] and entry.seed == 0]
    assert [entry.record.epochs for entry in plain if entry.record] == [1, 1, 1]
    assert all(entry.status == "done" for entry in run.ledger.entries()), "nothing is left half done"
    assert not run.ledger.open_populations()
    assert not list(run.folder.glob("*.checkpoint"))
    assert any("last epochs" in line for line in choice.left_out)
    assert sum("given up" in line for line in choice.left_out) >= 2
    folder = run.folder
    run.ledger.close()
    again = Run.open(folder)
    trained = len(again.ledger.entries(records=False))
    assert conduct(again, quiet, shown=False).left_out == choice.left_out, "resume keeps to the plan"
    assert len(again.ledger.entries(records=False)) == trained
    again.ledger.close()


@pytest.mark.slow
def test_populations_share_the_time(tmp_path: Path) -> None:
    """Seven people in three folds make populations of two sizes; when time is short, both end early."""
    own = small(tmp_path, seeds=1, epochs=100_000, folds=3, networks="none")
    run = Run.create(tmp_path / "run", replace(own, source=str(tiny_file(tmp_path, n_subjects=7))))
    run.ledger.remember(plan=Plan(12.0, 4.0, [], {}), spent=0.0)
    budget = Budget.of(run)
    assert budget is not None
    plain = run.options.settings()[0]
    assert budget.train([plain], quiet, shown=False) == [plain]
    epochs = [entry.record.epochs for entry in run.ledger.entries() if entry.record is not None]
    assert len(epochs) == 3
    assert max(epochs) < 100_000
    assert min(epochs) > max(epochs) / 20, "no fold is trained at the cost of another"
    assert any("last epochs" in line for line in budget.left_out)
    run.ledger.close()


def test_a_resumed_run_has_the_time_that_is_left(tmp_path: Path) -> None:
    run = planned(tmp_path, 1000.0)
    run.ledger.remember(spent=600.0)
    budget = Budget.of(run)
    assert budget is not None
    assert 250 < budget.left < 1000 - 600 - 0.09 * 1000
    run.ledger.close()


def test_begin_plans_and_says_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Costs, "measure", classmethod(lambda cls, recordings, *_: Known(recordings)))
    monkeypatch.setattr("autotransfer.search.kinds.TAKEN_UP", {})  # a network less that would be left out first
    own = small(tmp_path, epochs=8)
    seconds = Known(tiny(6)).seconds(own.for_data(tiny(6))) / 2
    run = begin(tmp_path / "run", replace(own, time=f"{seconds:.0f}s"), tell=told.append)
    assert run.options.seeds == 1
    assert any("left out: all seeds but one" in line for line in told)
    plan = run.ledger.recall("plan", Plan)
    assert plan is not None
    assert plan.left_out == ["all seeds but one"]
    run.ledger.close()
    with pytest.raises(UserError, match="--cluster"):
        begin(tmp_path / "other", replace(own, time="1h"), here=False)
    assert not (tmp_path / "other").exists()


def test_a_long_run_says_so_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Costs, "measure", classmethod(lambda cls, recordings, *_: Known(recordings)))
    monkeypatch.setattr(budgets, "LITTLE", 0)
    begin(tmp_path / "short", small(tmp_path, epochs=2), tell=told.append).ledger.close()
    assert told == []
    begin(tmp_path / "long", small(tmp_path, epochs=10_000), tell=told.append).ledger.close()
    assert "takes about" in told[0]
    assert any("--time" in line for line in told)


def test_trainings_are_counted_by_folds() -> None:
    by_folds = {
        folds: count_trainings(MANY, options(folds=folds, epochs=2).for_data(MANY))[2] for folds in ("all", 10, 5)
    }
    assert by_folds["all"] / 24 == by_folds[10] / 10 == by_folds[5] / 5
