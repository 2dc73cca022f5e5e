"""Each subject is tested once, alone or in a group, scored alone and selected for without its own fits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import divide_subjects, leave_groups_out, make_fold, name_of
from autotransfer.runs.choice import Choice
from autotransfer.runs.options import resolve_options
from autotransfer.runs.run import Run
from autotransfer.search import replay
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.search.procedure import perform_plan
from autotransfer.search.replay import held_out_model, replay_subjects
from autotransfer.training.metrics import balanced_accuracy_of
from faults import few_linear_candidates, quiet
from tiny import create_run, described, make_evidence, tiny, tiny_file

PEOPLE, FOLDS = 7, 4


@pytest.fixture(scope="module", autouse=True)
def _few_closed_forms() -> Iterator[None]:
    with few_linear_candidates():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("groups")
    source = str(tiny_file(folder, n_subjects=PEOPLE))
    options = described(
        source=source, max_epochs=4, batch_size=8, lr=1e-2, device="cpu", folds=FOLDS, adaptation="zero-shot",
        grid="uncensored", networks="none",
    )  # fmt: skip
    run = create_run(folder / "run", options)
    return run, perform_plan(run, quiet, progress=False)


@pytest.mark.parametrize(("people", "folds"), [(7, 4), (34, 10), (5, 5), (6, 20)])
def test_every_subject_is_tested_once_and_validated_by_others(people: int, folds: int) -> None:
    groups = divide_subjects(people, folds)
    assert sorted(person for group in groups for person in group) == list(range(people))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    rec = tiny(people, per_class=2)
    found = leave_groups_out(rec, folds)
    who = rec.subject.numpy()
    for fold, own in zip(found, groups, strict=True):
        assert set(who[fold.test]) == set(own)
        assert not set(who[fold.test]) & set(who[fold.validation])
        assert sorted(np.concatenate([fold.train, fold.validation, fold.test])) == list(range(len(who)))


def test_every_subject_is_tested_alone_and_validated_by_the_one_before() -> None:
    rec = tiny(5, per_class=2)
    folds, who = at.leave_one_subject_out(rec), rec.subject.numpy()
    assert [fold.test_subject for fold in folds] == list(rec.subjects)
    assert [fold.validation_subject for fold in folds] == [4, 0, 1, 2, 3]
    for test, fold in enumerate(folds):
        assert (set(who[fold.test]), set(who[fold.validation])) == ({test}, {(test - 1) % 5})
        assert sorted(np.concatenate([fold.train, fold.validation, fold.test])) == list(range(len(who)))


def test_a_fold_and_its_twin_share_the_trajectory_but_not_the_key() -> None:
    fold = at.leave_one_subject_out(tiny(5, per_class=2))[0]
    twin = fold.swapped()
    assert twin.training_key == fold.training_key
    assert twin.key != fold.key == twin.swapped().key
    assert (twin.test == fold.validation).all()
    assert twin.test_subject == fold.validation_subject
    with pytest.raises(UserError, match="cannot be both"):
        make_fold(tiny(5, per_class=2), 1, 1)


def test_subjects_of_a_group_are_scored_one_by_one() -> None:
    """Again from what was said of every row."""
    rec = tiny(PEOPLE)
    fold = leave_groups_out(rec, FOLDS)[1]
    (outcome,) = at.train(rec, [at.Job(at.Setting(max_epochs=2, batch_size=8), fold)], "cpu")
    who, y = rec.subject.numpy(), rec.y.numpy()
    predicted = outcome.held_out_log_probs.argmax(1).numpy()
    assert name_of(fold.test_subject) == "1, 5"
    for rows, predictions, record in (
        (fold.test, predicted[len(fold.validation) :], outcome),
        (fold.validation, predicted[: len(fold.validation)], outcome.swapped),
    ):
        for person in np.unique(who[rows]):
            own = who[rows] == person
            assert record.score_on(person) == balanced_accuracy_of(predictions[own], y[rows][own], 2)
        assert set(record.record().test_scores) == {str(person) for person in np.unique(who[rows])}
    (alone,) = at.train(rec, [at.Job(at.Setting(max_epochs=1), at.leave_one_subject_out(rec)[0])], "cpu")
    assert alone.test_scores == {}, "one person's score is test_score"


def test_no_fit_that_held_a_subject_out_decides_about_it(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    evidence = make_evidence(run, choice)
    for group in run.groups:
        known = evidence.without(group[:1])
        assert known.log_probs
        assert not any(set(group) & set(fold) for fold, _ in known.log_probs)
        assert not {score.subject for score in known.scores} & set(group)
    assert sorted(map(sorted, evidence.blocks)) == sorted(run.groups), "weights are found once for a group"
    weights = choice.ensemble.nested if choice.ensemble else {}
    assert weights["0"] == weights["4"]


def test_a_subject_is_replayed_to_models_that_left_it_out(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    model = held_out_model(run, {named.setting: 1.0 for named in choice.shortlist}, 4)
    assert model is not None
    assert set(choice.replay.zero_shot["recorded"]) == {str(person) for person in range(PEOPLE)}


def test_candidates_shared_in_a_group_change_no_score(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, choice = finished
    predictions = delivered_predictions(choice, make_evidence(run, choice))
    shared = replay_subjects(run, choice, predictions)
    monkeypatch.setattr(replay, "held_out_model", lambda *given: held_out_model(*given[:3]))
    assert replay_subjects(run, choice, predictions) == shared


def test_folds_by_default() -> None:
    many, few = tiny(21, per_class=2), tiny(20, per_class=2)

    def settled(rec: at.Recordings, **options: object) -> int | str:
        return resolve_options(described(source="x", **options), rec).folds

    assert (settled(many, folds=None), settled(few, folds=None)) == (10, "all")
    assert settled(many, folds=None, grid="paper") == "all"
    assert (settled(few, folds=5), settled(few, folds=20), settled(few, folds=40)) == (5, "all", "all")
