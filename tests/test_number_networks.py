"""Networks that learn a continuous target: the loss, members in a stack, the average, files, and going on."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app, running
from autotransfer.folds import Fold
from autotransfer.models.regression import NetworkPart, RegressionModel
from autotransfer.models.regression_card import RegressionPart
from autotransfer.recordings.raw import Raw
from autotransfer.recordings.targets import Targets
from autotransfer.report.regression_page import write_run
from autotransfer.runs import executor
from autotransfer.runs.number_run import NumberRun, open_or_begin
from autotransfer.runs.options import RunOptions
from autotransfer.runs.regression import read_regression_choice
from autotransfer.runs.study import study_text
from autotransfer.search.number_networks import NumberPlan, candidate_name, network_candidates
from autotransfer.search.regression import conduct_regression
from autotransfer.settings import LOSSES
from autotransfer.training.closed_form import population_of
from autotransfer.training.number_trainer import NumberTrainer, huber
from autotransfer.training.train import train
from autotransfer.training.windows import windows_for

AVERAGED = {"schedule": "constant", "checkpoint": "averaged"}
SHALLOW = {"encoder": "shallow", "standardise": "train", "power_filters": 4, **AVERAGED}


def power(people: int = 4, windows: int = 24, times: int = 32) -> Targets:
    """The target is the log power of both channels."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(people), windows)
    y = rng.normal(size=len(who))
    X = np.exp(y / 2)[:, None, None] * rng.normal(size=(len(who), 2, times))
    return Targets.of(Raw(X=X, y=50 + 10 * y, subject=who, sfreq=64.0))


def folds_of(targets: Targets) -> list[Fold]:
    subject = targets.recordings.subject.numpy()
    return [Fold(np.flatnonzero(subject != p), test=np.flatnonzero(subject == p)) for p in np.unique(subject)]


def options(**given: Any) -> RunOptions:
    usual = {"kinds": "features", "networks": "one", "epochs": 2, "seeds": 1, "batch_size": 24, "time": "none"}
    return RunOptions.of("recommended", source="", target="continuous", **usual | given)


