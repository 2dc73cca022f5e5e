"""Figures of a run in Python are those of its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import autotransfer as at
from autotransfer.report.summary import Summary
from report_example import averaged, hostile, unfinished


def fitted(summary: Summary) -> Any:
    """A fitted estimator, as far as figures need one."""
    return SimpleNamespace(summary_=summary)


def test_figures_show_the_numbers_of_the_result() -> None:
    run = averaged()
    choice = run.choice
    drawn = at.plot.subjects(fitted(run))
    assert isinstance(drawn, go.Figure)
    assert list(drawn.data[0].x) == list(choice.estimate.values())
    assert {trace.name for trace in drawn.data[1:]} >= set(choice.baselines)
    curve = at.plot.learning_curve(fitted(run)).data[0]
    means = [np.mean(list(scores.values())) for scores in choice.replay.calibrated.values()]
    assert dict(zip(curve.x, curve.y, strict=True)) == dict(zip(choice.replay.calibrated, means, strict=True))
    counts = np.sum(list(choice.confusions.values()), 0)
    shares = np.array(at.plot.confusion(fitted(run)).data[0].z)
    np.testing.assert_allclose(shares, counts / counts.sum(1, keepdims=True))


def test_variables_of_the_page_are_replaced_in_colors_only() -> None:
    drawn = at.plot.confusion(fitted(hostile(names=("var(--ink)", "a", "b"))))
    assert "var(--ink)" in drawn.layout.xaxis.ticktext, "a class with the name of a color"
    for name in at.plot.__all__:
        text = getattr(at.plot, name)(fitted(averaged())).to_json()
        assert "var(" not in text


@pytest.mark.parametrize("name", at.plot.__all__)
def test_a_run_without_the_numbers_is_refused(name: str, tmp_path: Path) -> None:
    plot = getattr(at.plot, name)
    with pytest.raises(at.UserError, match="no result yet"):
        plot(fitted(unfinished()))
    for other in (3, at.AutoTransferClassifier()):
        with pytest.raises(at.UserError, match="folder of a run"):
            plot(other)
    with pytest.raises(at.UserError, match="there is no folder"):
        plot(tmp_path / "run")


def test_a_result_without_labeled_windows_has_no_learning_curve() -> None:
    run = averaged()
    with pytest.raises(at.UserError, match="do not allow"):
        at.plot.learning_curve(fitted(replace(run, choice=replace(run.choice, replay=None))))
