"""The report: what it says, what it must never say, and that nothing a user names can act in it."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs

from autotransfer.report import page
from autotransfer.report.comparison import best_settings, contenders, validation_table
from autotransfer.report.escaping import Html, plain, plot_text, short, tag
from autotransfer.report.figures import figures
from autotransfer.report.outcomes import COLUMNS, scores_on_test, scores_on_validation, settled
from autotransfer.report.page import document, plotly_library, render, write
from autotransfer.report.statistics import paired
from autotransfer.report.summary import Summary
from autotransfer.report.wording import duration, moment, setting_words, signed, verdict
from autotransfer.search import stages
from report_example import EXAMPLES, HOSTILE, baseline_won, empty, finished, hostile, nested_full, unfinished


class Outline(HTMLParser):
    """Tags, ids, attributes and visible text, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.title = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(name)
        self.attributes += [(name, key, value) for key, value in attrs]
        if name != "meta":
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "title":
            self.title += data
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        return [value or "" for _, key, value in self.attributes if key == attribute]


def light(summary: Summary) -> str:
    """The page without plotly: the same text and figures, quick to make and to read."""
    return document(summary, plotly=Html(""))


@lru_cache
def example(name: str) -> str:
    return light(EXAMPLES[name]())


def figure_data(text: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="figure-data">(.*?)</script>', text, re.S)
    assert found is not None
    data: list[dict[str, Any]] = json.loads(found[1])
    return data


def labels(value: Any, key: str = "") -> list[str]:
    """Every text that plotly would draw."""
    if isinstance(value, dict):
        return [label for k, v in value.items() if k != "table" for label in labels(v, k)]
    if isinstance(value, list):
        return [label for item in value for label in labels(item, key)]
    return (
        [value] if isinstance(value, str) and key in ("text", "ticktext", "name", "hovertext", "hovertemplate") else []
    )


# ---- structure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_structure(name: str) -> None:
    outline = Outline(example(name))
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert outline.tags.count("h1") == outline.tags.count("main") == outline.tags.count("title") == 1
    assert set(outline.values("aria-labelledby")) <= set(ids)
    assert {link[1:] for link in outline.values("href")} <= set(ids)
    assert len(outline.values("data-figure")) == len(figure_data(example(name)))


def test_nothing_is_loaded_from_anywhere() -> None:
    text = render(finished())
    outline = Outline(text)
    assert "src" not in [key for _, key, _ in outline.attributes]
    assert all(link.startswith("#") for link in outline.values("href"))
    assert not re.search(r"https?:|//cdn|@import|url\(", text)
    policy = next(value for _, key, value in outline.attributes if key == "content" and "default-src" in (value or ""))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy  # falls back to 'none'


def test_plotly_is_in_the_file_once_and_packed() -> None:
    text = render(finished())
    packed = re.findall(r'<script type="text/plain" id="plotly-packed">([A-Za-z0-9+/=]+)</script>', text)
    assert len(packed) == 1
    assert gzip.decompress(base64.b64decode(packed[0])).decode() == get_plotlyjs()
    assert len(text.encode()) < 0.45 * len(get_plotlyjs()) + 600_000


def test_equal_runs_give_equal_files() -> None:
    assert light(finished()) == example("gain")
    plotly_library.cache_clear()
    first = plotly_library()
    plotly_library.cache_clear()
    assert first == plotly_library()


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


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_the_answer_comes_first() -> None:
    run = finished()
    outline = Outline(light(run))
    assert run.choice is not None
    pair = paired(run.choice["nested_test_scores"], run.choice["test_scores"]["baseline"])
    assert pair is not None
    assert pair.interval is not None
    assert pair.interval[0] > 0
    text = outline.text
    assert "Censoring helped on unseen subjects" in text
    for said in (f"{pair.first.mean:.3f}", f"{pair.second.mean:.3f}", signed(pair.mean), f"{pair.wins} of {pair.n}"):
        assert text.index(said) < text.index("Test score of every fold")
    assert " ".join(setting_words(run.choice["chosen"]).split()) in text
    assert "nested: for each test subject the setting was chosen again" in text
    assert "As published in the paper" in text
    assert run.command in text
    for version in run.versions.values():
        assert version in text


def test_plain_words_when_the_baseline_won() -> None:
    text = Outline(light(baseline_won())).text
    assert "Censoring did not help on these recordings" in text
    assert "Censoring helped" not in text
    assert "same model" in text


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        ([0.7, 0.8, 0.75, 0.72, 0.81, 0.9], "gain"),
        ([0.3, 0.4, 0.35, 0.32, 0.41, 0.38], "loss"),
        ([0.7, 0.4, 0.62, 0.55, 0.61, 0.6], "unclear"),
        ([0.7, 0.8, 0.75], "unclear"),
        ([0.7], "unknown"),
    ],
)
def test_verdicts(first: list[float], kind: str) -> None:
    base = {str(i): 0.6 for i in range(6)}
    found = verdict({"chosen": {"method": "mmd"}}, paired({str(i): v for i, v in enumerate(first)}, base))
    assert found.kind == kind
    assert ("helped" in found.headline) == (kind == "gain")