def test_huber_is_torchs_and_half_the_square_without_a_knee() -> None:
    error = torch.linspace(-4, 4, 41, dtype=torch.float64, requires_grad=True)
    for knee in (0.5, 1.0):
        ours = huber(error, torch.tensor(knee, dtype=torch.float64))
        theirs = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=knee)
        torch.testing.assert_close(ours, theirs)
        slope = torch.autograd.grad(ours.sum(), error)[0]
        torch.testing.assert_close(slope, error.detach().clamp(-knee, knee))
    torch.testing.assert_close(huber(error, torch.tensor(torch.inf)), error.square() / 2)
    torch.testing.assert_close(
        torch.autograd.grad(huber(error, torch.tensor(torch.inf)).sum(), error)[0], error.detach()
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_a_network_learns_the_target_of_people_left_out(loss: str) -> None:
    """A sign error in the loss, or a target of other rows, would drive predictions away."""
    targets = power(windows=48)
    fold = folds_of(targets)[0]
    setting = at.Setting(**SHALLOW, max_epochs=40, batch_size=48, lr=1e-2, loss=loss)
    (outcome,) = train(targets.recordings, [at.Job(setting, fold)], "cpu")
    known = targets.values[fold.train]
    predicted = known.mean() + known.std() * outcome.held_out_log_probs[:, 0].double().numpy()
    assert r2_score(targets.values[fold.test], predicted) > 0.5
    losses = outcome.history["train_loss"]
    assert losses[-1] < losses[0] / 2


def test_a_member_of_a_stack_is_the_member_alone() -> None:
    """Two folds, seeds and losses in one population: each gets what it would get alone."""
    targets = power()
    folds, settings = folds_of(targets), [at.Setting(**SHALLOW, max_epochs=3, batch_size=24, loss=k) for k in LOSSES]
    jobs = [at.Job(s, fold, seed) for s in settings for fold in folds[:2] for seed in (0, 1)]
    together = train(targets.recordings, jobs, "cpu")
    assert {outcome.population for outcome in together} == {len(jobs)}
    for job, outcome in list(zip(jobs, together, strict=True))[1::3]:
        (alone,) = train(targets.recordings, [job], "cpu")
        assert torch.equal(outcome.held_out_log_probs, alone.held_out_log_probs)
        for name, tensor in alone.state.items():
            assert torch.equal(outcome.state[name], tensor), name
    assert not torch.allclose(together[0].held_out_log_probs, together[4].held_out_log_probs), "losses differ"


def test_members_that_stay_keep_their_own_target() -> None:
    targets = power()
    folds = folds_of(targets)
    jobs = [at.Job(at.Setting(**SHALLOW, max_epochs=2, batch_size=24, loss="huber"), fold) for fold in folds]
    windows = windows_for(targets.recordings, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    population = population_of(jobs, windows)
    assert isinstance(population, NumberTrainer)
    before = population.scale.clone()
    population.select([1, 3])
    torch.testing.assert_close(population.scale, before[[1, 3]])
    means = [targets.values[folds[k].train].mean() for k in (1, 3)]
    np.testing.assert_allclose(population.scale[:, 0].numpy(), means)


def test_a_loss_of_numbers_is_refused_where_classes_are_told_apart() -> None:
    targets = power()
    recordings = at.Recordings(targets.recordings.X, targets.recordings.y, targets.recordings.subject)
    job = at.Job(at.Setting(**SHALLOW, max_epochs=1, loss="huber"), folds_of(targets)[0])
    with pytest.raises(at.UserError, match="continuous target"):
        train(recordings, [job], "cpu")
    with pytest.raises(at.UserError, match="'huber', 'squared'"):
        at.Setting(loss="absolute")
    with pytest.raises(at.UserError, match="continuous target"):
        RunOptions.of("recommended", source="x", loss="squared")


def test_which_networks_are_tried() -> None:
    targets = power()
    for networks, adaptation, number in (("all", "zero-shot", 2), ("one", "zero-shot", 1), ("all", "online", 3)):
        asked = options(networks=networks, adaptation=adaptation, loss="squared", epochs=2)
        candidates = network_candidates(asked, targets.recordings)
        assert len(candidates) == number
        for setting in candidates:
            assert setting.penalty is None
            assert not setting.augmentation
            assert (setting.training.checkpoint, setting.training.loss) == ("averaged", "squared")
    assert not network_candidates(options(networks="none"), targets.recordings)
    assert RunOptions.of("quick", source="", target="continuous").networks == "none"
    for penalty in ({"grid": "few"}, {"grid": "paper"}):
        with pytest.raises(at.UserError, match="marginal, conditional, complementary"):
            options(**penalty)


# ---- the whole search ------------------------------------------------------------------------------------------------


def conducted(folder: Path, targets: Targets, asked: RunOptions) -> Any:
    with open_or_begin(folder, targets, asked) as run:
        return conduct_regression(run, shown=False, answered=partial(write_run, folder))


def networks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that prefer networks, so that they are delivered however little they have learned."""
    from autotransfer.search import regression

    def network_only(tried: Any, *_: Any) -> Any:
        weights = np.array([0.0 if one.setting.network.closed_form else 0.5 for one in tried])
        return [0 for _ in tried], weights if weights.any() else np.full(len(tried), 1 / len(tried))

    monkeypatch.setattr(regression, "_decide", network_only)


def test_networks_are_delivered_saved_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    networks_alone(monkeypatch)
    targets = power()
    regression = conducted(tmp_path / "run", targets, options(seeds=2, adaptation="online"))
    (part,) = regression.model.parts
    assert isinstance(part, NetworkPart)
    assert (part.size, regression.model.card.parts[0].members) == (8, 8)
    X, who = targets.recordings.X.numpy(), targets.recordings.subject.numpy()
    predicted = regression.model.predict(X, subject=who)
    loaded = at.load_model(tmp_path / "run")
    assert isinstance(loaded, RegressionModel)
    np.testing.assert_array_equal(loaded.predict(X, subject=who), predicted)
    np.testing.assert_allclose(loaded.predict(X[:1]), loaded.predict(X[:5])[:1], rtol=1e-5)  # online: one by one
    low, high = loaded.predict_interval(X, 0.5, subject=who).T
    np.testing.assert_allclose((low + high) / 2, predicted)
    choice = read_regression_choice(tmp_path / "run")
    assert [stage.name for stage in choice.stages] == ["closed forms", choice.chosen[0].name]
    assert choice.chosen[0].strength is None
    assert "networks | 8" in (tmp_path / "run" / "model" / "README.md").read_text()
    # What is said of people left out is what networks that never saw them say.
    with open_run(tmp_path / "run", targets) as run:
        setting = run.ledger.entries("networks")[0].setting
        kept = run.network_predictions(setting)
    assert kept is not None
    members = {k: t[:1] for k, t in part.tensors().items()}
    first = NetworkPart.restore(setting, at_size(targets, setting), 1, members)
    rows = who == 0  # seed 0 of the fold without the first person, beside seed 1
    second = NetworkPart.restore(setting, at_size(targets, setting), 1, {k: t[4:5] for k, t in part.tensors().items()})
    both = [one.predict(targets.recordings.X[rows], None) for one in (first, second)]
    np.testing.assert_allclose(kept[0, rows], np.mean(both, 0), rtol=1e-4)
    with pytest.raises(ValueError, match="members"):
        NetworkPart.restore(setting, at_size(targets, setting), 2, members)
    with pytest.raises(ValueError, match="belongs to no network"):
        NetworkPart.restore(setting, at_size(targets, setting), 1, members | {"other": torch.zeros(1)})


def at_size(targets: Targets, setting: at.Setting) -> Any:
    from autotransfer.training.members import size_of

    return size_of(targets.recordings, setting)


def open_run(folder: Path, targets: Targets) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def opened_run() -> Any:
        run = NumberRun.reopen(folder, targets)
        try:
            yield run
        finally:
            run.ledger.close()

    return opened_run()


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed inside the networks' training after a checkpoint, and before that among the closed forms."""
    targets, asked = power(), options(epochs=4)
    whole = conducted(tmp_path / "whole", targets, asked)
    folder = tmp_path / "killed"
    finish = executor.Ledger.finish
    with monkeypatch.context() as patch:
        counted = iter(range(100))
        patch.setattr(executor.Ledger, "finish", lambda *a: _die() if next(counted) == 2 else finish(*a))
        with pytest.raises(Killed):
            conducted(folder, targets, asked)
    assert not (folder / "choice.json").exists()
    with monkeypatch.context() as patch:
        patch.setattr(executor, "CHECKPOINT_EVERY", -1.0)
        epoch = NumberTrainer.train_epoch
        patch.setattr(NumberTrainer, "train_epoch", lambda self, most=None: _die(_half(self)) or epoch(self, most))
        with pytest.raises(Killed):
            conducted(folder, targets, asked)
    assert list(folder.glob("population-*.checkpoint"))
    assert (folder / "model" / "model.json").exists(), "the answer of the closed forms stands"
    with pytest.raises(at.UserError, match="holds a run already, with epochs 4, not 5"):
        conducted(folder, targets, options(epochs=5))
    again = conducted(folder, targets, asked)
    assert all(entry.starts <= 1 for entry in _entries(folder, targets))
    np.testing.assert_array_equal(again.predicted, whole.predicted)
    assert again.table.equals(whole.table)
    for name, tensor in whole.model.tensors().items():
        torch.testing.assert_close(again.model.tensors()[name], tensor, rtol=0, atol=0)
    for name in ("choice.json", "results.csv"):
        assert (folder / name).read_text() == (tmp_path / "whole" / name).read_text()
    with pytest.raises(at.UserError, match="holds a run already"):
        at.AutoTransferRegressor(run_folder=folder).fit(targets.recordings.X, targets.values, subjects=np.zeros(96))


def test_a_run_goes_on_only_with_the_columns_it_was_begun_with(tmp_path: Path) -> None:
    def with_ages(*ages: int) -> Targets:
        recordings = power().recordings
        raw = replace(recordings.raw(), y=power().values, classes=None)
        return Targets.of(replace(raw, columns={"age": np.repeat(ages, 24).tolist()}) if ages else raw)

    folder, known = tmp_path / "run", with_ages(20, 30, 40, 50)
    NumberRun.begin(folder, known, options()).ledger.close()
    NumberRun.reopen(folder, known).ledger.close()
    for other in (with_ages(20, 30, 40, 51), with_ages()):
        with pytest.raises(at.UserError, match=r"the column 'age' is not as when .* was begun; restore it"):
            NumberRun.reopen(folder, other)
    moved = replace(known.recordings.raw(), X=known.recordings.X + 1, y=known.values, classes=None)
    with pytest.raises(at.UserError, match=r"the data are not those that .* was begun with"):
        NumberRun.reopen(folder, Targets.of(moved))


def _die(now: bool = True) -> None:
    if now:
        raise Killed


def _half(population: NumberTrainer) -> bool:
    """Whether two of four epochs are over, and it is no population that is timed."""
    return population.epoch == 2 and population.jobs[0].setting.max_epochs == 4


def _entries(folder: Path, targets: Targets) -> Any:
    with open_run(folder, targets) as run:
        return run.ledger.entries()


def test_damaged_predictions_are_not_taken_for_sound_ones(tmp_path: Path) -> None:
    targets, asked = power(), options(networks="none")
    conducted(tmp_path, targets, asked)
    with open_run(tmp_path, targets) as run:
        run.ledger.check()
        run.ledger.connection.execute("UPDATE jobs SET tensors = zeroblob(8)")
        with pytest.raises(at.UserError, match="do not agree"):
            run.ledger.check()


def test_networks_that_do_not_fit_into_the_time_are_left_out_and_named(tmp_path: Path) -> None:
    targets = power()
    conducted(tmp_path, targets, options(time="1s"))
    choice = read_regression_choice(tmp_path)
    (line,) = choice.left_out
    assert line.startswith("eegnet with ")
    assert [stage.name for stage in choice.stages] == ["closed forms"]
    assert line.partition(":")[0] in (tmp_path / "report.html").read_text()
    with open_run(tmp_path, targets) as run:
        plan = run.ledger.recall("plan", NumberPlan)
    assert plan is not None
    assert not plan.settings


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = power()
    data, folder = tmp_path / "force.npz", tmp_path / "run"
    X, who = targets.recordings.X.numpy(), targets.recordings.subject.numpy()
    np.savez(data, X=X, y=targets.values, subject=who, meta=json.dumps({"sfreq": 64.0, "name": "force"}))
    words = ["run", str(data), "--target", "continuous", "--kinds", "features", "--networks", "one", "--epochs", "2"]
    words += ["--seeds", "1", "--loss", "squared"]

    def call(*words: object) -> Any:
        return CliRunner().invoke(app, list(map(str, words)))

    dry = call(*words, "--dry-run").stdout
    assert "networks: eegnet with" in dry
    with monkeypatch.context() as slow:
        slow.setattr("autotransfer.search.regression.time_to_solve", lambda *_: 1790.0)
        assert "networks:" not in (dry := call(*words, "--time", "30m", "--dry-run").stdout), "closed forms take it all"
        assert "left out: eegnet with" in dry
    done = call(*words, "--out", folder)
    assert done.exception is None, done.exception
    assert "finished" in call("status", folder).stdout
    assert "is finished" in call("resume", folder).stdout
    with open_run(folder, targets) as run:
        run.ledger.remember(complete=False)
        run.drop([run.ledger.entries("networks")[0].key], finished=True)
    assert "interrupted" in call("status", folder).stdout
    before = read_regression_choice(folder)
    again = call("resume", folder)
    assert again.exception is None, again.exception
    # Trained alone, a member may differ in the last bits from itself in a stack.
    assert read_regression_choice(folder).nested_test_scores == pytest.approx(before.nested_test_scores, rel=1e-3)
    assert "model" in call("forget", folder, 1).stdout
    assert {path.name for path in folder.iterdir()} == {"lock", "study.toml"}


def test_names_tell_networks_apart() -> None:
    names = [
        candidate_name(s) for s in network_candidates(options(networks="all", adaptation="online"), power().recordings)
    ]
    assert len(set(names)) == len(names) == 3
    assert all("max_epochs" not in name and "loss" not in name for name in names)


def test_a_runs_own_file_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RunOptions] = []
    monkeypatch.setattr(running, "_dry_run", lambda options, *_: asked.append(options))
    stored = replace(options(loss="squared", adaptation="online"), source=str(tmp_path / "x.npz"))
    path = tmp_path / "study.toml"
    path.write_text(study_text(stored))
    result = CliRunner().invoke(app, ["run", "--config", str(path), "--dry-run"])
    assert result.exception is None, result.exception
    assert asked == [stored]


def test_cards_of_closed_forms_alone_are_as_they_were() -> None:
    """Parts of earlier versions say nothing of networks."""
    form = at.Setting(encoder="linear", represent="features", standardise="none").to_dict()
    assert RegressionPart(setting=form, strength=0.1, weight=1.0).members == 0
    shallow = at.Setting(**SHALLOW, loss="huber").to_dict()
    assert RegressionPart(setting=shallow, strength=None, weight=1.0, members=3).members == 3
    for wrong in ({"setting": form, "strength": None}, {"setting": shallow, "strength": 0.1}, {"setting": shallow}):
        with pytest.raises(at.UserError, match="a part of the model has"):
            RegressionPart(**{"strength": None, "weight": 1.0} | wrong)
