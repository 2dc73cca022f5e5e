"""A run delivers an interim result after every stage, and a plan can be performed again."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

import autotransfer as at
from autotransfer import files
from autotransfer.errors import UserError
from autotransfer.models import saving
from autotransfer.models.loading import load_model
from autotransfer.runs import choice as choices
from autotransfer.runs import run as runs
from autotransfer.runs.choice import Choice, StageScore, describe_unfinished, read_choice
from autotransfer.runs.data_facts import fingerprint
from autotransfer.runs.database import UNDELIVERED
from autotransfer.runs.options import RunOptions
from autotransfer.runs.progress import OUT_OF_TIME, status_lines
from autotransfer.runs.run import Run
from autotransfer.search import baselines, procedure
from autotransfer.search import plan as plans
from autotransfer.search.plan import Plan, read_plan, start_run
from autotransfer.search.procedure import perform_plan
from autotransfer.training.closed_form import ClosedFormTrainer
from autotransfer.training.trainer import Trainer
from autotransfer.versions import versions
from faults import Interrupted, few_linear_candidates, printed, quiet, table_of
from tiny import create_run, described, save_folder, tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_results")

LINEAR = ["two linear models", "other linear models"]
STAGES = [*LINEAR, "network eegnet, seed 0", "network shallow, seed 0", "network eegnet (paper), seed 0"]


@pytest.fixture(scope="module", autouse=True)
def brief_stages() -> Iterator[None]:
    with few_linear_candidates():
        yield


def options(folder: Path, **changes: object) -> RunOptions:
    given = {"source": str(tiny_file(folder, n_subjects=4)), "adaptation": "zero-shot", "grid": "uncensored"}
    given |= {"max_epochs": 3, "batch_size": 8, "lr": 1e-2, "device": "cpu", "seeds": 1}
    return described(**given | changes)


def start(folder: Path, **changes: object) -> Run:
    return create_run(folder / "run", options(folder, **changes))


def plain(choice: Choice) -> Choice:
    """Without what the clock says."""
    return replace(choice, stages=[replace(one, seconds=0.0) for one in choice.stages])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = start(tmp_path_factory.mktemp("whole"))
    perform_plan(run, quiet, progress=False)
    run.database.close()
    return run.folder


@pytest.fixture(scope="module")
def interim_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted when its first answer stood."""
    run = start(tmp_path_factory.mktemp("answered"))
    with pytest.raises(Interrupted):
        perform_plan(run, quiet, progress=False, on_result=After(1))
    run.database.close()
    return run.folder


def assert_same(folder: Path, expected: Path) -> None:
    assert table_of(folder).equals(table_of(expected))
    assert plain(read_choice(folder)) == plain(read_choice(expected))
    assert (folder / "model/model.safetensors").read_bytes() == (expected / "model/model.safetensors").read_bytes()
    mine, other = (replace(read_plan(one), options={}) for one in (folder, expected))
    assert mine == other


def test_every_stage_has_an_interim_result_and_the_last_states_its_reason(whole: Path, tmp_path: Path) -> None:
    choice = read_choice(whole)
    assert [stage.name for stage in choice.stages] == STAGES
    assert choice.end_reason == "everything in its plan was trained"
    people = set(map(str, range(4)))
    for stage in choice.stages:
        assert set(stage.scores) == people
        assert stage.score == pytest.approx(np.mean(list(stage.scores.values())))
    seconds = [stage.seconds for stage in choice.stages]
    assert seconds == sorted(seconds)
    assert choice.nested_test_scores == choice.stages[-1].scores
    assert choice.paper_network.name == "paper_network"
    assert describe_unfinished(whole) == []
    with pytest.raises(UserError, match=r"there is no .*choice\.json; .* autotransfer resume"):
        read_choice(whole / "model")
    (tmp_path / "choice.json").write_text("{")
    assert "choice.json is damaged" in describe_unfinished(tmp_path)[0], "predict says so, and the model is used"
    assert [stage.name for stage in read_plan(whole).stages] == STAGES


