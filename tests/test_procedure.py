"""The whole procedure on tiny data: complete, honest, resumable, and nothing trained twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.jobs import Record
from autotransfer.recordings import save_npz
from autotransfer.runs.choice import Choice
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.runs.saved_model import load_model
from autotransfer.search import procedure
from autotransfer.search.estimate import count_trainings
from autotransfer.search.procedure import conduct
from autotransfer.search.stages import Score
from autotransfer.search.validation import validation_scores
from faults import ARGUMENTS, Command, assert_same_run, kill_one_run, quiet, wait_for_a_write
from tiny import tiny, tiny_file

REQUIRED = {
    "stage", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardise", "fold",
    "validation_subject", "test_subject", "seed", "best_epoch", "validation_score", "test_score", "seconds",
}  # fmt: skip


def run_tiny(folder: Path, **options: object) -> tuple[Run, Choice]:
    source = options.pop("source", None) or str(tiny_file(folder))
    run = Run.create(folder / "run", RunOptions(source=source, epochs=12, batch_size=8, device="cpu", **options))
    return run, conduct(run, quiet, shown=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    return run_tiny(tmp_path_factory.mktemp("finished"))


def test_results_are_tidy_and_complete(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert set(table.columns) >= REQUIRED
    settings = len(at.grid("quick"))
    assert (table["stage"] == "search").sum() == settings
    candidates = len(choice.shortlist)
    assert len(table) == settings + candidates * 3  # the fold of stage one is not trained again
    assert not table.duplicated(["setting", "test_subject", "seed"]).any()
    assert (table.loc[table["method"] == "none", "mode"] == "none").all()
    _, _, trainings = count_trainings(run.recordings, run.options)
    assert len(table) == trainings
    assert [e.starts for e in run.ledger.entries()] == [1] * len(table)


def test_choice_agrees_with_the_table(finished: tuple[Run, Choice]) -> None:
    """Computed again from results.csv with pandas."""
    run, choice = finished
    table = pd.read_csv(run.folder / "results.csv")
    names = [named.name for named in choice.shortlist]
    table = table[table["setting"].isin(names)]
    own = table[["setting", "validation_subject", "validation_score"]].set_axis(["setting", "on", "score"], axis=1)
    twin = table[["setting", "test_subject", "swapped_validation_score"]].set_axis(["setting", "on", "score"], axis=1)
    by_subject = pd.concat([own, twin]).groupby(["setting", "on"])["score"].mean().unstack()
    q25 = by_subject.quantile(0.25, axis=1)
    assert choice.validation_q25 == pytest.approx(q25.to_dict())
    best = max(names, key=lambda name: (round(q25[name], 12), round(by_subject.loc[name].mean(), 12)))
    assert choice.chosen.name == best
    assert choice.baseline_won == (best == "baseline")
    tests = table.set_index(["setting", "test_subject"])["test_score"]
    for subject in range(4):
        assert choice.test_scores["chosen"][str(subject)] == pytest.approx(tests[best, subject])
        assert choice.test_scores["baseline"][str(subject)] == pytest.approx(tests["baseline", subject])
        others = by_subject.drop(columns=subject)
        nested = max(
            names,
            key=lambda name: (round(others.loc[name].quantile(0.25), 12), round(others.loc[name].mean(), 12)),
        )
        assert choice.nested_choices[str(subject)] == nested
        assert choice.nested_test_scores[str(subject)] == pytest.approx(tests[nested, subject])


def test_corrupting_scores_measured_on_a_subject_changes_nothing_chosen_for_them(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, choice = finished
    candidates = [named.setting for named in choice.shortlist]
    generator = np.random.default_rng(0)
    changed, moved = 0, Counter[str]()
    for subject in range(4):

        def corrupted(entries: object, *, twins: bool = True, subject: int = subject) -> list[object]:
            return [
                score._replace(value=generator.random()) if score.subject == subject else score
                for score in validation_scores(entries, twins=twins)
            ]

        for _ in range(10):
            monkeypatch.setattr(procedure, "validation_scores", corrupted)
            again = procedure.decide(run, candidates)
            assert again.nested_choices[str(subject)] == choice.nested_choices[str(subject)]
            for kind in ("nested", "nested_uncensored", "nested_two_se"):
                own, before = (getattr(one, f"{kind}_test_scores") for one in (again, choice))
                assert own[str(subject)] == before[str(subject)]
                moved[kind] += own != before
            changed += again.nested_choices != choice.nested_choices
    assert changed > 0, "the corruption must be able to change other subjects' choices"
    assert moved["nested"] > 0


def test_the_two_se_choice_is_made_without_the_subject_too(
    finished: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores are drawn, so that some settings are clearly ahead."""
    run, choice = finished
    candidates = [named.setting for named in choice.shortlist]
    generator = np.random.default_rng(0)
    moved = 0
    for subject in range(4):
        quality = {s.key: generator.normal(0.5, 0.02) for s in candidates}
        table = {(key, person): generator.normal(mean, 0.005) for key, mean in quality.items() for person in range(4)}
        found = []
        for _ in range(2):
            scores = [Score(*place, value) for place, value in table.items()]
            monkeypatch.setattr(procedure, "validation_scores", lambda *_, own=scores, **__: own)
            found.append(procedure.decide(run, candidates).nested_two_se_test_scores)
            table |= {(key, person): generator.random() for key, person in table if person == subject}
        assert found[0][str(subject)] == found[1][str(subject)]
        moved += found[0] != found[1]
    assert moved > 0, "the corruption must be able to change other subjects' choices"


