"""Baselines of the benchmarks see no test labels and equal pyRiemann's."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import shallow
from benchmarks.csv_rows import read_known_rows
from benchmarks.run_baselines import BASELINES, run

import autotransfer as at
from tiny import tiny, tiny_file


def test_no_task_holds_the_test_subjects_labels() -> None:
    recordings = tiny()
    fold = at.leave_one_subject_out(recordings)[1]
    task = shallow.make_task(recordings, fold, 0)
    assert (task.y[fold.test] == -1).all()
    assert (task.y[task.known] == recordings.y.numpy()[task.known]).all()
    assert not set(task.known) & set(fold.test)
    assert len(task.known) + len(fold.test) == recordings.n_windows


def test_the_online_mean_is_causal() -> None:
    C = shallow.oas_covariances(np.random.default_rng(1).standard_normal((9, 3, 30)))
    order = np.random.default_rng(2).permutation(9)
    prior = np.eye(3)
    whole = shallow.running_tangent(C, prior, order)
    changed = C.copy()
    changed[order[5:]] *= 10  # the future of the first five
    again = shallow.running_tangent(changed, prior, order)
    np.testing.assert_allclose(again[order[:5]], whole[order[:5]])
    assert not np.allclose(again[order[5:]], whole[order[5:]])


def test_scores_by_subject_have_no_scale_or_offset() -> None:
    values, who = np.random.default_rng(0).standard_normal((30, 3)), np.arange(30) % 3
    moved = np.where((who == 1)[:, None], 7 * values + 2, values)
    np.testing.assert_allclose(shallow.standardize_by_subject(moved, who), shallow.standardize_by_subject(values, who))


def test_the_log_euclidean_baseline_is_pyriemanns() -> None:
    from pyriemann.tangentspace import TangentSpace
    from sklearn.linear_model import LogisticRegression

    recordings = tiny(per_class=8)
    task = shallow.make_task(recordings, at.leave_one_subject_out(recordings)[0], 0)
    C = shallow.oas_covariances(shallow._scale(task.X, shallow._median_scale(task)))
    space = TangentSpace(metric="logeuclid")
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)
    model.fit(space.fit_transform(C[task.known]), task.y[task.known])
    expected = model.predict(space.transform(C[task.test]))
    predicted = dict(shallow.log_euclidean(task))
    assert (predicted["log_euclidean"] == expected).mean() > 0.9  # a constant in every vector, which the penalty sees


@pytest.mark.slow
def test_rows_are_tidy_and_a_repeated_command_adds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "baselines.csv"
    source = str(tiny_file(tmp_path, n_subjects=4, per_class=8))
    options = Namespace(files=[source], out=out, baselines=list(BASELINES))
    run(options)
    rows = read_known_rows(out)
    pipelines = {row["pipeline"] for row in rows}
    assert {"lda", "riemann", "riemann_recentered", "riemann_running", "riemann_templates"} <= pipelines
    assert len(rows) == 4 * len(pipelines)
    assert {row["dataset"] for row in rows} == {"tiny"}
    run(options)
    assert read_known_rows(out) == rows
    assert np.mean([float(row["score"]) for row in rows if row["pipeline"] == "lda"]) > 0.9


def test_scores_do_not_come_from_the_test_labels() -> None:
    recordings = tiny(per_class=8)
    task = shallow.make_task(recordings, at.leave_one_subject_out(recordings)[0], 0)
    for predict in BASELINES.values():
        first = dict(predict(task))
        other = dict(predict(replace(task, y=np.where(task.y < 0, -7, task.y))))
        assert all((first[key] == other[key]).all() for key in first)
