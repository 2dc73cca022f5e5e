"""Regression: ridge against scikit-learn, a set with a known truth, intervals, files and commands."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import Ridge as TheirRidge
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.models.loading import load_classifier
from autotransfer.models.model import Model
from autotransfer.recordings import Recordings
from autotransfer.recordings.raw import Raw
from autotransfer.recordings.targets import recordings_with_targets
from autotransfer.runs.choice import Choice, NamedSetting, read_choice
from autotransfer.runs.options import RunOptions, build_options
from autotransfer.runs.run import Run
from autotransfer.search.candidates import find_candidates
from autotransfer.search.evidence import RegressionEvidence, fit_bounded_weights, mean_squared_errors
from autotransfer.search.plan import start_run
from autotransfer.search.procedure import perform_plan
from autotransfer.tasks.regression import METRICS, R2
from autotransfer.training.conformal import Intervals, held_out_coverage, interval_radius
from autotransfer.training.representation import find_representation
from autotransfer.training.ridge import STRENGTHS, ridge
from autotransfer.words import score
from tiny import auto_classifier

Array = NDArray[Any]
TIMES = 128


def truth(people: int = 6, windows: int = 24, *, gain: float = 1.0, reference: bool = True, seed: int = 0) -> Any:
    """X, y, subject. The target is the log power of a source; a subject's gain multiplies all channels. With a channel
    of constant power next to it the ratio tells the target but for the 2 · 2/TIMES that two estimates of log power
    vary by, so R² may come to 1 − 4/TIMES. Without one a gain cannot be told from a power."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), windows)
    y = rng.normal(size=len(who))
    source = np.exp(y / 2)[:, None] * rng.normal(size=(len(who), TIMES))
    other = rng.normal(size=source.shape) if reference else source + 0.1 * rng.normal(size=source.shape)
    gains = np.exp(gain * rng.normal(size=people))[who]
    return np.stack([source, other], 1) * gains[:, None, None], y, [f"p{n}" for n in who]


def options(**given: Any) -> RunOptions:
    return build_options({"source": "x", "target": "continuous", "kinds": "features"} | given)


def search(recordings: Recordings, options: RunOptions, folder: Path) -> Choice:
    """Perform a run."""
    run = start_run(folder, options, recordings=recordings)
    with closing(run.database):
        return perform_plan(run, lambda _: None, progress=False)