def poisoned(record: Record, generator: np.random.Generator) -> Record:
    """The same training with invented scores and counts on its test subjects, and another past."""
    swapped = None if record.swapped is None else poisoned(record.swapped, generator)
    counts = generator.integers(0, 9, record.test_confusion.shape)
    return replace(record, test_score=generator.random(), test_confusion=counts, swapped=swapped)


@pytest.mark.parametrize("options", [{}, {"search": "halving"}, {"preprocessing": "zero-shot"}])
def test_test_scores_reach_no_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """A whole run in which every test score is noise: the same settings go on, and the same are chosen."""
    _, choice = run_tiny(tmp_path, **options)
    generator, real = np.random.default_rng(0), Ledger.finish

    def finish(ledger: Ledger, key: str, record: Record, tensors: bytes) -> None:
        real(ledger, key, poisoned(record, generator), tensors)

    monkeypatch.setattr(Ledger, "finish", finish)
    monkeypatch.setattr(procedure, "delivered_scores", lambda *_: {})
    (tmp_path / "poisoned").mkdir()
    again = run_tiny(tmp_path / "poisoned", source=str(tmp_path / "tiny.npz"), **options)[1]
    decided = ("chosen", "baseline", "best_uncensored", "two_se", "baseline_won", "shortlist", "validation_q25",
               "validation_mean", "nested_choices", "adaptation", "nested_adaptations", "preprocessings")  # fmt: skip
    assert {name: getattr(again, name) for name in decided} == {name: getattr(choice, name) for name in decided}
    for name in ("test_scores", "nested_test_scores", "nested_uncensored_test_scores"):
        assert getattr(again, name) != getattr(choice, name), "or nothing was poisoned"


