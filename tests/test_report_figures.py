"""Figures are accepted by plotly and equal the choice."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from autotransfer.jobs import Record
from autotransfer.report import plot
from autotransfer.report.comparison import list_methods
from autotransfer.report.page import SECTIONS
from autotransfer.report.plot import Figure
from autotransfer.report.statistics import compare_paired
from autotransfer.report.summary import Summary
from report_example import EXAMPLES, averaged, finished, in_stages, paper_network_chosen
from report_outline import example, figure_data


def figures(run: Summary) -> dict[str, Figure]:
    made = (make(run) for section in SECTIONS for make in section.figures)
    return {figure.key: figure for figure in made if figure is not None}


@pytest.mark.parametrize("name", EXAMPLES)
def test_plotly_accepts_every_figure(name: str) -> None:
    for figure in figure_data(example(name)):
        text = re.sub(r"var\(--[a-z0-9-]+\)", "#123456", json.dumps([figure["data"], figure["layout"]]))
        data, layout = json.loads(text)
        drawn = go.Figure(data=data, layout=layout)
        assert any(trace.type == "heatmap" or any(v is not None for v in trace.y) for trace in drawn.data)
    for drawn in figures(EXAMPLES[name]()).values():
        assert drawn.rows
        assert all(len(row) == len(drawn.columns) for row in drawn.rows)


# ---- what is compared ------------------------------------------------------------------------------------------------


def with_tests(run: Summary, change: Callable[[float], float]) -> Summary:
    """The run with other test scores."""

    def changed(record: Record) -> Record:
        return replace(record, test_score=change(record.test_score))

    fits = [
        replace(one, record=replace(changed(one.record), swapped=changed(one.record.swapped)))
        for one in run.fits
        if one.record.swapped is not None
    ]
    return replace(run, fits=tuple(fits))


def test_settings_are_picked_by_validation_alone() -> None:
    run = finished(8, seed=9)
    spoiled = with_tests(run, lambda value: 1 - value)
    assert [row.setting for row in list_methods(spoiled)] == [row.setting for row in list_methods(run)]


# ---- figures against the choice --------------------------------------------------------------------------------------


def test_the_first_figure_has_the_delivered_model_and_baselines_by_subject() -> None:
    for run in (finished(), averaged(), paper_network_chosen()):
        figure = figures(run)["subjects"]
        subject, delivered, *baselines, plain = figure.columns
        assert subject == "subject"
        assert plain == "EEGNet (paper)"
        columns = dict(zip(figure.columns, zip(*figure.rows, strict=True), strict=True))
        people = columns["subject"]
        assert dict(zip(people, columns[delivered], strict=True)) == run.choice.estimate
        assert dict(zip(people, columns[plain], strict=True)) == run.choice.test_scores["paper_network"]
        assert {name: dict(zip(people, columns[name], strict=True)) for name in baselines} == run.choice.baselines
        means = [np.mean(columns[name]) for name in baselines]
        assert means == sorted(means, reverse=True)
        bands = [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
        assert run.choice.interval == (bands[0]["x0"], bands[0]["x1"])
    assert "subjects" not in figures(replace(finished(), choice=None))


def test_differences_are_to_the_best_baseline() -> None:
    run = averaged()
    pair = compare_paired(run.choice.estimate, run.choice.baselines[run.choice.best_baseline.name])
    figure = figures(run)["differences"]
    assert dict(map(tuple, figure.rows)) == pair.differences
    (band,) = figure.layout["shapes"]
    assert (band["y0"], band["y1"]) == pair.interval


def test_the_score_is_drawn_against_time() -> None:
    run = in_stages()
    figure, known = figures(run)["stages"], run.choice.stages
    assert figure.data[-1]["x"] == [stage.seconds / 60 for stage in known]
    assert figure.data[-1]["y"] == [stage.score for stage in known]
    assert figure.rows == [[stage.name, stage.seconds, stage.score, *stage.interval] for stage in known]
    alone = replace(known[0], scores={"1": 0.5}, score=0.5, interval=[])
    figure = figures(replace(run, choice=replace(run.choice, stages=[alone])))["stages"]
    assert figure.rows == [["simple models", 12.0, 0.5, None, None]]
    assert "stages" not in figures(averaged())


def test_confusion_and_reliability_are_those_of_the_delivered_model() -> None:
    run = averaged()
    drawn = figures(run)
    whole = np.sum([np.array(counts) for counts in run.choice.confusions.values()], 0)
    assert [row[3] for row in drawn["confusion"].rows[: whole.size]] == whole.ravel().tolist()
    assert {row[0] for row in drawn["confusion"].rows} == {"all subjects", *run.choice.confusions}
    found, rows = run.choice.calibration, drawn["reliability"].rows
    bins = [row for row in rows if row[0] == "all windows"]
    assert [row[1:] for row in bins] == np.transpose([found.confidence, found.accuracy, found.share]).tolist()
    people = {row[0]: row[2] for row in rows if row[0] != "all windows"}
    assert people == {who: own.accuracy for who, own in run.choice.reliability.items()}
    worst = max(run.choice.reliability.items(), key=lambda item: item[1].overconfidence)[0]
    assert f"subject {worst}" in drawn["reliability"].caption
    spoiled = replace(found, accuracy=[math.nan] * 6)
    lacking = replace(run, choice=replace(run.choice, calibration=spoiled, confusions={}, reliability={}))
    assert not {"confusion", "reliability"} & set(figures(lacking)), "a run of an earlier version"


def test_sessions_and_labels_are_those_of_the_replay() -> None:
    run = averaged()
    played = run.choice.replay
    drawn = figures(run)
    gains = {(order, who): gain for order, who, gain in drawn["adaptation"].rows}
    assert gains == {
        (order, who): played.adapted[order][who] - value
        for order, scores in played.zero_shot.items()
        for who, value in scores.items()
    }
    calibrated = {row[1]: row[2] for row in drawn["labels"].rows if row[0].startswith("calibrated")}
    assert calibrated == {int(n): pytest.approx(np.mean([*v.values()])) for n, v in played.calibrated.items()}


# ---- axes ------------------------------------------------------------------------------------------------------------


def test_the_narrowest_range_of_scores_holds_them_all() -> None:
    assert plot.score_range([0.503, 0.497]) == (0.4, 0.6)
    assert plot.score_range([]) == plot.score_range([math.nan, None]) == (0.0, 1.0)
    for value in np.linspace(0, 1, 41):
        low, high = plot.score_range([value])
        assert 0 <= low <= value <= high <= 1
        assert high - low >= 0.19