class After:
    """Interrupts a run once so many answers stand, as its last act."""

    def __init__(self, answers: int) -> None:
        self.left = answers

    def __call__(self, run: Run, choice: Choice) -> None:
        self.left -= 1
        if self.left == 0:
            raise Interrupted


def writes(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], None]) -> None:
    """Calls `act` before any file of a run is replaced."""
    real = files.write_atomically

    def write(path: Path, content: bytes | str) -> None:
        act(path)
        real(path, content)

    for module in (saving, procedure, plans, choices):
        monkeypatch.setattr(module, "write_atomically", write)


WRITES = ["results.csv", "model.next.safetensors", "model.json", "README.md", "choice.json", "plan.json"]


@pytest.mark.parametrize("places", [(2, 3), pytest.param(tuple(range(len(WRITES) + 1)), marks=pytest.mark.slow)])
def test_a_kill_at_any_write_leaves_a_whole_model(
    places: tuple[int, ...], tmp_path: Path, interim_run: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second answer is killed before each of these files in turn; after all of them it is allowed to end."""
    folder = Path(shutil.copytree(interim_run, tmp_path / "run"))
    first = load_model(folder / "model").card.scores["stages"]
    left, seen, stages = [0], list[str](), list[list[str]]()

    def act(path: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            seen.append(path.name)
            raise Interrupted

    with monkeypatch.context() as patch:
        writes(patch, act)
        for n in places:
            left[0] = n
            again = Run.open(folder)
            with contextlib.suppress(Interrupted):
                perform_plan(again, quiet, progress=False, on_result=After(1))
            again.database.close()
            stages.append(load_model(folder / "model").card.scores["stages"])
            read_choice(folder)
            read_plan(folder)
    assert seen == [WRITES[n] for n in places if n < len(WRITES)]
    assert first == STAGES[:1]
    assert stages == [STAGES[: 1 if n < 3 else 2] for n in places], "the card is the moment"
    last = Run.open(folder)
    perform_plan(last, quiet, progress=False)
    last.database.close()
    assert_same(folder, whole)


@pytest.mark.slow
def test_a_plan_that_was_performed_is_performed_again(tmp_path: Path, whole: Path) -> None:
    """Four of its stages, as a run had left it when the time was over."""
    performed = read_plan(whole)
    short = replace(performed, stages=performed.stages[:4])
    runs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        own = replace(options(tmp_path / name), time="1s")
        run = start_run(tmp_path / name / "run", replace(short.options, source=own.source), earlier_plan=short)
        choice = perform_plan(run, quiet, progress=False)
        assert [stage.name for stage in choice.stages] == STAGES[:4]
        assert choice.end_reason == "everything in its plan was trained"
        run.database.close()
        runs.append(run.folder)
    assert_same(*runs)
    assert read_choice(runs[0]).stages[3].scores == read_choice(whole).stages[3].scores


def test_without_time_only_the_first_stage_is_performed(tmp_path: Path) -> None:
    run = start(tmp_path, time="0.001s")
    choice = perform_plan(run, quiet, progress=False)
    assert [stage.name for stage in choice.stages] == STAGES[:1]
    assert choice.end_reason == OUT_OF_TIME
    assert choice.undelivered_stages == STAGES[1:]
    assert {entry.setting.network.is_closed_form for entry in run.database.entries()} == {True}
    assert read_plan(run.folder).stages[0].name == STAGES[0]
    run.database.close()
    assert "finished" in status_lines(run.folder)[0]


def test_a_run_that_ended_can_be_given_more_time(tmp_path: Path, whole: Path) -> None:
    run = start(tmp_path, time="0.001s")
    perform_plan(run, quiet, progress=False)
    run.database.close()
    longer = f"autotransfer resume {run.folder} --time 10m"
    assert longer in printed("resume", run.folder)
    assert longer in status_lines(run.folder)[0]
    (run.folder / "report.html").unlink()  # as if it was stopped after all else was done
    again = printed("resume", run.folder)
    assert longer in again
    assert (run.folder / "report.html").exists()
    assert "everything in its plan was trained" in printed("resume", run.folder, "--time", "none")
    assert "--time" not in printed("resume", run.folder)
    choice, expected = read_choice(run.folder), read_choice(whole)
    assert [stage.name for stage in choice.stages] == STAGES
    assert choice.undelivered_stages == []
    assert plain(choice).estimate == plain(expected).estimate
    assert table_of(run.folder).equals(table_of(whole))
    with pytest.raises(UserError, match="everything in its plan was trained; leave --time out"):
        printed("resume", run.folder, "--time", "10m")


def test_a_stage_cut_by_time_is_completed_by_resume(tmp_path: Path, whole: Path) -> None:
    """Time decides how far a run gets: interim results are those of a run with any other clock."""
    run = start(tmp_path, time="1h")
    real = time.monotonic

    def late() -> float:
        """Return the time, two hours later once the first network is in training."""
        return real() + 7200 * bool(run.database.load_fact("delivered_stages", int) == 2 and _running(run))

    told_lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", late)
        choice = perform_plan(run, told_lines.append, progress=False)
    assert [stage.name for stage in choice.stages] == STAGES[:2]
    assert [stage.scores for stage in choice.stages] == [stage.scores for stage in read_choice(whole).stages[:2]]
    assert choice.end_reason == OUT_OF_TIME
    assert choice.undelivered_stages == STAGES[2:]
    assert any(line.startswith(f"{STAGES[2]}: stopped at the time limit") for line in told_lines)
    assert all(entry.setting.network.is_closed_form for entry in run.database.entries())
    hidden = [entry for entry in run.database.entries(hidden=True) if entry.stage == UNDELIVERED]
    assert {entry.setting.encoder for entry in hidden} == {"eegnet"}
    run.database.close()
    printed("resume", run.folder, "--time", "none")
    assert_same(run.folder, whole)
    again = Run.open(run.folder)
    assert {entry.starts for entry in again.database.entries()} == {1}, "it went on where it was stopped"
    again.database.close()


@pytest.mark.parametrize("limit", [65, 80])
@pytest.mark.parametrize("slow_from", ["first result", "last result"])
def test_the_limit_is_kept_if_everything_takes_half_as_long_again_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, slow_from: str
) -> None:
    """An epoch of networks takes 4 s, a linear fit 1 s, a report 4 s, and a subject in the last result 3 s."""
    now, results = [0.0], list[str]()

    def work(seconds: float) -> None:
        now[0] += seconds * (1.5 if slow_from in results else 1.0)

    def find_weights(run: Run, candidates: object, centered: object, subjects: Sequence[int]) -> None:
        results.extend(["last result"] * (len(subjects) > 1))
        work(len(subjects) + 1.0)

    def replay(run: Run, choice: Choice, predictions: dict[int, object], online: object) -> None:
        work(2.0 * len(predictions))

    def train_epoch(self: Trainer, train: Callable[[Trainer], None]) -> None:
        train(self)
        work(1.0 if isinstance(self, ClosedFormTrainer) else 4.0)

    def report(run: Run, choice: Choice) -> None:
        work(4.0)
        results.append("first result")

    for kind in (Trainer, ClosedFormTrainer):
        monkeypatch.setattr(kind, "train_epoch", partialmethod(train_epoch, train=kind.train_epoch))
    monkeypatch.setattr(procedure, "replay_subjects", replay)
    monkeypatch.setattr(procedure, "find_online_weights", find_weights)
    monkeypatch.setattr(procedure, "PROBE_SECONDS", 0.0)
    monkeypatch.setattr(procedure, "expects_gain", lambda *_: True)
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    run = start(tmp_path, time=f"{limit}s")
    choice = perform_plan(run, quiet, progress=False, on_result=report)
    assert choice.end_reason == OUT_OF_TIME
    assert len(choice.stages) >= 2
    assert 0.5 * limit < now[0] <= 1.03 * limit
    run.database.close()


def test_without_networks_costly_baselines_wait_for_the_last_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly = baselines.Baseline(lambda recordings, fold: np.full((len(fold.test), recordings.n_classes), 0.5))
    monkeypatch.setattr(baselines, "BASELINES", {"costly": costly})
    skipped: list[dict[str, str]] = []
    run = start(tmp_path, networks="none", time="1h")
    perform_plan(run, quiet, progress=False, on_result=lambda _, choice: skipped.append(choice.skipped_baselines))
    run.database.close()
    *interim, last = skipped
    assert [names["costly"] for names in interim] == [baselines.LATER] * len(interim) != []
    assert last == {}


def _running(run: Run) -> list[str]:
    return [key for key, status in run.database.statuses().items() if status == "running"]


def test_it_stops_when_no_gain_is_expected_unless_all_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure, "expects_gain", lambda scores, *_: len(scores) < 2)
    monkeypatch.setattr(Plan, "n_stages_with_new_encoders", 1)
    run = start(tmp_path, time="1h")
    choice = perform_plan(run, quiet, progress=False)
    assert [stage.name for stage in choice.stages] == STAGES[:2]
    assert choice.end_reason == "no more gain was expected"
    assert choice.undelivered_stages == []
    run.database.close()


@pytest.mark.slow
def test_a_subject_whose_run_would_have_stopped_earlier_has_the_score_of_that_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subject 0 alone gains from the second stage on: others would have stopped before, and it is they who decide."""

    def decide(scores: list[dict[str, float]], without: object = ()) -> bool:
        return "0" not in without or len(scores) < 2  # type: ignore[operator]

    monkeypatch.setattr(procedure, "expects_gain", decide)
    monkeypatch.setattr(Plan, "n_stages_with_new_encoders", 1)
    run = start(tmp_path, time="1h")
    choice = perform_plan(run, quiet, progress=False)
    assert len(choice.stages) == 5
    for name, score in choice.nested_test_scores.items():
        assert score == choice.stages[1 if name == "0" else -1].scores[name]
    kinds = {setting.family for setting in (one.setting for one in choice.shortlist) if setting.encoder == "shallow"}
    assert kinds == {"shallow"}
    assert not any("shallow" in name for name in choice.ensemble.nested["0"])
    folder = run.folder
    run.database.close()
    assert Run.open(folder).database.load_fact("stage_scores", list[StageScore]) == choice.stages


def test_a_run_stops_if_its_data_change_and_goes_on_when_they_are_restored(tmp_path: Path) -> None:
    """X of a folder stays in its file, where others can write to it."""
    save_folder(tmp_path / "data", tiny(n_subjects=4))
    run = start_run(tmp_path / "run", replace(options(tmp_path, time="none"), source=str(tmp_path / "data")))
    windows = np.load(tmp_path / "data" / "X.npy", mmap_mode="r+")

    def change(*_: object) -> None:
        windows[0, 0, 0] += 1

    with pytest.raises(UserError, match=r"differs from the data of"):
        perform_plan(run, quiet, progress=False, on_result=change)
    assert len(read_choice(run.folder).stages) == 1, "the interim result before the change stays"
    run.database.close()
    windows[0, 0, 0] -= 1
    printed("resume", run.folder)
    choice = read_choice(run.folder)
    assert [stage.name for stage in choice.stages] == STAGES
    assert choice.fingerprint == fingerprint(at.load(tmp_path / "data"))


def test_fits_remember_the_versions_that_they_were_made_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(tmp_path, time="none")

    def stop(*_: object) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        perform_plan(run, quiet, progress=False, on_result=stop)
    old, n_before = versions(), run.database.counts()["done"]
    run.database.close()
    monkeypatch.setattr(runs, "versions", lambda: old | {"torch": "9.9"})
    again = Run.open(run.folder)
    with pytest.warns(UserWarning, match=rf"other versions \(torch {re.escape(old['torch'])} → 9.9\)"):
        perform_plan(again, quiet, progress=False)
    n_after, made_with = again.database.counts()["done"] - n_before, again.database.fit_versions()
    again.database.close()
    first, last = (f"torch {old['torch']}", n_before), ("torch 9.9", n_after)
    fewer, fits = min(last, first, key=lambda pair: pair[1])
    assert made_with["other versions"] == f"{fewer} ({fits} of {n_before + n_after} fits)"
    assert load_model(run.folder).card.made_with == made_with