def test_the_model_is_the_mean_of_the_fold_members(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    model = load_model(run.folder / "model")
    assert model.card.classes == ["left", "right"]
    assert model.card.channels == ["C3", "C4"]
    jobs = [at.Job(choice.chosen.setting, fold, 0) for fold in at.leave_one_subject_out(run.recordings)]
    outcomes = at.train(run.recordings, jobs, "cpu")
    rows = np.arange(run.recordings.n_trials)
    _, logits = at.encode(run.recordings, outcomes, rows)
    expected = logits.double().softmax(-1).mean(0).numpy()
    np.testing.assert_allclose(model.predict_proba(run.recordings.X), expected, atol=1e-6)


def test_a_model_refuses_what_does_not_fit(finished: tuple[Run, Choice]) -> None:
    run, _ = finished
    model, X = load_model(run.folder / "model"), run.recordings.X
    model.check(X, ["C3", "C4"], 16.0)
    for arguments, message in (
        ((X[:, :1], None, None), "takes 2 channels, the data have 1"),
        ((X, ["C4", "C3"], None), "channel 0 of the data is 'C4', the model expects 'C3'"),
        ((X, None, 32.0), "sampled at 32 Hz, the model expects 16 Hz"),
        ((X[..., :12], None, None), "have 12 samples, the model expects 16"),
    ):
        with pytest.raises(UserError, match=message):
            model.check(*arguments)


@pytest.mark.parametrize("standardise", ["train", "transductive"])
def test_standardisation_is_inside_the_model(tmp_path: Path, standardise: str) -> None:
    run, choice = run_tiny(tmp_path, standardise=standardise, final="refit")
    model = load_model(run.folder / "model")
    jobs = [at.Job(choice.chosen.setting, fold) for fold in at.leave_one_subject_out(run.recordings)]
    outcomes = at.train(run.recordings, jobs, "cpu")
    _, logits = at.encode(run.recordings, outcomes, np.arange(run.recordings.n_trials))
    expected = logits.double().softmax(-1).mean(0).numpy()
    np.testing.assert_allclose(model.predict_proba(run.recordings.X, run.recordings.subject), expected, atol=1e-6)
    assert choice.transductive == (standardise == "transductive")
    refit = load_model(run.folder / "model" / "refit")
    assert refit.card.members == 1
    assert refit.predict_proba(run.recordings.X, run.recordings.subject).shape == (48, 2)


def test_seeds_multiply_stage_two(tmp_path: Path) -> None:
    run, choice = run_tiny(tmp_path, seeds=2)
    table = pd.read_csv(run.folder / "results.csv")
    candidates = len(choice.shortlist)
    assert set(table["seed"]) == {0, 1}
    assert len(table) == len(at.grid("quick")) + candidates * (4 * 2 - 1)
    assert load_model(run.folder / "model").card.members == 8


def test_nested_full_never_sees_the_subject(tmp_path: Path) -> None:
    """Flipping a subject's labels changes neither the shortlist nor the choice made for that subject."""
    _, clean = run_tiny(tmp_path, nested="full")
    subject = 2
    recordings = tiny()
    y = recordings.y.clone()
    y[recordings.subject == subject] = 1 - y[recordings.subject == subject]
    (tmp_path / "flipped").mkdir()
    path = tmp_path / "flipped" / "tiny.npz"
    flipped = at.Recordings(
        recordings.X, y, recordings.subject, sfreq=16, classes=["left", "right"], channels=["C3", "C4"], name="tiny"
    )
    save_npz(path, flipped)
    _, corrupted = run_tiny(tmp_path / "flipped", nested="full", source=str(path))
    assert corrupted.nested_full_choices[str(subject)] == clean.nested_full_choices[str(subject)]
    assert corrupted.nested_full_test_scores[str(subject)] != clean.nested_full_test_scores[str(subject)]
    assert corrupted.validation_mean != clean.validation_mean


def test_kills_change_nothing(tmp_path: Path) -> None:
    """SIGKILL of the whole process group at random moments; test_faults.py does it more often, and says what is met."""
    source, generator = tiny_file(tmp_path), random.Random(0)
    whole = Command("run", source, *ARGUMENTS, "--epochs", 12, "--out", tmp_path / "whole", log=tmp_path / "log")
    assert wait_for_a_write(tmp_path / "whole", (), whole)
    begun = time.monotonic()
    assert whole.wait() == 0, whole.said()
    span = time.monotonic() - begun
    kills = kill_one_run(tmp_path / "killed", source, [*ARGUMENTS, "--epochs", 12], span, 3, generator)
    assert any(kill["done"] or kill["checkpoints"] for kill in kills), "no kill met a run at work"
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