def test_no_verdict_without_numbers() -> None:
    assert verdict(None, None).kind == "unknown"
    assert verdict({"chosen": {"method": "mmd"}}, None).kind == "unknown"


def test_full_nesting_takes_the_headline() -> None:
    run = nested_full()
    assert run.choice is not None
    text = Outline(light(run)).text
    mean = np.mean(list(run.choice["nested_full_test_scores"].values()))
    assert "fully nested" in text
    assert f"AutoTransfer scored {mean:.3f}" in text


def test_without_a_nested_estimate_the_page_says_so() -> None:
    run = finished()
    assert run.choice is not None
    choice = {k: v for k, v in run.choice.items() if not k.startswith("nested")}
    assert "The run recorded no nested estimate" in Outline(light(replace(run, choice=choice))).text


def test_standardising_by_subject_is_called_transductive() -> None:
    run = finished()
    assert run.choice is not None
    assert "Transductive" not in example("gain")
    chosen = {**run.choice["chosen"], "standardise": "subject"}
    assert "Transductive" in light(replace(run, choice={**run.choice, "chosen": chosen}))


def test_an_unfinished_run_claims_nothing() -> None:
    text = example("unfinished")
    outline = Outline(text)
    assert outline.title.startswith("INCOMPLETE")
    assert "38 of the 132 jobs" in outline.text
    for claim in ("helped", "did not help", "No clear gain", "chosen</b>", "Nothing has been chosen", "p: Wilcoxon"):
        assert claim not in text
    assert "2 jobs failed" in outline.text
    assert "out of memory" in outline.text
    early = replace(finished(), complete=False)  # a choice that is there too early is not shown either
    assert "AutoTransfer, nested" not in light(early)
    assert "helped" not in light(early)


def test_a_finished_run_is_not_called_incomplete() -> None:
    assert "INCOMPLETE" not in example("gain")


def test_nothing_measured_yet() -> None:
    text = light(empty())
    assert figure_data(text) == []
    assert "0 of the 12 jobs" in Outline(text).text


def small() -> Summary:
    """Every part is there, but little of it."""
    run = finished(3)
    return replace(run, latent={side: frame.head(12) for side, frame in run.latent.items()})


def _without(summary: Summary, field: str) -> Summary:
    blank: dict[str, Any] = {"results": pd.DataFrame(), "choice": None, "data": {}, "splits": [], "options": {}}
    return replace(summary, **{field: blank.get(field, {})})


OPTIONAL = ["versions", "options", "data", "splits", "results", "choice", "histories", "confusion", "leakage", "latent"]


@pytest.mark.parametrize("field", OPTIONAL)
def test_any_part_may_be_missing(field: str) -> None:
    for make in (small, unfinished):
        Outline(light(_without(make(), field)))


@pytest.mark.parametrize("key", list(small().choice or {}))
def test_any_part_of_the_choice_may_be_missing(key: str) -> None:
    run = small()
    assert run.choice is not None
    Outline(light(replace(run, choice={k: v for k, v in run.choice.items() if k != key})))
    Outline(light(replace(run, choice={**run.choice, key: None})))


@pytest.mark.parametrize("column", COLUMNS)
def test_any_column_may_be_missing(column: str) -> None:
    run = small()
    Outline(light(replace(run, results=run.results.drop(columns=column))))


