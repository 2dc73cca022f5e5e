"""The figures: accepted by plotly, honest in their axes, told apart by everyone, picked by validation alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from autotransfer import Setting
from autotransfer.censoring import CENSORS
from autotransfer.censoring.adversary import Adversary
from autotransfer.grids import grid
from autotransfer.jobs import Record
from autotransfer.report import page, plot
from autotransfer.report.comparison import contenders, ranking
from autotransfer.report.latent_figures import leakage
from autotransfer.report.outcomes import one_split_trainings, scores_on_test, scores_on_validation
from autotransfer.report.page import figures
from autotransfer.report.plot import Figure
from autotransfer.report.statistics import paired
from autotransfer.report.summary import Leak, Summary, WeightsStory
from autotransfer.report.wording import method_label, setting_names
from autotransfer.runs.choice import NamedSetting
from autotransfer.runs.ledger import Entry
from autotransfer.search import stages
from autotransfer.search.validation import validation_scores
from report_example import EXAMPLES, averaged, baseline_won, failing, finished, in_stages
from report_outline import example, figure_data, light


@pytest.mark.parametrize("name", EXAMPLES)
def test_plotly_accepts_every_figure(name: str) -> None:
    for figure in figure_data(example(name)):
        text = re.sub(r"var\(--[a-z0-9-]+\)", "#123456", json.dumps([figure["data"], figure["layout"]]))
        data, layout = json.loads(text)
        drawn = go.Figure(data=data, layout=layout)
        assert any(trace.type == "heatmap" or any(v is not None for v in trace.y) for trace in drawn.data)
        assert figure["table"]["rows"]
        assert all(len(row) == len(figure["table"]["columns"]) for row in figure["table"]["rows"])


def test_the_score_is_drawn_against_time_where_a_run_answers_in_stages() -> None:
    run = in_stages()
    assert run.choice is not None
    (figure,) = figures(run)["stages"]
    marks = figure.data[-1]
    known = run.choice.stages
    assert marks["x"] == [stage.seconds / 60 for stage in known]
    assert marks["y"] == [stage.score for stage in known]
    assert figure.data[0]["y"] == [value for stage in known for value in (*stage.interval, None)]
    assert figure.rows == [[stage.name, stage.seconds, stage.score, *stage.interval] for stage in known]
    text = example("stages")
    assert "1 simple models (12 s); 2 plain networks (7 min); 3 penalties &lt;b&gt; (25 min)" in text
    assert text.index('data-figure="glance"') < text.index('data-figure="stages"') < text.index('data-figure="results"')
    alone = replace(known[0], scores={"1": 0.5}, score=0.5, interval=[])
    (figure,) = figures(replace(run, choice=replace(run.choice, stages=[alone])))["stages"]
    assert figure.rows == [["simple models", 12.0, 0.5, None, None]]
    assert "stages" not in {one["key"] for one in figure_data(example("average"))}


def test_every_colour_of_a_figure_is_defined_for_light_and_dark() -> None:
    used = set(
        re.findall(r"var\((--[a-z0-9-]+)\)", json.dumps(figure_data(example("gain")) + figure_data(example("average"))))
    )
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


def with_tests(run: Summary, change: Callable[[float], float]) -> Summary:
    """The run with other test scores."""

    def changed(record: Record) -> Record:
        return replace(record, test_score=change(record.test_score))

    trainings = [
        replace(one, record=replace(changed(one.record), swapped=changed(one.record.swapped)))
        for one in run.trainings
        if one.record.swapped is not None
    ]
    return replace(run, trainings=tuple(trainings))


def test_settings_of_the_figure_are_picked_by_validation_alone() -> None:
    run = finished(8, seed=9)
    spoiled = with_tests(run, lambda value: 1 - value)
    assert [row.setting for row in contenders(spoiled)] == [row.setting for row in contenders(run)]
    assert ranking(spoiled) == ranking(run)


def test_validation_is_summarised_as_the_choice_does_it() -> None:
    """Against the code that chooses: subjects validate in their own fold and as the exchanged twin, failures are 0."""
    run = failing(finished(8, seed=9), {20: "out of memory"})
    place = {subject: i for i, subject in enumerate(run.data.subjects)}
    entries = [
        Entry(one.key, one.stage, one.setting, place[str(one.validation_subject)], one.fold, 0, "done", 1, one.record)
        for one in run.trainings
    ]
    scores = validation_scores(entries)
    mine = ranking(run)
    for one in mine:
        key = run.settings[one.name].key
        assert one.q25 == pytest.approx(stages.lower_quartile(scores, key))
        assert one.mean == pytest.approx(stages.mean_score(scores, key))
    assert run.settings[mine[0].name].key == stages.choose(scores, [run.settings[one.name].key for one in mine])


def test_a_job_shared_by_both_stages_counts_in_each() -> None:
    run = finished(5)
    assert not any(one.stage == "folds" and one.fold == 0 for one in run.trainings)
    for scores in (scores_on_test(run), scores_on_validation(run)):
        assert len(scores) == len(grid("quick"))
        assert all(len(own) == 5 for own in scores.values())
    assert {one.stage for one in one_split_trainings(run)} == {"search"}


def test_seeds_are_averaged_per_subject() -> None:
    once = replace(finished(5), choice=None)
    second = [replace(one, seed=1) for one in with_tests(once, lambda value: value / 2).trainings]
    both = replace(once, trainings=(*once.trainings, *second))
    for first, mean in zip(contenders(once), contenders(both), strict=True):
        assert {s: 0.75 * v for s, v in first.scores.items()} == pytest.approx(mean.scores)


def test_a_new_censor_has_its_own_label_colour_and_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sixth(Adversary):
        label = "Sixth <sense>"

    monkeypatch.setitem(CENSORS, "sixth", Sixth)
    looks = {plot.colour_and_mark(method) for method in (*CENSORS, "none", "uncensored", "nested", "gone")}
    assert len(looks) == len(CENSORS) + 4
    assert len(set(plot.METHOD_MARKS)) == len(plot.METHOD_MARKS) >= len(CENSORS), "a mark for each method"
    go.Scatter(x=plot.METHOD_MARKS, marker={"symbol": plot.METHOD_MARKS})
    added = [Setting(method="sixth", strength=0.5, max_epochs=60), Setting(max_epochs=60)]
    text = light(finished(6, settings=[*added[::-1], Setting(method="mmd", max_epochs=60)], chosen="baseline"))
    assert "Sixth &lt;sense&gt;, marginal" in text
    monkeypatch.undo()
    assert method_label("sixth") == "sixth", "a run of a censor that is not there any more"


@pytest.mark.parametrize("long", [False, True])
def test_settings_that_differ_in_one_option_are_told_apart_everywhere(long: bool) -> None:
    """Also where names are so long that figures cut them in the middle, where they differ."""
    more = {"standardise": "online", "append_scale": True, "log_power": True, "schedule": "constant", "dropout": 0.5}
    one = Setting(method="adversary", max_epochs=60, **more if long else {})
    tried = [Setting(max_epochs=60), one, replace(one, critic_lr=0.02), replace(one, critic_lr=0.03)]
    run = finished(6, settings=tried)
    page = light(run)
    words = set(setting_names(run).values())
    assert len(words) == 4
    assert all(escape(said) in page for said in words)
    shown = {figure["key"]: figure for figure in figure_data(page)}
    rows = [note["text"].split(" · ")[0].removeprefix("<b>") for note in shown["candidates"]["layout"]["annotations"]]
    assert len(set(rows)) == len(rows) == 4
    for key, traces, count in (("tried", slice(None), 3), ("candidates", slice(1, 2), 4)):
        marks = [text for trace in shown[key]["data"][traces] for text in trace.get("text", []) if "<br>" in text]
        assert len({mark.split("<br>")[0] for mark in marks}) == len(marks) == count
        assert len({row[0] for row in shown[key]["table"]["rows"]}) == 4


def drawn_of(run: Summary) -> dict[str, Figure]:
    return {figure.key: figure for found in figures(run).values() for figure in found}


def test_rows_of_an_average() -> None:
    run = averaged()
    assert run.average is not None
    rows = {row.key: row for row in contenders(run)}
    assert next(iter(rows)) == "none"
    assert list(rows)[-3:] == ["choosing", "equal", "nested"]
    assert rows["choosing"].scores == run.average.choosing_test_scores
    assert rows["equal"].scores == run.average.equal_test_scores
    looks = [plot.colour_and_mark(key) for key in rows]
    assert len(set(looks)) == len(looks)
    notes = {note["text"]: note["y"] for note in drawn_of(run)["results"].layout["annotations"]}
    names = ["Choosing alone", "Equal weights", "<b>AutoTransfer, nested</b>"]
    assert [notes[name] for name in names] == [len(rows) - 3, len(rows) - 2, len(rows) - 1]
    with_it = [row.key for row in contenders(finished()) if row.is_method]
    assert [row.key for row in contenders(run) if row.is_method] == with_it, "variants are not counted as methods"


def test_weights_are_drawn_as_they_are() -> None:
    run = averaged()
    assert run.average is not None
    figure = drawn_of(run)["shares"]
    used = [one for one in run.average.weights if one.share > 0]
    assert [bar["x"] for bar in figure.data] == [[one.share] for one in used]
    totals: dict[int, float] = {}
    for bar in figure.data:
        totals[bar["y"][0]] = totals.get(bar["y"][0], 0.0) + bar["x"][0]
    assert figure.layout["barmode"] == "stack"
    assert [totals.get(i, 0.0) for i in range(6)] == pytest.approx(list(run.average.kinds.values()))
    assert [note["text"] for note in figure.layout["annotations"] if note["y"] == 0] == ["EEGNet", "45\u00a0%"]
    assert len({bar["marker"]["color"] for bar in figure.data if bar["y"] == [0]}) == 1
    assert [row[2] for row in figure.rows] == [one.share for one in run.average.weights]
    nothing = replace(run.average, weights=[])
    assert run.choice is not None
    assert "shares" not in drawn_of(replace(run, choice=replace(run.choice, average=nothing)))


def test_what_kinds_add_is_drawn_with_its_interval() -> None:
    run = averaged()
    assert run.choice is not None
    assert run.average is not None
    figure = drawn_of(run)["contributions"]
    others = [*(run.average.without_kind[kind] for kind in run.average.kinds)]
    others += [run.average.choosing_test_scores, run.average.equal_test_scores]
    pairs = [paired(run.choice.nested_test_scores, other) for other in others]
    dots = [trace for trace in figure.data if trace["mode"] == "markers"]
    lines = [trace for trace in figure.data if trace["mode"] == "lines"]
    assert [dot["x"] for dot in dots] == [[pair.mean] for pair in pairs if pair]
    assert [line["x"] for line in lines] == [list(pair.interval) for pair in pairs if pair and pair.interval]
    low, high = figure.layout["xaxis"]["range"]
    assert low < 0 < high
    assert all(low < value < high for line in lines for value in line["x"])
    one = drawn_of(averaged(finished(3)))["contributions"]
    assert len(one.rows) == len(pairs)


def test_reliability_is_drawn_against_the_diagonal() -> None:
    run = averaged()
    assert run.choice is not None
    assert run.average is not None
    found = run.average.calibration
    figure = drawn_of(run)["reliability"]
    diagonal, bins = figure.data
    assert diagonal["x"] == diagonal["y"] == [0, 1]
    assert (bins["x"], bins["y"]) == (found.confidence, found.accuracy)
    sizes = bins["marker"]["size"]
    assert np.argsort(sizes, kind="stable").tolist() == np.argsort(found.share, kind="stable").tolist()
    assert [row[2] for row in figure.rows] == found.share
    for number in ("0.021", "0.083", "1.37"):
        assert number in figure.caption
    for values in ([], [math.nan] * 6):
        spoiled = replace(run.average, calibration=replace(found, accuracy=values))
        assert "reliability" not in drawn_of(replace(run, choice=replace(run.choice, average=spoiled)))


def test_the_rule_is_the_one_that_was_used() -> None:
    published, run = drawn_of(finished())["candidates"], averaged()
    assert "highest lower quartile" in published.caption
    figure = drawn_of(run)["candidates"]
    assert "the mean over people" in figure.caption
    assert "highest lower quartile" not in figure.caption
    won = drawn_of(averaged(baseline_won()))["candidates"]
    assert "No setting is clearly better than the plain network" in won.caption
    assert "No setting is clearly better" not in figure.caption
    means = [row[2] for row in figure.rows]
    assert means == sorted(means, reverse=True)
    assert run.choice is not None
    assert {row[0] for row in figure.rows} == set(run.choice.validation_mean), "those that nothing was trained for too"
    ticks = figure.data[0]
    assert ticks["name"] == "one subject"
    moved = {name: value - 0.01 for name, value in run.choice.validation_mean.items()}
    other = drawn_of(replace(run, choice=replace(run.choice, validation_mean=moved)))["candidates"]
    assert [trace["name"] for trace in other.data] == ["mean", "lower quartile"], "ticks of other scores would mislead"
    assert "chosen" not in drawn_of(replace(run, choice=None))["candidates"].caption


def test_panels_are_scaled_to_their_data_and_chance_is_in_them() -> None:
    for run in (finished(), averaged()):
        for figure in (figure for found in figures(run).values() for figure in found):
            for name, axis in figure.layout.items():
                if "axis" not in name or not re.search("accuracy|confidence", str(axis.get("title"))):
                    continue
                low, high = axis["range"]
                side = name[0]
                drawn = [v for trace in figure.data for v in trace[side] if isinstance(v, float)]
                assert low <= min(drawn) <= max(drawn) <= high, figure.key
                chance = (
                    figure.rows[0][3] if figure.key == "leakage" else run.data.chance or 0
                )  # of reading the subject
                assert low <= chance <= high
                known = [*drawn, chance]
                assert high - low <= max(0.2, max(known) - min(known) + 0.16), figure.key


def test_a_range_of_scores_holds_them_all() -> None:
    assert plot.score_range([0.503, 0.497]) == (0.4, 0.6)
    assert plot.score_range([0.0, 1.0]) == (0.0, 1.0)
    assert plot.score_range([]) == plot.score_range([math.nan, None]) == (0.0, 1.0)
    for value in np.linspace(0, 1, 41):
        low, high = plot.score_range([value])
        assert 0 <= low <= value <= high <= 1
        assert high - low >= 0.19


@pytest.mark.parametrize("n", [1, 12, 60])
def test_dots_of_a_row_hide_nobody_on_a_phone(n: int) -> None:
    values = np.random.default_rng(0).normal(0.7, 0.08, n).clip(0, 1).tolist()
    ends = plot.score_range(values)
    levels = plot.swarm(values, ends)
    x = np.array(values) / (ends[1] - ends[0]) * plot.NARROW
    y = np.array(levels) * plot.DOT
    apart = np.hypot(x[:, None] - x, y[:, None] - y)[np.triu_indices(n, 1)]
    assert (apart >= plot.DOT).all()
    assert max(map(abs, plot.swarm([0.5] * 100, ends))) == plot.MOST_LEVELS, "a row has an end"


def test_the_first_figure_shows_the_delivered_model_beside_what_it_has_to_beat() -> None:
    for run in (finished(), averaged(), baseline_won()):
        assert run.choice is not None
        (figure,) = figures(run)["answer"]
        by_row: dict[str, dict[str, float]] = {}
        for label, _, subject, value in figure.rows:
            by_row.setdefault(label, {})[subject] = value
        first, *peers, last = by_row
        assert (first, last) == ("AutoTransfer, as delivered", "Single plain network")
        means = [np.mean(list(run.choice.peers[name].values())) for name in peers]
        assert set(peers) == set(run.choice.peers)
        assert means == sorted(means, reverse=True)
        assert by_row[first] == run.choice.estimate
        assert by_row[last] == run.choice.test_scores["baseline"]
        bands = [shape for shape in figure.layout["shapes"] if shape["type"] == "rect"]
        assert run.choice.interval == (bands[0]["x0"], bands[0]["x1"])
    assert figures(replace(finished(), choice=None))["answer"] == []


def test_leakage_is_followed_from_the_same_network_without_its_censor() -> None:
    """The baseline may preprocess its windows otherwise: the way from it to the chosen one is not the censor's."""
    run = finished(gain=0.1)
    levels = {"baseline": 0.3, "uncensored": 0.9, "chosen": 0.5}
    leaks = {role: [Leak("1", level, 0.1, 1.0)] for role, level in levels.items()}

    def drawn(*roles: str, **change: Any) -> Figure:
        chosen = NamedSetting("chosen", Setting(**{"method": "mmd", "max_epochs": 60} | change))
        assert run.choice is not None
        weights = WeightsStory({role: leaks[role] for role in roles})
        figure = leakage(replace(run, choice=replace(run.choice, chosen=chosen), weights=weights))
        assert figure is not None
        return figure

    assert drawn("baseline", "chosen").data[0]["y"] == [0.3, 0.5, None]
    assert drawn("baseline", "chosen").caption.endswith("it can only guess, so censoring should move the dots down.")
    assert "not the only cause" in drawn("baseline", "chosen", standardise="train").caption
    three = drawn(*levels, standardise="train")
    assert three.data[0]["y"] == [0.9, 0.5, None]
    assert {row[1]: row[2] for row in three.rows} == levels
    assert "the baseline preprocesses its windows or trains in another way" in three.caption
    assert "the baseline draws its batches in another way" in drawn(*levels).caption
    assert "no censor was chosen" in drawn("baseline", "chosen", method=None).caption
    assert drawn("baseline").caption.endswith("it can only guess."), "nothing to compare"


