"""The whole procedure on tiny data: complete, honest, resumable, and nothing trained twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.jobs import Record
from autotransfer.models.loading import load_model
from autotransfer.runs.choice import Choice
from autotransfer.runs.executor import LOG_PROBS
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.run import Run
from autotransfer.search import decision
from autotransfer.search.planning import plan_of
from autotransfer.search.procedure import conduct
from autotransfer.search.stages import choose
from autotransfer.search.validation import validation_scores
from faults import quiet
from tiny import create_run, described, tiny_file

pytestmark = pytest.mark.usefixtures("brief_answers")

REQUIRED = {
    "stage", "method", "mode", "strength", "estimator", "length_scale", "regularization", "standardize", "fold",
    "validation_subject", "test_subject", "seed", "best_epoch", "validation_score", "test_score", "seconds",
}  # fmt: skip


def run_tiny(folder: Path, *, rule: str = "published", **options: object) -> tuple[Run, Choice]:
    source = options.pop("source", None) or str(tiny_file(folder))
    given = {"max_epochs": 2, "batch_size": 8, "device": "cpu", "rule": rule} | options
    run = create_run(folder / "run", described(source=source, **given))
    return run, conduct(run, quiet, shown=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    return run_tiny(tmp_path_factory.mktemp("finished"), max_epochs=12)


def test_results_are_tidy_and_complete(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    assert set(table.columns) >= REQUIRED
    settings = len(at.grid("quick"))
    assert set(table["stage"]) == {"folds"}, "all settings go on, so there is no stage one"
    assert len(choice.shortlist) == settings
    assert len(table) == settings * 4
    assert not table.duplicated(["setting", "test_subject", "seed"]).any()
    assert (table.loc[table["method"] == "none", "mode"] == "none").all()
    assert len(table) == plan_of(run.prepared).trainings
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
    assert choice.paper_network_won == (best == "paper_network")
    tests = table.set_index(["setting", "test_subject"])["test_score"]
    for subject in range(4):
        assert choice.test_scores["chosen"][str(subject)] == pytest.approx(tests[best, subject])
        assert choice.test_scores["paper_network"][str(subject)] == pytest.approx(tests["paper_network", subject])
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

        def corrupted(
            entries: object, groups: object = None, *, twins: bool = True, subject: int = subject
        ) -> list[object]:
            return [
                score._replace(value=generator.random()) if score.subject == subject else score
                for score in validation_scores(entries, groups, twins=twins)
            ]

        for _ in range(3):
            monkeypatch.setitem(decision.RULES, "published", decision.Ranking(corrupted, choose))
            again, *_ = decision.decide(run, candidates)
            assert again.nested_choices[str(subject)] == choice.nested_choices[str(subject)]
            for kind in ("nested", "nested_uncensored"):
                own, before = (getattr(one, f"{kind}_test_scores") for one in (again, choice))
                assert own[str(subject)] == before[str(subject)]
                moved[kind] += own != before
            changed += again.nested_choices != choice.nested_choices
    assert changed > 0, "the corruption must be able to change other subjects' choices"
    assert moved["nested"] > 0


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    return run_tiny(tmp_path_factory.mktemp("averaged"), rule="average", adaptation="zero-shot", seeds=2, max_epochs=3)


def test_the_delivered_model_is_the_average(averaged: tuple[Run, Choice]) -> None:
    run, choice = averaged
    model, average = load_model(run.folder / "model"), choice.average
    assert average is not None
    assert len(model.parts) == len(average.weights)
    assert sum(one.share for one in average.weights) == pytest.approx(1)
    assert sum(model.exponents) == pytest.approx(1 / average.temperature)
    named = {run.options.name_of(part.setting): part for part in model.parts}
    logs = []
    for one, exponent in zip(average.weights, sorted(model.exponents, reverse=True), strict=True):
        assert one.share == pytest.approx(exponent * average.temperature)
        assert one.members == named[one.name].card.members
        logs.append(exponent * np.log(named[one.name].predict_proba(run.recordings.X)))
    expected = np.exp(np.sum(logs, 0))
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(run.recordings.X), expected, atol=1e-9)


def test_nothing_a_person_has_touched_decides_for_them(
    averaged: tuple[Run, Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record and prediction of trainings that held a person out is replaced, and so are the person's labels."""
    run, choice = averaged
    candidates = [named.setting for named in choice.shortlist]
    generator, real = np.random.default_rng(0), Run.weights
    for subject in range(4):
        entries = [
            replace(e, record=poisoned(e.record, generator)) if subject in (e.validation, e.test) else e
            for e in run.ledger.entries()
        ]
        touched = {e.key for e in entries if subject in (e.validation, e.test)}

        def weights(own: Run, key: str, touched: set[str] = touched) -> dict[str, Tensor]:
            found = real(own, key)
            if key in touched:
                shape = found[LOG_PROBS].shape
                found[LOG_PROBS] = torch.from_numpy(np.log(generator.dirichlet(np.ones(shape[1]), shape[0]))).float()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Run, "weights", weights)
            patch.setattr(run.ledger, "entries", lambda *_, own=entries, **__: own)
            again, *_ = decision.decide(run, candidates)
        person = str(subject)
        assert again.average is not None
        assert choice.average is not None
        assert again.average.nested_weights[person] == choice.average.nested_weights[person]
        assert again.nested_choices[person] == choice.nested_choices[person]
        assert again.average.nested_weights != choice.average.nested_weights, "or nothing was replaced"