# ---- ridge, weights, scores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 7), (12, 30)])
def test_ridge_is_scikit_learns(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    latents = rng.normal(size=shape) * np.exp(rng.normal(size=shape[1])) + 5
    latents[:, 2] = 3.7  # tells nothing
    target = rng.normal(size=shape[0]) + 2
    new = rng.normal(size=(5, shape[1]))
    found = ridge(latents, target, STRENGTHS)
    scaler = StandardScaler().fit(latents)
    for place, strength in enumerate(STRENGTHS):
        own = TheirRidge(alpha=strength * shape[0]).fit(scaler.transform(latents), target)
        np.testing.assert_allclose(found.predict(latents)[place], own.predict(scaler.transform(latents)), rtol=1e-6)
        fresh = new.copy()
        fresh[:, 2] = 3.7
        np.testing.assert_allclose(found.predict(fresh)[place], own.predict(scaler.transform(fresh)), rtol=1e-6)
    assert (found.weight[:, 2] == 0).all()


def test_weights_are_the_best_that_are_not_negative_and_at_most_one_together() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.3, 1.0, 3.0):
        said = rng.normal(size=(60, 3))
        target = said @ np.array([0.7, 0.5, -0.4]) * scale + 0.1 * rng.normal(size=60)
        found = fit_bounded_weights(said, target)
        assert (found >= 0).all()
        assert found.sum() <= 1 + 1e-9
        best = minimize(
            lambda w, said=said, target=target: np.square(said @ w - target).sum(), np.full(3, 0.2),
            bounds=[(0, 1)] * 3, constraints={"type": "ineq", "fun": lambda w: 1 - w.sum()}, tol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(found, best.x, atol=1e-4)


# ---- the whole search ------------------------------------------------------------------------------------------------


def test_a_known_score_is_reached(tmp_path: Path) -> None:
    X, y, who = truth(windows=80)
    choice = search(recordings_with_targets(Raw(X=X, y=y, subject=who, sfreq=128.0)), options(), tmp_path / "run")
    reachable = 1 - 4 / TIMES
    assert reachable - 0.06 < np.mean(list(choice.nested_test_scores.values())) < reachable + 0.02
    assert np.mean(list(choice.guessing.values())) <= 0
    assert not choice.is_guessing
    assert choice.best_baseline is not None
    results = pd.read_csv(tmp_path / "run" / "results.csv")
    alone = results[results.setting == choice.shortlist[0].name].set_index("test_subject").test_score
    assert alone.to_dict() == pytest.approx(choice.baselines["ridge on features"])


def test_a_random_target_is_not_better_than_a_constant(tmp_path: Path) -> None:
    X, y, who = truth()
    y = np.random.default_rng(10).normal(size=len(y))
    choice = search(recordings_with_targets(Raw(X=X, y=y, subject=who, sfreq=128.0)), options(), tmp_path / "run")
    assert choice.is_guessing
    assert choice.headline.startswith("Not clearly better than a constant")


def test_transductive_runs_remove_a_subjects_gain(tmp_path: Path) -> None:
    X, y, who = truth(reference=False)
    targets = recordings_with_targets(Raw(X=X, y=y, subject=who, sfreq=128.0))
    means = {
        name: np.mean(list(search(targets, options(adaptation=name), tmp_path / name).nested_test_scores.values()))
        for name in ("zero-shot", "transductive")
    }
    assert means["transductive"] > max(0.8, means["zero-shot"] + 0.05)


def evidence(y: Array, predicted: Array, rows: list[Array]) -> RegressionEvidence:
    """Return the evidence of one candidate with predictions (S, N)."""
    people = tuple(range(len(rows)))
    return RegressionEvidence(
        candidates=(NamedSetting("one", at.Setting()),), subjects=tuple(map(str, people)), metric=METRICS[R2],
        rows=tuple(rows), y=y, target_mean=np.zeros(len(y)), predictions=predicted[None],
        errors=mean_squared_errors(predicted[None], y, rows), scorable=frozenset(people), remaining=people,
    )  # fmt: skip


def test_no_subject_decides_about_itself() -> None:
    """Whatever the targets and predictions of a subject are, their own strengths and weights stay."""
    rng = np.random.default_rng(0)
    rows = [np.arange(10) + 10 * person for person in range(4)]
    y = rng.normal(size=40)
    predicted = y + rng.normal(size=(len(STRENGTHS), 40))
    other, changed = y.copy(), predicted.copy()
    other[rows[0]], changed[:, rows[0]] = -50, 1e3
    every = evidence(y, predicted, rows), evidence(other, changed, rows)
    first, second = (of_all.without([0]) for of_all in every)
    assert first.best_penalties == second.best_penalties
    np.testing.assert_array_equal(first.weights([0]), second.weights([0]))
    of_another = [of_all.without([1]).weights([0]) for of_all in every]
    assert not np.array_equal(*of_another), "it is evidence about the other subjects"


def test_held_out_predictions_come_from_fits_without_the_subject(tmp_path: Path) -> None:
    X, y, who = truth()
    targets = recordings_with_targets(Raw(X=X, y=y, subject=who, sfreq=128.0))
    search(targets, options(), tmp_path / "run")
    run = Run.open(tmp_path / "run", recordings=targets)
    setting = find_candidates(run.prepared).linear[0]
    predicted = RegressionEvidence.from_run(run, [NamedSetting("one", setting)]).predictions[0]
    ready = find_representation(targets, setting.preprocessing)
    latents = ready[1].flatten(1).double().numpy()
    fold = run.job(run.database.entries()[2]).fold
    train, test = fold.train, fold.test
    assert set(np.array(who)[test]) == {"p2"}
    np.testing.assert_allclose(predicted[:, test], ridge(latents[train], y[train], STRENGTHS).predict(latents[test]))
    assert all(entry.record is not None and entry.record.seconds > 0 for entry in run.database.entries()), "for status"
    run.database.close()


def test_sessions_can_be_held_out_and_another_metric_decides_what_is_stated(tmp_path: Path) -> None:
    X, y, who = truth()
    session = np.tile(np.repeat([0, 1], 12), 6)
    targets = recordings_with_targets(Raw(X=X, y=y, subject=who, session=session, sfreq=128.0))
    choice = search(targets, options(hold_out="session", metric="rmse"), tmp_path / "run")
    assert set(choice.estimate) == set(who)
    assert max(choice.estimate.values()) < 0
    assert "negative RMSE on held-out sessions of 6 subjects" in choice.headline
    assert "r2" in choice.other_metrics


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_cover_new_subjects() -> None:
    """Subjects whose errors differ in size: in the mean over draws a new subject's windows are covered as promised."""
    rng = np.random.default_rng(3)
    reached = []
    for _ in range(60):
        sizes = np.exp(0.5 * rng.normal(size=13))
        residuals = [np.abs(size * rng.normal(size=40)) for size in sizes]
        reached.append(np.mean(residuals[-1] <= interval_radius(Intervals.fit(residuals[:-1]), 0.9)))
    assert 0.86 < np.mean(reached) < 0.96
    assert 0.8 < np.mean(held_out_coverage(residuals, 0.9)) <= 1


def test_intervals_grow_with_coverage_and_need_enough_subjects() -> None:
    rng = np.random.default_rng(4)
    intervals = Intervals.fit([np.abs(rng.normal(size=30)) for _ in range(4)])
    wide = [np.inf if one is None else one for one in intervals.radii]
    assert wide == sorted(wide)
    with pytest.raises(at.UserError):
        Intervals(4, intervals.radii[::-1])
    assert Intervals.fit([np.ones(3)] * 2) is None
    with pytest.raises(at.UserError, match="fewer than 3 subjects"):
        interval_radius(None, 0.9)
    for bad in (0, 1, 1.5, "x"):
        with pytest.raises(at.UserError, match="coverage"):
            intervals.radius(bad)  # type: ignore[arg-type]


# ---- the estimator ---------------------------------------------------------------------------------------------------


def test_the_estimator_follows_scikit_learn(tmp_path: Path) -> None:
    X, y, who = truth()
    y = y.copy()
    y[3] = np.nan  # left out, and told
    own = at.AutoTransferRegressor(kinds="features", sfreq=128.0, run_folder=tmp_path / "run")
    assert clone(own).get_params() == own.get_params()
    with pytest.warns(UserWarning, match="1 of 144"):
        own.fit(X, y, subjects=who)
    predicted = own.predict(X)
    assert predicted.shape == (len(X),)
    assert np.isnan(own.held_out_[3])
    assert np.isfinite(np.delete(own.held_out_, 3)).all()
    low, high = own.predict_interval(X, coverage=0.9).T
    np.testing.assert_allclose((low + high) / 2, predicted)
    known = np.isfinite(y)
    assert own.score(X[known], y[known]) == pytest.approx(r2_score(y[known], predicted[known]))
    assert own.verdict_ == own.choice_["headline"]
    assert own.next_subject_[0] < own.next_subject_[1]
    again = at.load_model(tmp_path / "run")
    assert isinstance(again, Model)
    assert repr(again).startswith("<Model of ")
    assert repr(again).endswith(": windows of 2 channels × 128 samples at 128 Hz → a number; 6 training subjects>")
    np.testing.assert_array_equal(again.predict(X), predicted)
    at.save_model(own, tmp_path / "other")
    np.testing.assert_array_equal(at.load_model(tmp_path / "other").predict(X), predicted)
    with pytest.warns(UserWarning, match="1 of 144"):
        np.testing.assert_array_equal(own.fit(X, y, subjects=who).predict(X), predicted)  # the run is continued
    with pytest.raises(at.UserError, match="another folder"):
        own.fit(X[known], 2 * y[known], subjects=np.array(who)[known])
    for model in (own, again):
        with pytest.raises(at.UserError, match="predicts numbers, and online sessions need classes"):
            at.Session(model)


def test_targets_that_are_missing_in_any_way_are_left_out() -> None:
    X, y, who = truth(windows=8)
    known = np.arange(len(y)) != 3
    own = at.AutoTransferRegressor(kinds="features", sfreq=128.0)
    wanted = own.fit(X[known], y[known], subjects=np.array(who)[known]).predict(X)
    wild = np.where(known, y, 1e6)
    objects, texts = y.astype(object), [str(one) for one in y]
    objects[3], texts[3] = pd.NA, ""
    for given in (np.ma.masked_array(wild, ~known), objects, texts, pd.Series(np.where(known, y, np.nan))):
        with pytest.warns(UserWarning, match="1 of 48"):
            again = clone(own).fit(X, given, subjects=who)
        np.testing.assert_allclose(again.predict(X), wanted)
        assert np.isnan(again.held_out_[3])
        with pytest.raises(at.UserError, match=r"y\[3\] is missing"):
            again.score(X, given)
    assert own.score(X, np.ma.masked_array(y)) == own.score(X, y)
    with pytest.raises(at.UserError, match=f"y has 5 entries but X has {len(X)} windows"):
        own.score(X, y[:5])


@pytest.mark.parametrize("unit", ["datetime64[ns]", "timedelta64[s]"])
def test_times_are_refused_as_targets(unit: str) -> None:
    X, _, who = truth(windows=8)
    with pytest.raises(at.UserError, match=r"y holds times .*; give numbers"):
        at.AutoTransferRegressor().fit(X, np.arange(len(X)).astype(unit), subjects=who)


def test_impossible_targets_and_options_are_refused() -> None:
    X, y, who = truth(windows=8)
    for given in ((X, y, None), (X, None, who), (X, ["left"] * len(X), who), (X, np.ones(len(X)), who)):
        with pytest.raises(at.UserError):
            at.AutoTransferRegressor().fit(*given[:2], subjects=given[2])
    for other in (at.AutoTransferRegressor(adaptation="magic"), auto_classifier(target="continuous")):
        with pytest.raises(at.UserError):
            other.fit(X, y, subjects=who)
    with pytest.raises(at.UserError):
        at.Recordings(X, y, who)
    for changes in ({"grid": "paper"}, {"metric": "f1"}, {"encoder": "shallow"}):
        with pytest.raises(at.UserError):
            options(**changes)


# ---- where the numbers are -------------------------------------------------------------------------------------------


def test_the_target_may_be_a_column_or_a_channel() -> None:
    X, y, who = truth()
    force = np.repeat(y[:, None, None], TIMES, 2) + np.linspace(-1, 1, TIMES)
    raw = Raw(X=np.concatenate([X, force], 1), subject=who, channels=["a", "b", "force"], columns={"angle": y.tolist()})
    by_channel = recordings_with_targets(raw, "force")
    np.testing.assert_allclose(by_channel.truth, y, atol=1e-9)
    assert by_channel.channels == ("a", "b")
    by_column = recordings_with_targets(raw, "angle")
    np.testing.assert_array_equal(by_column.truth, y)
    assert not by_column.columns
    with pytest.raises(at.UserError, match="'a', 'b', 'force'"):
        recordings_with_targets(raw, "torque")
    with pytest.raises(at.UserError, match="holds no y"):
        recordings_with_targets(raw)


# ---- the command line ------------------------------------------------------------------------------------------------


def call(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


def test_run_report_predict(tmp_path: Path) -> None:
    X, y, who = truth()
    data, run = tmp_path / "force.npz", tmp_path / "run"
    np.savez(data, X=X, y=y, subject=who, meta=json.dumps({"sfreq": 128.0, "name": "<b>force</b>"}))
    assert "--target continuous" in str(call("run", data, "--out", tmp_path / "no").exception)
    words = ("run", data, "--target", "continuous", "--kinds", "features", "--networks", "none")
    assert "features" in call(*words, "--dry-run").stdout
    result = call(*words, "--out", run, "--at-least", 0.9)
    assert result.exception is None, result.exception
    choice = read_choice(run)
    assert f"Score: {score(np.mean(list(choice.estimate.values())))} R² on 6 held-out subjects" in result.stdout
    assert choice.at_least == 0.9
    page = (run / "report.html").read_text()
    assert "<b>force" not in page
    assert "R²" in page
    assert (run / "results.csv").read_text().startswith("stage,setting,")
    told = call("report", run, "--methods").stdout
    assert choice.headline in told
    (run / "report.html").unlink()
    assert "Below .990: " in call("report", run, "--at-least", 0.99).stdout
    assert (run / "report.html").exists()
    out, scores = tmp_path / "out.csv", tmp_path / "scores.csv"
    told = call("predict", run, data, "--coverage", 0.9, "--out", out, "--scores", scores)
    assert told.exception is None, told.exception
    assert out.read_text().startswith("window,subject,prediction,low,high")
    assert len(scores.read_text().splitlines()) == 7
    assert "R² on 6 subjects" in told.output
    np.savez(tmp_path / "new.npz", X=X, meta=json.dumps({"sfreq": 128.0}))
    assert "prediction" in call("predict", run, tmp_path / "new.npz").stdout
    for other in (("--abstain", 0.1), ("--adapt", "all")):
        assert "not available for a continuous target" in str(call("predict", run, data, *other).exception)
    assert "regression model" in str(call("export", run, "--format", "onnx").exception)
    cluster = call(*words, "--out", tmp_path / "no", "--cluster", "127.0.0.1:1")
    assert "--target continuous" in str(cluster.exception)


def test_adaptive_models_predict_each_subject_alone(tmp_path: Path) -> None:
    X, y, who = truth(reference=False)
    targets = recordings_with_targets(Raw(X=X, y=y, subject=who, sfreq=128.0))
    search(targets, options(adaptation="transductive"), tmp_path / "run")
    model = at.load_model(tmp_path / "run")
    assert isinstance(model, Model)
    assert model.adaptation == "transductive"
    rows = np.array([one == "p2" for one in who])
    np.testing.assert_allclose(model.predict(X, subjects=who)[rows], model.predict(X[rows]), rtol=1e-6)
    mixed = torch.randperm(len(X), generator=torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(
        model.predict(X[mixed], subjects=[who[n] for n in mixed]),
        model.predict(X, subjects=who)[mixed],
        rtol=1e-4,
        atol=1e-4,
    )
    with pytest.raises(at.UserError, match="regression model"):
        load_classifier(tmp_path / "run" / "model")
