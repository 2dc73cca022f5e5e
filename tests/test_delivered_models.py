"""Ensembles are scored as delivered, on subjects that none of their networks has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score
from torch import Tensor

from autotransfer.errors import UserError
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.runs.choice import Choice
from autotransfer.runs.executor import PREDICTIONS
from autotransfer.runs.run import Run
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.held_out import held_out_log_probs
from autotransfer.search.procedure import perform_plan
from autotransfer.search.selection import select
from tiny import create_run, described, make_evidence, tiny_file


@pytest.fixture(scope="module", params=["trial", pytest.param("online", marks=pytest.mark.slow)])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("delivered")
    options = described(
        source=str(tiny_file(folder)), max_epochs=2, batch_size=8, lr=0.01, seeds=2, device="cpu",
        standardize=request.param, rule="published",
    )  # fmt: skip
    run = create_run(folder / "run", options)
    return run, perform_plan(run, lambda _: None, progress=False)


def test_a_prediction_is_the_mean_over_networks_that_left_the_subject_out(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    recordings = run.recordings
    X, y, subject = recordings.X, recordings.y.numpy(), recordings.subject.numpy()
    settings = {run.options.name_of(setting): setting for setting in run.options.settings()}
    evidence = make_evidence(run, choice)
    delivered = evidence.score(run.options.scoring, delivered_predictions(choice, evidence))
    differ = 0
    for test in range(recordings.n_subjects):
        person, own = str(recordings.subjects[test]), subject == test
        told = {"paper_network": choice.alternatives["paper_network"][person]}
        for name, found in (told | {choice.nested_choices[person]: delivered[person]}).items():
            probabilities, single = [], []
            for entry in run.database.entries():
                record = entry.record
                if entry.setting != settings[name] or test not in (entry.test, entry.validation):
                    continue
                # the checkpoint that was selected on the other held-out subject
                kind, seen = ("best.", record) if entry.test == test else ("swapped.", record.swapped)
                weights = run.weights(entry.key).items()
                state = {key.removeprefix(kind): tensor for key, tensor in weights if key.startswith(kind)}
                fold = run.job(entry).fold
                assert not own[fold.train].any()
                model = build_model(recordings, [CandidateFits(settings[name], [state], [fold])], scores={})
                probabilities.append(model.predict_proba(X[own]))
                single.append(balanced_accuracy_score(y[own], probabilities[-1].argmax(1)))
                assert single[-1] == pytest.approx(seen.test_score)
            assert len(probabilities) == 4, "two fits for each of two seeds"
            expected = balanced_accuracy_score(y[own], np.mean(probabilities, 0).argmax(1))
            assert found == pytest.approx(expected)
            differ += expected != pytest.approx(np.mean(single))
    assert differ > 0, "an ensemble that is never anything but its members proves nothing"


def test_a_censored_candidate_is_never_the_uncensored_choice(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    evidence = make_evidence(run, choice)
    censored = {named.setting.key for named in choice.shortlist if named.setting.method is not None}
    scores = tuple(s._replace(value=1.0) if s.setting in censored else s for s in evidence.scores)
    again = select(replace(evidence, scores=scores))
    assert again.nested_uncensored_choices == choice.nested_uncensored_choices
    assert again.best_uncensored == choice.best_uncensored
    assert again.chosen.setting.penalty is not None


def test_missing_or_damaged_predictions_are_refused(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = finished
    entry, real = run.database.entries()[0], Run.weights
    shape = run.held_out_log_probs(entry).shape
    assert shape == (24, 2)
    for change in (None, torch.zeros(3, 2), torch.full(shape, torch.nan)):

        def weights(own: Run, key: str, change: Tensor | None = change) -> dict[str, Tensor]:
            tensors = {name: tensor for name, tensor in real(own, key).items() if name != PREDICTIONS}
            return tensors if change is None else tensors | {PREDICTIONS: change}

        monkeypatch.setattr(Run, "weights", weights)
        with pytest.raises(UserError):
            run.held_out_log_probs(entry)


def test_a_candidate_whose_fits_all_failed_is_not_delivered(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    named = choice.shortlist
    entries = [replace(e, status="failed") if e.setting == named[1].setting else e for e in run.database.entries()]
    ensemble = select(replace(ClassificationEvidence.from_run(run, named, entries), rule="average")).ensemble
    assert named[1].name not in ensemble.weights
    for predicted in held_out_log_probs(run, [one.setting for one in named[:2]], entries).values():
        np.testing.assert_allclose(np.exp(predicted[1]), 1 / run.recordings.n_classes)