def poisoned(record: Record, generator: np.random.Generator) -> Record:
    """The same training with invented scores and counts on its test subjects, and another past."""
    swapped = None if record.swapped is None else poisoned(record.swapped, generator)
    counts = generator.integers(0, 9, record.test_confusion.shape)
    return replace(record, test_score=generator.random(), test_confusion=counts, swapped=swapped)


def test_test_scores_reach_no_choice(
    finished: tuple[Run, Choice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As published: where every test score is noise, the same settings go on, and the same are chosen."""
    _, choice = finished
    generator, real = np.random.default_rng(0), Ledger.finish

    def finish(ledger: Ledger, key: str, record: Record, tensors: bytes) -> None:
        real(ledger, key, poisoned(record, generator), tensors)

    monkeypatch.setattr(Ledger, "finish", finish)
    (tmp_path / "poisoned").mkdir()
    again = run_tiny(tmp_path / "poisoned", max_epochs=12)[1]
    decided = ("chosen", "paper_network", "best_uncensored", "paper_network_won", "shortlist", "validation_q25",
               "validation_mean", "nested_choices", "adaptation")  # fmt: skip
    assert {name: getattr(again, name) for name in decided} == {name: getattr(choice, name) for name in decided}
    for name in ("test_scores", "nested_test_scores", "nested_uncensored_test_scores"):
        assert getattr(again, name) != getattr(choice, name), "or nothing was poisoned"


@pytest.mark.parametrize("standardize", ["trial", "train", pytest.param("transductive", marks=pytest.mark.slow)])
def test_standardization_is_inside_the_model(tmp_path: Path, standardize: str) -> None:
    run, choice = run_tiny(tmp_path, standardize=standardize)
    model = load_model(run.folder / "model")
    jobs = [at.Job(choice.chosen.setting, fold) for fold in at.leave_one_subject_out(run.recordings)]
    outcomes = at.train(run.recordings, jobs, "cpu")
    _, logits = at.encode(run.recordings, outcomes, np.arange(run.recordings.n_trials))
    expected = logits.double().softmax(-1).mean(0).numpy()
    np.testing.assert_allclose(model.predict_proba(run.recordings.X, run.recordings.subject), expected, atol=1e-6)
    assert (choice.adaptation == "transductive") == (standardize == "transductive")
