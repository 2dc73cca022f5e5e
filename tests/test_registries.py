"""Every registered transform, encoder, augmentation, task and metric keeps this contract."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS, TrainingBatch
from autotransfer.censoring import CENSORS, MODES
from autotransfer.errors import UserError
from autotransfer.jobs import CURVES
from autotransfer.model.encoders import ENCODERS
from autotransfer.model.stack import Size
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.loading import load_model
from autotransfer.models.model import Model
from autotransfer.models.saving import write_model
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import read_choice
from autotransfer.runs.run import Run
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.settings import field_names
from autotransfer.tasks import TASKS, Metric
from autotransfer.tasks.classification import METRICS
from contributed import EXAMPLES, REGISTRIES
from contributed import registered as registered
from faults import printed
from tiny import make_evidence, tiny

pytestmark = pytest.mark.usefixtures("registered")


def names(registry: str) -> list[str]:
    """What is registered, and the page's example."""
    return [*REGISTRIES[registry], *(one.name for one in EXAMPLES if one.registry == registry)]


def histories(setting: at.Setting, some: slice = slice(None)) -> torch.Tensor:
    """Losses and scores of some of two folds with two seeds, trained as one stack: (jobs, names, epochs)."""
    recordings = tiny()
    jobs = [at.Job(setting, fold, seed) for seed in (0, 1) for fold in at.leave_one_subject_out(recordings)[:2]]
    outcomes = at.train(recordings, jobs[some], dtype=torch.float64)
    assert all(outcome.failure is None for outcome in outcomes)
    found = torch.tensor([[outcome.history[name] for name in CURVES] for outcome in outcomes], dtype=torch.float64)
    assert found.isfinite().all()
    return found


def check_alone(setting: at.Setting) -> None:
    """Stacked equals solo. Products of matrices may differ in their last bits."""
    torch.testing.assert_close(histories(setting)[2:3], histories(setting, slice(2, 3)), rtol=0, atol=1e-9)


def quick(**given: Any) -> at.Setting:
    return at.Setting(**{"max_epochs": 2, "batch_size": 16, "lr": 1e-2} | given)


NEEDED: dict[str, dict[str, Any]] = {"center": {"represent": "features"}}  # what must come before a transform


def with_transform(name: str) -> at.Setting:
    """Switched on with the default of its first field, on windows that have kept their amplitudes."""
    own = {name: fields(TRANSFORMS[name])[0].default}
    return quick(**{"standardize": "train"} | NEEDED.get(name, {}) | own)


def model_of(setting: at.Setting, data: at.Recordings | None = None) -> tuple[Model, at.Recordings]:
    recordings = tiny() if data is None else data
    folds = at.leave_one_subject_out(recordings)[:2]
    outcomes = at.train(recordings, [at.Job(setting, fold) for fold in folds])
    return build_model(recordings, [CandidateFits(setting, [o.state for o in outcomes], folds)], scores={}), recordings


