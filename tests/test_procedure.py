"""The whole procedure on tiny data is complete, free of leakage, resumable, and fits nothing twice."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import autotransfer as at
from autotransfer.jobs import Record
from autotransfer.models.loading import load_model
from autotransfer.runs.choice import Choice, Selection
from autotransfer.runs.database import RunDatabase
from autotransfer.runs.run import Run
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.plan import make_plan
from autotransfer.search.procedure import perform_plan
from autotransfer.search.selection import select
from faults import few_linear_candidates, quiet
from tiny import create_run, described, make_evidence, tiny_file

pytestmark = pytest.mark.usefixtures("brief_results")

SETTINGS = at.grid("quick")[:5]


def run_tiny(folder: Path, *, rule: str = "published", **options: object) -> tuple[Run, Choice]:
    source = options.pop("source", None) or str(tiny_file(folder))
    given = {"max_epochs": 2, "batch_size": 8, "device": "cpu", "rule": rule, "grid": SETTINGS} | options
    run = create_run(folder / "run", described(source=source, **given))
    return run, perform_plan(run, quiet, progress=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    return run_tiny(tmp_path_factory.mktemp("finished"), max_epochs=12)


def test_results_are_tidy_and_complete(finished: tuple[Run, Choice]) -> None:
    run, choice = finished
    table = pd.read_csv(run.folder / "results.csv", keep_default_na=False)
    settings = len(SETTINGS)
    assert set(table["stage"]) == {"folds"}, "all settings go on, so there is no stage one"
    assert len(choice.shortlist) == settings
    assert len(table) == settings * 4
    assert not table.duplicated(["setting", "test_subject", "seed"]).any()
    assert (table.loc[table["method"] == "none", "mode"] == "none").all()
    assert len(table) == make_plan(run.prepared).n_network_fits
    assert [e.starts for e in run.database.entries()] == [1] * len(table)


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
    assert choice.is_paper_network_chosen == (best == "paper_network")
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


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Choice]:
    folder = tmp_path_factory.mktemp("averaged")
    with few_linear_candidates():
        return run_tiny(folder, rule="average", adaptation="zero-shot", seeds=2, grid="uncensored")


def test_the_delivered_model_is_the_average(averaged: tuple[Run, Choice]) -> None:
    run, choice = averaged
    model, average = load_model(run.folder / "model"), choice.ensemble
    assert len(model.candidates) == len(average.candidates)
    assert sum(one.share for one in average.candidates) == pytest.approx(1)
    assert sum(model.card.weights) == pytest.approx(1 / average.temperature)
    assert [one.weight for one in average.candidates] == sorted(model.card.weights, reverse=True)


def without_truth(
    evidence: ClassificationEvidence, subject: int, generator: np.random.Generator
) -> ClassificationEvidence:
    """Replace everything that the subject took part in: their classes, and scores and predictions of fits that held
    them out."""

    def noise(log_p: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.log(generator.dirichlet(np.ones(log_p.shape[2]), log_p.shape[:2])).astype(np.float32)

    return replace(
        evidence,
        log_probs={(fit, who): noise(p) if subject in fit else p for (fit, who), p in evidence.log_probs.items()},
        y=evidence.y | {subject: generator.permutation(evidence.y[subject])},
        scores=tuple(
            score._replace(value=generator.random()) if subject in {score.subject, *score.held_out_with} else score
            for score in evidence.scores
        ),
        pools={},
    )


def selected_without(selection: Selection, subject: str) -> list[object]:
    ensemble = selection.ensemble
    weights = [] if ensemble is None else [ensemble.nested[subject], ensemble.nested_uncensored.get(subject)]
    return [selection.nested_choices[subject], selection.nested_uncensored_choices[subject], *weights]


def depends_on_a_subject(evidence: ClassificationEvidence) -> bool:
    """Whether the selection without a subject changes with what the subject took part in."""
    before, generator, found, moved = select(evidence), np.random.default_rng(0), False, False
    for _ in range(3):
        for subject in evidence.held_out_subjects:
            after, name = select(without_truth(evidence, subject, generator)), evidence.subjects[subject]
            found |= selected_without(after, name) != selected_without(before, name)
            moved |= any(selected_without(after, s) != selected_without(before, s) for s in evidence.subjects)
    assert moved, "what was replaced must be able to change other subjects' selections"
    return found


def test_no_subject_decides_about_itself(finished: tuple[Run, Choice], averaged: tuple[Run, Choice]) -> None:
    for done in (finished, averaged):
        evidence = make_evidence(*done)
        again = select(evidence, done[1].paper_network)
        assert again == Selection(**{field.name: getattr(done[1], field.name) for field in fields(Selection)})
        assert not depends_on_a_subject(evidence)


def test_selection_is_given_no_evidence_of_the_subject(averaged: tuple[Run, Choice]) -> None:
    evidence = make_evidence(*averaged)
    for subject in evidence.held_out_subjects:
        known = evidence.without([subject])
        assert subject not in known.y
        assert not any(subject in fit for fit, _ in known.log_probs)
        assert not any(subject in {score.subject, *score.held_out_with} for score in known.scores)
        others = [who for who in known.pools if who in known.incomplete]
        assert not others, "pools that are kept have no fit that held the subject out"


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
    generator, real = np.random.default_rng(0), RunDatabase.finish

    def finish(database: RunDatabase, key: str, record: Record, tensors: bytes) -> None:
        real(database, key, poisoned(record, generator), tensors)

    monkeypatch.setattr(RunDatabase, "finish", finish)
    (tmp_path / "poisoned").mkdir()
    again = run_tiny(tmp_path / "poisoned", max_epochs=12)[1]
    for field in fields(Selection):
        assert getattr(again, field.name) == getattr(choice, field.name)
    for name in ("test_scores", "nested_test_scores", "alternatives"):
        assert getattr(again, name) != getattr(choice, name), "or nothing was poisoned"
