"""Ensembles are measured on people whom none of their networks has seen, and as they would be delivered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from autotransfer import Setting
from autotransfer.runs.assembly import Priors, assemble
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.runs.saved_model import SavedModel
from autotransfer.search.delivered import delivered_scores
from autotransfer.search.procedure import conduct
from tiny import tiny_file


@pytest.fixture(scope="module", params=["trial", "channel", "running"])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, object]]:
    folder = tmp_path_factory.mktemp("delivered")
    options = RunOptions(
        source=str(tiny_file(folder)),
        epochs=2,
        batch_size=8,
        lr=0.003,
        seeds=2,
        device="cpu",
        standardise=request.param,
    )
    run = Run.create(folder / "run", options)
    return run, conduct(run, lambda _: None, shown=False)


def test_it_is_the_mean_over_the_networks_that_left_the_person_out(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    recordings = run.recordings
    X, y, subject = recordings.X, recordings.y.numpy(), recordings.subject.numpy()
    settings = {run.options.name_of(setting): setting for setting in run.options.settings()}
    told: dict[str, dict[str, float]] = choice["delivered_test_scores"]
    differ = 0
    for test in range(recordings.n_subjects):
        person, own = str(recordings.subjects[test]), subject == test
        for role, name in (("baseline", "baseline"), ("nested", choice["nested_choices"][person])):
            probabilities, single = [], []
            for entry in run.ledger.entries():
                record = entry.record
                if entry.setting != settings[name].to_json() or test not in (entry.test, entry.validation):
                    continue
                # the snapshot that the other held-out subject chose
                kind, seen = ("best.", record) if entry.test == test else ("swapped.", record["swapped"])
                weights = run.weights(entry.key).items()
                state = {key.removeprefix(kind): tensor for key, tensor in weights if key.startswith(kind)}
                fold = run.job(entry).fold
                assert not own[fold.train].any()
                model = SavedModel(*assemble(recordings, settings[name], [state], [fold], kind="single", scores={}))
                probabilities.append(model.predict_proba(X[own]))
                found = balanced_accuracy_score(y[own], probabilities[-1].argmax(1))
                assert found == pytest.approx(seen["test_score"])
                single.append(found)
            assert len(probabilities) == 4, "two trainings for each of two seeds"
            expected = balanced_accuracy_score(y[own], np.mean(probabilities, 0).argmax(1))
            assert told[role][person] == pytest.approx(expected)
            differ += expected != pytest.approx(np.mean(single))
    assert differ > 0, "an ensemble that is never anything but its members proves nothing"


def test_a_setting_whose_trainings_all_failed_has_no_ensemble(finished: tuple[Run, dict[str, object]]) -> None:
    run, _ = finished
    assert delivered_scores(run, run.ledger.entries(), [(Setting(lr=9.0), 0)]) == {}


def test_priors_are_measured_once(finished: tuple[Run, dict[str, object]], monkeypatch: pytest.MonkeyPatch) -> None:
    from autotransfer.runs import assembly

    run, _ = finished
    calls = []
    measure = assembly.measure
    monkeypatch.setattr(assembly, "measure", lambda *args, **more: calls.append(args) or measure(*args, **more))
    setting, priors = run.options.settings()[0], Priors(run.recordings)
    folds = [run.job(entry).fold for entry in run.ledger.entries()]
    found = priors.tensors(setting, folds)
    assert len(calls) == {"trial": 0, "channel": 4, "running": 1}[setting.standardise]
    alone = [Priors(run.recordings).tensors(setting, [fold]) for fold in folds[:9]]
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor[:9], np.concatenate([own[name] for own in alone]))


def test_uncensored_choices_are_made_among_uncensored_settings(finished: tuple[Run, dict[str, object]]) -> None:
    run, choice = finished
    scores = {}
    for entry in run.ledger.entries():
        if Setting.from_json(entry.setting).method is None:
            scores.setdefault((entry.setting, str(run.recordings.subjects[entry.test])), []).append(
                entry.record["test_score"]
            )
    means = {key: np.mean(own) for key, own in scores.items()}
    for person, value in choice["nested_uncensored_test_scores"].items():
        assert any(value == pytest.approx(mean) for (_, on), mean in means.items() if on == person)


def test_a_folder_of_an_earlier_version_is_told_without_ensembles(tmp_path: Path) -> None:
    from autotransfer.report.terminal import answer

    scores = {"a": 0.5, "b": 0.6}
    choice = {
        "chosen": {"name": "baseline"}, "baseline": {"name": "baseline"}, "baseline_won": True,
        "test_scores": {"chosen": scores, "baseline": scores}, "nested_test_scores": scores,
    }  # fmt: skip
    assert not any("ensemble" in line for line in answer(choice))
    told = answer(choice | {"delivered_test_scores": {"nested": scores, "baseline": scores}})
    assert sum("ensemble" in line for line in told) == 2