def check_saved_and_exported(setting: at.Setting, folder: Path, data: at.Recordings | None = None) -> None:
    """From disk, and as a graph, the model says the same."""
    model, recordings = model_of(setting, data)
    X = recordings.X[recordings.subject == 0]
    expected = model.predict_proba(X)
    write_model(folder / "model", model.card, model.tensors())
    np.testing.assert_array_equal(load_model(folder / "model").predict_proba(X), expected)
    try:
        graph = model.graph()
    except UserError:
        assert setting.adaptation != "none", "only what remembers earlier windows may be refused"
        return
    with torch.no_grad():
        np.testing.assert_allclose(graph(X.float()).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("registry", [name for name in REGISTRIES if name != "TASKS"])
def test_fields_are_keywords_of_a_setting_and_survive_json(registry: str) -> None:
    for name in names(registry):
        if registry == "CENSORS":
            setting = quick(method=name, mode="conditional", strength=0.5)
        elif registry == "ENCODERS":
            setting = quick(encoder=name)
        elif registry == "TRANSFORMS":
            setting = with_transform(name)
        else:
            setting = quick(**{name: fields(AUGMENTATIONS[name])[0].default})
        assert at.Setting.from_json(setting.to_json()) == setting
        assert set(setting.to_dict()) <= set(field_names())
        assert name in setting.to_dict() or name in setting.to_dict().values()


@pytest.mark.parametrize("modes", [pytest.param(1, id="one mode"), pytest.param(3, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", names("CENSORS"))
def test_a_censor_is_searched_and_trains(method: str, modes: int) -> None:
    kind = CENSORS[method]
    searched = {setting.mode: setting.strength for setting in at.grid("quick") if setting.method == method}
    assert searched == kind.quick_strengths
    low, high = kind.sampled_strengths
    assert 0 < low < high, "give it a range in `sampled`"
    for mode in list(MODES)[-modes:]:
        check_alone(quick(method=method, mode=mode, strength=0.1))


@pytest.mark.parametrize("name", names("TRANSFORMS"))
def test_a_transform_does_not_depend_on_the_stack(name: str) -> None:
    check_alone(with_transform(name))


@pytest.mark.parametrize("name", names("TRANSFORMS"))
def test_a_transform_is_saved_and_exported(name: str, tmp_path: Path) -> None:
    check_saved_and_exported(with_transform(name), tmp_path)


@pytest.mark.parametrize("name", names("TRANSFORMS"))
def test_the_state_of_a_subject_is_saved(name: str, tmp_path: Path) -> None:
    """A transform that forgets to name what it remembers goes on as with a new subject."""
    model, recordings = model_of(with_transform(name))
    X = recordings.X[recordings.subject == 1]
    session = at.Session(model)
    session.predict_proba(X[:7])
    session.save(tmp_path / "session")
    rest = session.predict_proba(X[7:])
    again = at.Session.load(tmp_path / "session", model)
    assert again.n_windows == 7
    np.testing.assert_array_equal(again.predict_proba(X[7:]), rest)
    again.reset()
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("name", names("ENCODERS"))
def test_an_encoder_does_not_depend_on_the_stack(name: str) -> None:
    check_alone(quick(encoder=name))


@pytest.mark.parametrize("name", names("ENCODERS"))
@pytest.mark.parametrize(("times", "given"), [(16, {}), (75, {}), (200, {"log_power": True})])
def test_the_graph_of_an_encoder_computes_the_same(name: str, times: int, given: dict[str, Any]) -> None:
    """With any number of windows, of one group or several; 16 samples are fewer than a filter has."""
    draw = torch.Generator().manual_seed(0)
    options = ENCODERS[name](
        **{key: value for key, value in given.items() if key in ENCODERS[name].__dataclass_fields__}
    )
    net = options.stack(Size(3, times, 2, 128.0), 5, range(5)).eval()
    with torch.no_grad():
        for key, tensor in [*net.named_parameters(), *net.named_buffers()]:
            positive = torch.rand(tensor.shape, generator=draw) + 0.5
            tensor.copy_(positive if "norm" in key or "inv_std" in key else tensor + 0.1 * positive)
        graph = net.graph()
        for sizes, n in (([5], 1), ([5], 4), ([2, 3], 1), ([1, 3, 1], 7)):
            x, group = (
                torch.randn(len(sizes), n, 3, times, generator=draw) + 3,
                torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
            )
            want = net(x, group=group)
            assert want.std() > 0.01
            torch.testing.assert_close(graph(x if len(sizes) == 1 else x[group]), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", names("ENCODERS"))
def test_an_encoder_is_saved_and_exported(name: str, tmp_path: Path) -> None:
    check_saved_and_exported(quick(encoder=name), tmp_path)


@pytest.mark.parametrize("name", names("AUGMENTATIONS"))
def test_an_augmentation_is_a_function_of_its_key(name: str) -> None:
    x = torch.randn(2, 4, 4, 20, generator=torch.Generator().manual_seed(0))
    key = torch.arange(8, dtype=torch.int32).view(2, 4)
    augment = AUGMENTATIONS[name](*([0.4] if isinstance(fields(AUGMENTATIONS[name])[0].default, float) else []))
    batch = TrainingBatch(torch.tensor([[0, 0, 0, 1]] * 2), torch.tensor([[0, 1, 2, 0]] * 2), 4)
    found = augment(x, key, batch)
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert torch.equal(found, augment(x, key, batch))
    assert not torch.equal(found, augment(x, key + 4, batch)), "keys do not matter"

    def some(rows: list[int]) -> torch.Tensor:
        own = TrainingBatch(batch.y[1:, rows], batch.s[1:, rows], batch.n_signals)
        return augment(x[1:, rows], key[1:, rows], own)

    close = {"rtol": 0, "atol": 1e-6}  # a transform's last bit may depend on how many there are
    torch.testing.assert_close(some([0, 1, 2, 3]), found[1:], **close, msg="other groups matter")
    torch.testing.assert_close(some([2, 3, 0, 1]), found[1:, [2, 3, 0, 1]], **close, msg="the order of rows matters")
    torch.testing.assert_close(some([0, 1, 2]), found[1:, :3], **close, msg="rows of other classes matter")


@pytest.mark.parametrize("name", names("AUGMENTATIONS"))
def test_an_augmentation_acts_in_training_alone_and_not_on_the_stack(name: str, tmp_path: Path) -> None:
    setting = quick(**{name: fields(AUGMENTATIONS[name])[0].default})
    check_alone(setting)
    assert not torch.allclose(histories(setting), histories(quick()))
    model, recordings = model_of(setting)
    np.testing.assert_array_equal(model.predict_proba(recordings.X), model.predict_proba(recordings.X))
    check_saved_and_exported(setting, tmp_path)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def test_a_registered_task_is_used(tmp_path: Path) -> None:
    """Levels of effort: run, report, predict and the estimator use the metric and the words of the page's task."""
    rng = np.random.default_rng(0)
    y, who = np.tile(np.repeat([0, 1, 2], 8), 5), np.repeat(np.arange(5), 24)
    X = rng.normal(size=(len(y), 2, 64)) * np.exp(0.6 * y + 0.2 * who)[:, None, None]
    data, run = tmp_path / "effort.npz", tmp_path / "run"
    np.savez(data, X=X, y=y, subject=who, meta=json.dumps({"sfreq": 64.0}))
    told = printed("run", data, "--target", "ordinal", "--kinds", "features", "--networks", "none", "--out", run)
    choice = read_choice(run)
    assert choice.metric == "neg_mean_absolute_error"
    assert choice.task is TASKS["ordinal"]
    assert "negative error in levels" in told
    assert "negative error in levels" in choice.headline
    assert all(value <= 0 for value in choice.estimate.values())
    assert choice.chance == pytest.approx(-2 / 3)
    assert "balanced_accuracy" in choice.other_metrics
    assert "negative error in levels" in (run / "report.html").read_text(encoding="utf-8")
    assert "negative error in levels" in printed("predict", run, data, "--out", tmp_path / "out.csv")
    assert "balanced accuracy" in printed(
        "predict", run, data, "--out", tmp_path / "out.csv", "--metric", "balanced_accuracy"
    )
    model = load_model(run)
    assert model.card.target == "ordinal"
    assert model.score(X, y) == pytest.approx(choice.task.metrics[choice.metric].score(y, model.predict_proba(X)))


def test_networks_are_trained_with_the_loss_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(logits: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w = weight.gather(-1, y)
        return w * logits.square().mean(-1), w

    monkeypatch.setattr(type(TASKS["ordinal"]), "row_loss", staticmethod(squares), raising=False)
    fold = at.leave_one_subject_out(tiny())[0]
    plain, own = (
        at.train(recordings, [at.Job(quick(), fold)])[0].history["train_loss"]
        for recordings in (tiny(), tiny().for_target("ordinal"))
    )
    assert plain != own


# ---- metrics ---------------------------------------------------------------------------------------------------------


def expected_accuracy(y: Any, probability: Any, weight: Any) -> float:
    """How often windows would be right if classes were drawn with these probabilities."""
    return float(np.average(probability[np.arange(len(y)), y], weights=weight))


EXPECTED = Metric("expected accuracy", expected_accuracy, lambda shares: 1 / shares.shape[1], short="expected")


@pytest.mark.usefixtures("brief_results")
def test_a_registered_metric_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METRICS, "expected_accuracy", EXPECTED)
    data = tiny()
    data.y[:3] = 1 - data.y[:3]
    save_npz(tmp_path / "tiny.npz", data)
    brief = ("--networks", "none", "--kinds", "features", "--adaptation", "zero-shot", "--device", "cpu")
    printed("run", tmp_path / "tiny.npz", *brief, "--metric", "expected", "--out", tmp_path / "run")
    choice = read_choice(tmp_path / "run")
    assert choice.metric == "expected_accuracy"
    assert "balanced_accuracy" in choice.other_metrics
    assert "expected_accuracy" not in choice.other_metrics
    run = Run.open(tmp_path / "run")
    evidence = make_evidence(run, choice)
    for subject, log_p in delivered_predictions(choice, evidence).items():
        expected = expected_accuracy(evidence.y[subject], np.exp(log_p), None)
        assert choice.nested_test_scores[str(subject)] == pytest.approx(expected)
    run.database.close()
    assert EXPECTED.label in choice.headline
    assert EXPECTED.label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert EXPECTED.label in printed("predict", tmp_path / "run", tmp_path / "tiny.npz", "--metric", "expected")
    clf = at.CensoredClassifier(scoring="expected", max_epochs=2, batch_size=8, sfreq=16, device="cpu")
    X, y = data.X.numpy(), data.y.numpy()
    clf.fit(X, y, subjects=data.subject.numpy())
    assert clf.score(X, y) == expected_accuracy(y, clf.predict_proba(X), None)