def test_numbers_that_are_not_finite_are_left_out() -> None:
    run = finished(6)
    results = run.results.copy()
    results.loc[results.index[::3], ["validation_score", "test_score"]] = math.nan
    history = {"fold": 0, "train_loss": [1.0, math.inf, None], "validation_score": [], "penalty": [math.nan]}
    leak = {"chosen": [{"accuracy": math.nan, "chance": 0.2}], "baseline": [{"accuracy": 0.5}]}
    odd = {"chosen": pd.DataFrame({"x": [1.0, math.nan], "y": [math.inf, 1.0], "subject": [1, 2], "class": [0, 1]})}
    text = light(replace(run, results=results, histories={"baseline": [history]}, leakage=leak, latent=odd))
    assert not re.search(r"\bNaN\b|Infinity", text)
    figure_data(text)


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


def test_failed_jobs_are_listed_but_not_all() -> None:
    run = finished(6)
    results = run.results.assign(failure="the loss is not finite")
    text = Outline(light(replace(run, results=results))).text
    assert f"{len(results)} jobs failed" in text
    assert "more are in results.csv" in text


# ---- what users name -------------------------------------------------------------------------------------------------


@lru_cache
def tame_tags() -> list[str]:
    return Outline(light(hostile("tame", names=("tame",)))).tags


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    text = light(hostile(name, names=(name,)))
    assert Outline(text).tags == tame_tags()
    assert " ".join(plain(name).split()) in Outline(text).text
    assert "<script>alert" not in text
    _no_markup_in_plots(text)


def _no_markup_in_plots(text: str) -> None:
    for label in labels(figure_data(text)):
        rest = re.sub(r"</?b>|<br>|<extra></extra>", "", label)
        assert "<" not in rest, label


names = st.text(st.characters(), min_size=1, max_size=30) | st.sampled_from(HOSTILE)


@given(names, st.lists(names, min_size=1, max_size=3, unique=True))
@settings(max_examples=12, deadline=None)
def test_no_name_changes_the_page(name: str, others: list[str]) -> None:
    text = light(hostile(name, names=tuple(others)))
    text.encode()  # no lone surrogate is left
    assert Outline(text).tags.count("script") == 3
    assert text.count("<script") == text.count("</script>") == 3
    _no_markup_in_plots(text)


@given(st.text(max_size=60), st.integers(5, 30))
@settings(max_examples=60, deadline=None)
def test_short_is_short_and_keeps_the_ends(text: str, length: int) -> None:
    cut = short(text, length)
    assert len(cut) <= length
    clean = " ".join(plain(text).split())
    assert cut == clean or (clean.startswith(cut.split("…")[0]) and "…" in cut)


def test_subjects_are_one_whatever_table_they_went_through() -> None:
    assert plain(3) == plain(3.0) == plain(np.int64(3)) == plain("3") == plain(np.float64(3)) == "3"
    assert plain(3.5) == "3.5"
    assert plain(None) == "None"


def test_markup_is_escaped_unless_it_is_ours() -> None:
    assert tag("p", "<b>", tag("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert tag("details", open=True, hidden=False) == "<details open></details>"
    assert plot_text("<b>&lt;") == "&lt;b>&amp;lt;"


def test_words() -> None:
    assert setting_words({"method": "none"}) == setting_words({}) == "Uncensored baseline"
    full = {"method": "mige", "mode": "marginal", "strength": 0.1, "estimator": "nu_method", "regularization": 0.001}
    assert setting_words(full | {"length_scale": "perplexity"}).replace("\xa0", " ") == (
        "MIGE, marginal, λ = 0.1, ν-method, γ = 0.001, perplexity scale"
    )
    assert (duration(12.3), duration(600), duration(7300)) == ("12 s", "10 min", "2 h 2 min")
    assert moment("2026-03-02T10:15:00+00:00") == "2 March 2026, 10:15 UTC"
    assert moment("yesterday") == "yesterday"
    assert (signed(0.0421), signed(-0.0421), signed(0.0001)) == ("+0.042", "−0.042", "0.000")


# ---- the file --------------------------------------------------------------------------------------------------------


def test_write_replaces_the_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    assert write(empty(), target) == target
    before = target.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]

    def fail(summary: Summary) -> str:
        raise RuntimeError("no room")

    monkeypatch.setattr(page, "render", fail)
    with pytest.raises(RuntimeError, match="no room"):
        write(finished(), target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
