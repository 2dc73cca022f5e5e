"""--metric decides selection, scores of subjects, chance and the headline."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import autotransfer as at
from autotransfer.censoring import CENSORS
from autotransfer.report.collect import collect
from autotransfer.report.comparison import list_methods
from autotransfer.runs.choice import Choice, read_choice
from autotransfer.runs.run import Run
from autotransfer.search.evaluation import delivered_predictions
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.held_out import find_entries
from autotransfer.search.procedure import perform_plan
from tiny import create_run, described, tiny_file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    source = str(tiny_file(folder, n_subjects=4))
    options = described(source=source, max_epochs=1, grid="uncensored", seeds=1, device="cpu", metric="auc")
    run = create_run(folder / "run", options)
    perform_plan(run, lambda _: None, progress=False)
    return run


def candidates(run: Run, choice: Choice) -> list[at.Setting]:
    return [one.setting for one in choice.shortlist]


@pytest.mark.slow
def test_subjects_are_scored_by_the_metric_everywhere(run: Run) -> None:
    choice = read_choice(run.folder)
    assert choice.metric == "roc_auc"
    assert choice.chance == 0.5
    assert "AUC on 4 held-out subjects" in choice.headline
    assert "roc_auc" not in choice.other_metrics
    assert set(choice.other_metrics) >= {"balanced_accuracy", "f1_macro"}
    settings = candidates(run, choice)
    entries = find_entries(run, settings, run.folds())
    evidence = ClassificationEvidence.from_run(run, choice.shortlist, entries)
    for person, log_p in delivered_predictions(choice, evidence).items():
        expected = np.mean([roc_auc_score(evidence.y[person] == k, np.exp(log_p[:, k])) for k in (0, 1)])
        assert choice.nested_test_scores[str(person)] == pytest.approx(expected)
    names = {row.key for row in list_methods(collect(run, weights=False))}
    assert "nested" in names
    assert not names & set(CENSORS)
    assert "pyRiemann tangent space + LDA" in choice.baselines
