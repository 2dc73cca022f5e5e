"""Baselines of the benchmarks equal pyRiemann's and score every subject."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import field, shallow

import autotransfer as at
from tiny import tiny

SHALLOW = ("lda", "log_power", "log_euclidean", "riemann", "riemann_templates")


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
    predicted = next(shallow.log_euclidean(task))[2].argmax(1)
    assert (predicted == expected).mean() > 0.9  # a constant in every vector, which the penalty sees


def test_every_baseline_scores_every_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = tiny(n_subjects=4, per_class=8)
    monkeypatch.setattr(at, "load", lambda _: recordings)
    field.load.cache_clear()
    found = [one for name in SHALLOW for one in field.compute(field.FieldJob("tiny", name, 0, None, "cpu"))]
    rows = list(field.score_rows(recordings, found))
    names = {(one.baseline, one.adaptation) for one in found}
    assert {("shrinkage LDA", "zero-shot"), ("pyRiemann", "transductive")} <= names
    assert len(rows) == 4 * len(names)
    assert np.mean([row[5] for row in rows if row[1] == "shrinkage LDA"]) > 0.9
