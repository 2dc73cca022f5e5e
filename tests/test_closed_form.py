"""Classifiers in closed form: the solution against scikit-learn and plain formulas, and members like any others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.export.proof import TOLERANCE
from autotransfer.folds import Fold
from autotransfer.model.encoders import ENCODERS
from autotransfer.models.assembly import assemble
from autotransfer.models.loading import load_model
from autotransfer.models.saved_model import SavedModel
from autotransfer.models.saving import write_model
from autotransfer.report.collect import collect
from autotransfer.runs.checkpoint import restore, save_checkpoint
from autotransfer.runs.executor import tensors_of
from autotransfer.runs.options import RunOptions
from autotransfer.runs.preparation import Preparation
from autotransfer.runs.run import Run
from autotransfer.search import decision, procedure
from autotransfer.search.costs import Costs
from autotransfer.search.planning import plan_of
from autotransfer.search.validation import validation_scores
from autotransfer.training.closed_form import ABSENT, Classes, ClosedForm, population_of
from autotransfer.training.latent import encode
from autotransfer.training.outcomes import outcome_of
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import Windows, windows_for
from report_outline import light
from tiny import people, tiny, tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")

SOLVED = [name for name, kind in ENCODERS.items() if kind.closed_form]
CPU = torch.device("cpu")
WAYS: dict[str, dict[str, Any]] = {
    "raw": {"encoder": "linear", "standardise": "train"},
    "features": {"encoder": "linear", "standardise": "none", "represent": "features"},
    "tangent": {"encoder": "linear", "standardise": "none", "delays": 2, "lag": 3, "represent": "tangent"},
    "transductive": {"encoder": "linear", "standardise": "none", "represent": "tangent", "centre": "transductive"},
    "online": {"encoder": "linear", "standardise": "none", "represent": "features", "centre": "online"},
    "templates": {"encoder": "templates", "standardise": "train"},
    "evoked": {"encoder": "evoked", "standardise": "train"},
    "trees": {"encoder": "trees", "standardise": "none", "represent": "statistics", "trees": 10},
    "fitted": {"encoder": "linear", "standardise": "trial", "represent": "minirocket", "centre": "online"},
}
EVERY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def jobs_of(rec: at.Recordings, **values: Any) -> list[at.Job]:
    return [at.Job(at.Setting(**values), fold) for fold in at.leave_one_subject_out(rec)]


# the solution


def rows(n: int, dim: int, classes: int = 3, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, n)
    means = draw.standard_normal((classes, dim))
    return means[y] + draw.standard_normal((n, dim)) @ draw.standard_normal((dim, dim)), y


def solved(z: NDArray[np.float64], y: NDArray[np.int64], classes: int = 3) -> Classes:
    return Classes(torch.from_numpy(z), torch.from_numpy(y), classes)


@pytest.mark.parametrize(("n", "dim"), [(60, 8), (300, 20), (30, 50), (9, 200)])
def test_shrinkage_is_ledoit_and_wolf_s(n: int, dim: int) -> None:
    z, y = rows(n, dim)
    within = z - np.stack([z[y == k].mean(0) for k in range(3)])[y]
    assert solved(z, y).shrinkage() == pytest.approx(ledoit_wolf(within, assume_centered=True)[1], abs=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, "auto"])
@pytest.mark.parametrize(("n", "dim"), [(300, 20), (30, 50)])
def test_the_classifier_follows_from_the_formula(n: int, dim: int, share: float | str) -> None:
    """With fewer rows than numbers it is solved among the rows."""
    z, y = rows(n, dim)
    found = solved(z, y)
    assert found.by_rows == (n < dim)
    means = np.stack([z[y == k].mean(0) for k in range(3)])
    S = (z - means[y]).T @ (z - means[y]) / n
    a = found.shrinkage() if isinstance(share, str) else share
    inverse = np.linalg.inv((1 - a) * S + a * np.trace(S) / dim * np.eye(dim))
    weight, bias = found.solve(share)
    np.testing.assert_allclose(weight, means @ inverse, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(bias, -0.5 * np.einsum("kd,de,ke->k", means, inverse, means), rtol=1e-6, atol=1e-8)


def test_it_predicts_what_scikit_learn_s_does() -> None:
    """With as many rows in every class its mean of their covariances is ours."""
    z, _ = rows(300, 6)
    y = np.tile(np.arange(3), 100)
    z += 2 * np.eye(3, 6)[y]
    weight, bias = solved(z, y).solve(0.3)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3, priors=np.full(3, 1 / 3)).fit(z, y)
    probability = (torch.from_numpy(z) @ weight.T + bias).softmax(-1)
    np.testing.assert_allclose(probability, theirs.predict_proba(z), atol=1e-9)


def test_a_class_without_rows_is_never_predicted() -> None:
    z, y = rows(50, 4, classes=2)
    weight, bias = solved(z, y, classes=3).solve("auto")
    assert bias[2] == ABSENT
    assert weight.isfinite().all()
    assert not weight[2].any()


@pytest.mark.parametrize("shape", [(20, 5), (5, 20)])
@pytest.mark.parametrize("share", [0.0, "auto"])
def test_rows_without_spread_give_finite_weights(shape: tuple[int, int], share: float | str) -> None:
    z, y = np.zeros(shape), np.arange(shape[0]) % 2
    for own in (z, z + y[:, None], np.where(np.arange(shape[1]) == 1, rows(*shape)[0], z)):
        weight, bias = solved(own, y, 2).solve(share)
        assert weight.isfinite().all()
        assert bias.isfinite().all()


def test_many_numbers_are_solved_in_seconds() -> None:
    z, y = np.random.default_rng(0).standard_normal((2500, 2100)), np.arange(2500) % 3
    start = time.process_time()  # of all threads
    solved(z, y).solve("auto")
    assert time.process_time() - start < 20  # about one on an idle machine


# a setting


@pytest.mark.parametrize("name", SOLVED)
def test_training_plays_no_role_in_a_setting(name: str) -> None:
    plain = at.Setting(encoder=name)
    other = at.Setting(
        encoder=name, max_epochs=7, lr=0.1, batch_size=4, patience=2, schedule="constant", weight_decay=0.5,
        checkpoint="averaged", batches="balanced",
    )  # fmt: skip
    assert other == plain
    assert other.key == plain.key
    assert (plain.max_epochs, plain.training.checkpoint) == (1, "last")
    assert at.Setting.from_json(plain.to_json()) == plain
    assert plain.replace(shrinkage=0.5).shrinkage == 0.5
    assert plain.replace(encoder="eegnet", network=None).encoder == "eegnet"
    with pytest.raises(UserError, match="lr is"):
        at.Setting(encoder=name, lr=-1.0)


@pytest.mark.parametrize("name", SOLVED)
def test_what_needs_steps_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"'{name}' is solved in closed form and has no weights for a penalty"):
        at.Setting(encoder=name, method="mmd")
    with pytest.raises(UserError, match=f"'{name}' is solved in closed form from all windows"):
        at.Setting(encoder=name, amplitude=0.2)
    assert at.Setting(encoder=name, method="mmd", strength=0.0) == at.Setting(encoder=name)
    for share in (-0.1, 1.5, "often", float("nan")):
        with pytest.raises(UserError, match="shrinkage is"):
            at.Setting(encoder=name, shrinkage=share)


def test_kinds_have_names() -> None:
    assert at.Setting().kind == "eegnet"
    assert at.Setting(encoder="shallow").kind == "shallow"
    assert at.Setting(represent="features").kind == "eegnet"
    assert [at.Setting(**WAYS[name]).kind for name in ("raw", "features", "tangent", "templates")] == [
        "linear", "features", "tangent", "templates",
    ]  # fmt: skip


def test_a_name_tells_what_matters() -> None:
    plain = at.Setting(max_epochs=50)
    found = at.Setting(encoder="linear", standardise="none", represent="tangent", shrinkage=0.5).name_relative_to(plain)
    assert found == "tangent with shrinkage 0.5"
    raw = at.Setting(encoder="linear", standardise="train").name_relative_to(plain)
    assert raw == "linear with standardise train"


# members


@EVERY
def test_a_stacked_member_is_the_same_alone(way: dict[str, Any]) -> None:
    rec = people()
    together, alone = (at.train(rec, jobs_of(rec, **way), population=size) for size in ("auto", 1))
    assert {outcome.population for outcome in together} == {5}
    for found, expected in zip(together, alone, strict=True):
        assert found.failure is None
        assert found.history.keys() == expected.history.keys()
        for name, values in found.history.items():
            assert np.isfinite(values).all()
            np.testing.assert_allclose(values, expected.history[name], rtol=0, atol=1e-5)
        assert found.test_score == expected.test_score
        for name, tensor in found.state.items():
            torch.testing.assert_close(tensor, expected.state[name], rtol=1e-5, atol=1e-6)


@EVERY
def test_the_seed_does_not_matter(way: dict[str, Any]) -> None:
    rec = people()
    setting, fold = at.Setting(**way), at.leave_one_subject_out(rec)[0]
    first, other = at.train(rec, [at.Job(setting, fold, seed) for seed in (0, 7)])
    assert torch.equal(first.held_out_log_probs, other.held_out_log_probs)
    assert all(torch.equal(tensor, other.state[name]) for name, tensor in first.state.items())


def test_members_of_one_stack_differ_in_shrinkage() -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    settings = [at.Setting(**WAYS["features"], shrinkage=share) for share in ("auto", 0.5, 1.0)]
    together = at.train(rec, [at.Job(setting, fold) for setting in settings])
    assert {outcome.population for outcome in together} == {3}
    for setting, found in zip(settings, together, strict=True):
        (alone,) = at.train(rec, [at.Job(setting, fold)])
        torch.testing.assert_close(found.held_out_log_probs, alone.held_out_log_probs)
    assert not torch.allclose(together[0].held_out_log_probs, together[1].held_out_log_probs)


@EVERY
def test_held_out_labels_matter_to_nobody(way: dict[str, Any]) -> None:
    rec = people()
    fold = at.leave_one_subject_out(rec)[0]
    y = rec.y.clone()
    held = np.concatenate([fold.validation, fold.test])
    y[held] = 1 - y[held]
    changed = at.Recordings(rec.X, y, rec.subject, sfreq=24)
    first, other = (at.train(data, [at.Job(at.Setting(**way), fold)])[0] for data in (rec, changed))
    assert torch.equal(first.held_out_log_probs, other.held_out_log_probs)
    assert first.test_score == pytest.approx(1 - other.test_score)


@EVERY
def test_windows_from_a_file_give_the_same(way: dict[str, Any]) -> None:
    rec = people()
    jobs = jobs_of(rec, **way)
    found = []
    for in_memory in (True, False):
        windows = Windows(rec, jobs[0].setting.preprocessing, 0, device=CPU, dtype=torch.float32, in_memory=in_memory)
        population = population_of(jobs, windows)
        population.train_epoch()
        population.evaluate()
        found.append(population.snapshots.log_probs.clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


@EVERY
def test_saved_loaded_and_exported_predictions_agree(way: dict[str, Any], tmp_path: Path) -> None:
    rec = people()
    folds = at.leave_one_subject_out(rec)[:2]
    setting = at.Setting(**way)
    outcomes = at.train(rec, [at.Job(setting, fold) for fold in folds])
    card, tensors = assemble(rec, setting, [o.state for o in outcomes], folds, kind="ensemble", scores={})
    model = SavedModel(card, tensors)
    person = int(rec.subject[folds[0].test[0]])
    X = rec.X[rec.subject == person].float()
    expected = model.predict_proba(X)
    np.testing.assert_allclose(expected.sum(1), 1, atol=1e-6)
    write_model(tmp_path, model.card, model.tensors())
    np.testing.assert_array_equal(load_model(tmp_path).predict_proba(X), expected)
    if setting.adaptation == "online":
        with pytest.raises(UserError, match="every new person"):
            model.graph()
    else:
        with torch.no_grad():
            np.testing.assert_allclose(model.graph()(X).numpy(), expected, atol=TOLERANCE)
    # What the first member alone says of its test subject is what it was scored with.
    alone = SavedModel(*assemble(rec, setting, [outcomes[0].state], folds[:1], kind="single", scores={}))
    expected = outcomes[0].held_out_log_probs[len(folds[0].validation) :].double().exp().numpy()
    np.testing.assert_allclose(alone.predict_proba(rec.X[folds[0].test]), expected, atol=1e-4)


@EVERY
def test_codes_are_standardised_over_the_training_rows(way: dict[str, Any]) -> None:
    if way["encoder"] == "trees":
        pytest.skip("votes are in one unit already")
    rec = people()
    job = jobs_of(rec, **way)[0]
    z, _ = encode(rec, at.train(rec, [job]), job.fold.train)
    torch.testing.assert_close(z[0].mean(0), torch.zeros(z.shape[2]), atol=1e-4, rtol=0)
    spread = z[0].std(0, correction=0)
    assert ((spread - 1).abs() < 1e-3).sum() + (spread == 0).sum() == z.shape[2]


def test_a_fold_that_lacks_a_class_and_one_without_held_out_rows() -> None:
    rec = tiny(n_subjects=4)
    y = torch.where(rec.subject == 3, 2, rec.y)
    three = at.Recordings(rec.X, y, rec.subject, sfreq=16)
    for way in WAYS.values():
        setting = at.Setting(**way)
        outcomes = at.train(three, [at.Job(setting, fold) for fold in at.leave_one_subject_out(three)])
        assert all(outcome.failure is None and outcome.held_out_log_probs.isfinite().all() for outcome in outcomes)
        everybody = Fold(np.arange(rec.n_trials))
        (refit,) = at.train(rec, [at.Job(setting, everybody)])
        assert refit.failure is None
        assert refit.best_epoch == 1


# in a run


def test_only_what_can_be_solved_is() -> None:
    rec = tiny()
    for setting, kind in ((at.Setting(), Trainer), (at.Setting(encoder="linear"), ClosedForm)):
        job = at.Job(setting, at.leave_one_subject_out(rec)[0])
        windows = windows_for(rec, job, device=CPU, dtype=torch.float32)
        assert type(population_of([job], windows)) is kind


def test_a_checkpoint_brings_a_solved_population_back(tmp_path: Path) -> None:
    rec = tiny()
    jobs = jobs_of(rec, **WAYS["templates"])
    windows = windows_for(rec, jobs[0], device=CPU, dtype=torch.float32)
    population = population_of(jobs, windows)
    population.train_epoch()
    population.evaluate()
    keys = [str(place) for place in range(len(jobs))]
    save_checkpoint(tmp_path / "checkpoint", population, keys)
    again = restore(dict(zip(keys, jobs, strict=True)), windows, tmp_path / "checkpoint")
    assert again is not None
    assert type(again[0]) is ClosedForm
    for member in range(len(jobs)):
        assert tensors_of(outcome_of(again[0], member, None)) == tensors_of(outcome_of(population, member, None))


FEW = [way for place, way in enumerate(WAYS) if place % 4 == 0]  # a whole run each; the others are in the slow suite


@pytest.mark.parametrize(
    "way", [pytest.param(WAYS[name], id=name, marks=[] if name in FEW else [pytest.mark.slow]) for name in WAYS]
)
def test_it_is_chosen_beside_a_network_and_delivered(
    way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever validation says, it is chosen here; refit on everybody as well."""
    source, added = tiny_file(tmp_path), at.Setting(**way)
    options = RunOptions(source=str(source), epochs=2, batch_size=8, final="refit", rule="published")
    plain = options.apply(at.Setting())
    monkeypatch.setattr(RunOptions, "settings", lambda self: [plain, added])
    monkeypatch.setitem(decision.RULES, "published", decision.Ranking(validation_scores, lambda scores, keys: keys[-1]))
    run = Run.create(tmp_path / "run", options)
    choice = procedure.conduct(run, lambda line: None, shown=False)
    assert choice.chosen.setting == added
    page = light(collect(run))
    run.ledger.close()
    assert choice.chosen.name in page
    assert load_model(tmp_path / "run" / "model").setting == added


@pytest.mark.parametrize("name", SOLVED)
def test_the_estimate_knows_that_one_epoch_is_all(name: str, tmp_path: Path) -> None:
    options = RunOptions(source=str(tiny_file(tmp_path)), encoder=name, epochs=20, adaptation="none")
    assert options.settings() == [at.Setting(encoder=name)]
    prepared = Preparation(options, tiny())
    plan = plan_of(prepared, Costs.measure(prepared, options.settings()))
    assert len(plan.stages[0].trainings) * plan.folds == 4
    assert 0 < plan.seconds < 60
