"""The figures: accepted by plotly, honest in their axes, told apart by everyone, picked by validation alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from autotransfer.report import page
from autotransfer.report.comparison import best_settings, contenders, validation_table
from autotransfer.report.figures import figures
from autotransfer.report.latent_figures import leakage
from autotransfer.report.outcomes import scores_on_test, scores_on_validation, settled
from autotransfer.search import stages
from report_example import EXAMPLES, finished
from report_outline import example, figure_data


@pytest.mark.parametrize("name", EXAMPLES)
def test_plotly_accepts_every_figure(name: str) -> None:
    for figure in figure_data(example(name)):
        text = re.sub(r"var\(--[a-z0-9-]+\)", "#123456", json.dumps([figure["data"], figure["layout"]]))
        data, layout = json.loads(text)
        drawn = go.Figure(data=data, layout=layout)
        assert any(trace.type == "heatmap" or any(v is not None for v in trace.y) for trace in drawn.data)
        assert figure["table"]["rows"]
        assert all(len(row) == len(figure["table"]["columns"]) for row in figure["table"]["rows"])


def test_every_colour_of_a_figure_is_defined_for_light_and_dark() -> None:
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", json.dumps(figure_data(example("gain")))))
    for theme in _themes():
        assert used <= set(theme)


def _themes() -> list[dict[str, str]]:
    css = Path(page.__file__).with_name("page.css").read_text()
    blocks = re.findall(r"(?::root, \.light|  :root) \{(.*?)\}", css, re.S)
    assert len(blocks) == 2
    return [dict(re.findall(r"(--[a-z0-9-]+): ([^;]+);", block)) for block in blocks]


# Machado, Oliveira & Fernandes (2009), severity 1, for linear RGB.
DEFICIENCIES = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deutan": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "protan": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "tritan": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", [0, 1])
def test_colours_stay_apart_for_everyone(deficiency: str, theme: int) -> None:
    """Smallest distance of any two of the seven colours, in OKLab × 100; 2 is about what one can just see."""
    names = ("--accent", "--grey", "--c1", "--c2", "--c3", "--c4", "--c5")
    rgb = np.array([[int(_themes()[theme][n][i : i + 2], 16) / 255 for i in (1, 3, 5)] for n in names])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(DEFICIENCIES[deficiency]).T, 0, 1)
    to_cones = np.array([[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]])
    to_lab = np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]])
    lab = 100 * np.cbrt(seen @ to_cones.T) @ to_lab.T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1)[np.triu_indices(7, 1)]
    assert distances.min() > (7 if deficiency == "tritan" else 10)


def test_settings_of_the_figure_are_picked_by_validation_alone() -> None:
    run = settled(finished(8, seed=9))
    before = {row.key: row.setting for row in contenders(run)}
    spoiled = run.results.copy()
    spoiled["test_score"] = np.random.default_rng(0).permutation(spoiled["test_score"].to_numpy())
    spoiled["swapped_test_score"] = 0.0
    assert {row.key: row.setting for row in contenders(replace(run, results=spoiled))} == before
    assert not any("test" in str(column) for column in validation_table(run).columns)


def test_validation_is_summarised_as_the_choice_does_it() -> None:
    """Against the code that chooses: subjects validate in their own fold and as the exchanged twin, failures are 0."""
    run = finished(8, seed=9)
    results = run.results.copy()
    results["failure"] = results["failure"].astype(object)
    results.loc[results.index[20], "failure"] = "out of memory"
    mine = validation_table(settled(replace(run, choice=None, results=results)))
    listed = set(results[results["stage"] == "folds"]["setting"])
    place = {subject: i for i, subject in enumerate(run.data["subjects"])}
    scores = []
    for row in results[results["setting"].isin(listed)].to_dict("records"):
        value, twin = (0, 0) if row["failure"] else (row["validation_score"], row["swapped_validation_score"])
        scores.append(stages.Score(row["setting"], place[row["validation_subject"]], value))
        scores.append(stages.Score(row["setting"], place[row["test_subject"]], twin))
    for name in listed:
        assert mine["q25"][name] == pytest.approx(stages.lower_quartile(scores, name))
        assert mine["mean"][name] == pytest.approx(stages.mean_score(scores, name))
    assert mine.index[0] == stages.choose(scores, sorted(listed))
    for method, best in best_settings(mine).items():
        assert mine["q25"][best] == mine[mine["method"] == method]["q25"].max()


def test_a_job_shared_by_both_stages_counts_once_in_each() -> None:
    run = settled(finished(5))
    assert all(len(scores) == 5 for scores in scores_on_test(run.results).values())
    assert all(len(scores) == 5 for scores in scores_on_validation(run.results).values())
    assert not any((run.results["stage"] == "folds") & (run.results["fold"] == 0))
    twice = run.results[run.results["stage"] == "search"].assign(stage="folds", test_score=0.5)
    again = settled(replace(run, results=pd.concat([run.results, twice])))
    first = run.data["subjects"][0]
    assert {scores[first] for scores in scores_on_test(again.results).values()} == {0.5}


def test_seeds_are_averaged_per_subject() -> None:
    run = finished(5)
    second = run.results.assign(seed=1, test_score=run.results["test_score"] - 0.1)
    both = settled(replace(run, results=pd.concat([run.results, second]), choice=None))
    once = settled(replace(run, choice=None))
    for first, mean in zip(contenders(once), contenders(both), strict=True):
        assert {s: v - 0.05 for s, v in first.scores.items()} == pytest.approx(mean.scores)


def test_scores_are_drawn_from_zero_to_one() -> None:
    for found in figures(settled(finished())).values():
        for figure in found:
            axes = [
                axis for key, axis in figure.layout.items() if "axis" in key and "accuracy" in str(axis.get("title"))
            ]
            assert all(axis["range"] == [0, 1] for axis in axes)


def test_leakage_is_followed_from_the_same_network_without_its_censor() -> None:
    """The baseline may prepare its windows otherwise: the way from it to the chosen one is not the censor's."""
    run = finished(gain=0.1)
    row = {"fold": 1.0, "chance": 0.1, "bits": 1.0}
    leaks = {side: [row | {"accuracy": level}] for side, level in (("baseline", 0.3), ("chosen", 0.5))}
    chosen = {"method": "mmd", "standardise": "trial"}
    alike = {**run.choice, "chosen": chosen, "baseline": {"method": "none", "standardise": "trial"}}
    other = {**alike, "chosen": chosen | {"standardise": "channel"}}
    before = leakage(replace(run, choice=alike, leakage=leaks))
    assert before.data[0]["y"] == [0.3, 0.5, None]
    assert before.caption.endswith("it can only guess, so censoring should move the dots down.")
    assert "not the censor's alone" in leakage(replace(run, choice=other, leakage=leaks)).caption
    three = leaks | {"uncensored": [row | {"accuracy": 0.9}]}
    both = leakage(replace(run, choice=other, leakage=three))
    assert both.data[0]["y"] == [0.9, 0.5, None]
    assert [(side, accuracy) for _, _, side, accuracy, *_ in both.rows] == [
        ("baseline", 0.3), ("uncensored", 0.9), ("chosen", 0.5),
    ]  # fmt: skip
    assert "without it; the baseline prepares its windows or learns from them otherwise" in both.caption
    assert "the baseline draws its batches otherwise" in leakage(replace(run, choice=alike, leakage=three)).caption
    plain = {**other, "chosen": other["chosen"] | {"method": "none"}}
    assert "no censor was chosen" in leakage(replace(run, choice=plain, leakage=leaks)).caption
    alone = leakage(replace(run, choice=alike, leakage={"baseline": leaks["baseline"]}))
    assert alone.caption.endswith("it can only guess."), "nothing to compare"