def test_no_two_peers_look_alike_and_none_like_a_method() -> None:
    peers = [plot.colour_and_mark(f"peer {place} some name") for place in range(25)]
    assert len(set(peers)) == 25
    assert not {plot.colour_and_mark(method) for method in CENSORS} & set(peers[:5])
    keys = [row.key for row in contenders(finished()) if row.is_peer]
    assert len(keys) == len({plot.colour_and_mark(key) for key in keys}) == 2


def test_confusions_and_reliability_are_those_of_the_delivered_model() -> None:
    run = averaged()
    assert run.choice is not None
    found = {figure.key: figure for figure in figures(run)["mistakes"]}
    assert set(found) == {"confusion", "reliability", "reliability-people"}
    table = found["confusion"].rows
    whole = np.sum([np.array(counts) for counts in run.choice.confusions.values()], 0)
    assert [row[3] for row in table[: whole.size]] == whole.ravel().tolist()
    assert {row[0] for row in table} == {"everybody", *run.choice.confusions}
    worst = max(run.choice.reliability.items(), key=lambda item: item[1].confidence - item[1].accuracy)[0]
    assert f"subject {worst}" in found["reliability-people"].caption
    page = light(run)
    assert page.index("Mistakes of every person") < page.index("Counts of ")
    assert "Recall and precision of each class" in page
    lacking = replace(run, choice=replace(run.choice, confusions={}, reliability={}))
    assert [figure.key for figure in figures(lacking)["mistakes"]] == ["reliability"], "an earlier version's run"
