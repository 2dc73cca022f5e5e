"""Terminal, page and methods paragraph state the numbers of a choice and claim no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotransfer.model.encoders import ENCODERS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.report.comparison import list_models
from autotransfer.report.findings import describe_censoring, describe_labels, describe_unlabeled, notes, write_summary
from autotransfer.report.methods import methods_paragraph
from autotransfer.report.statistics import compare_paired
from autotransfer.report.summary import Summary
from autotransfer.report.terminal import result_lines
from autotransfer.report.wording import family_words
from autotransfer.runs.choice import Choice, NamedSetting
from autotransfer.settings import Setting
from autotransfer.words import range_words, score, signed
from report_example import averaged, empty, finished, paper_network_chosen
from report_outline import Outline, example, figure_data, light, place


def of(run: Summary, **changes: Any) -> Choice:
    """The run's choice, changed."""
    return replace(run.choice, **changes)


def page(run: Summary, **changes: Any) -> str:
    """The text of the run's page once its choice has been changed."""
    return Outline(light(replace(run, choice=of(run, **changes)))).text


# ---- page and terminal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [finished, averaged, paper_network_chosen])
def test_page_and_methods_have_the_headline_first(make: Any) -> None:
    run = make().require(0.6)
    lines, text = write_summary(of(run)), page(run)
    places = [place(line, text) for line in lines]
    assert places == sorted(places)
    assert places[-1] < text.index("Score of every held-out subject")
    assert " ".join(lines) in methods_paragraph(run)
    assert run.command in text
    assert all(place(note, text) > places[-1] for note in notes(of(run)))


@pytest.mark.parametrize("make", [finished, averaged, paper_network_chosen])
def test_a_result_near_chance_is_stated_first(make: Any) -> None:
    run = make()
    near_chance = {s: 0.255 + 0.03 * (-1) ** n for n, s in enumerate(of(run).nested_test_scores)}
    guessing = of(run, nested_test_scores=near_chance)
    assert guessing.headline.startswith("Not clearly better than guessing")
    assert any(line.startswith("No better than guessing") for line in result_lines(guessing))
    assert 'class="result guessing"' in light(replace(run, choice=guessing))
    assert 'class="result guessing"' not in light(run)


def test_models_of_the_table_have_the_scores_of_the_choice() -> None:
    for run in (finished(), averaged()):
        choice = of(run)
        rows = list_models(choice)
        assert rows[0].scores == choice.estimate
        assert {row.label: row.scores for row in rows if row.is_baseline} == choice.baselines
        assert rows[-1].scores == choice.test_scores["paper_network"]
    scores = {row.key: row.scores for row in rows}
    assert scores["choosing"] == choice.alternatives["best_single"]
    assert scores["equal"] == choice.alternatives["equal_weights"]


def test_the_terminal_prints_at_most_seven_lines_and_the_report() -> None:
    choice = of(averaged())
    lines = result_lines(choice, "my-run")
    starts = ("Score: ", "Best baseline so far: ", "Next ", "Unlabeled windows: ", "Five labels per class: ")
    assert len(lines) == 7
    for line, start in zip(lines, starts, strict=False):
        assert line.startswith(start)
    best, replayed = choice.best_baseline, choice.replay
    assert f"{score(np.mean(list(choice.estimate.values())))} balanced accuracy on 12 held-out subjects" in lines[0]
    assert "chance .250" in lines[0]
    assert best.name in lines[1]
    assert signed(best.difference) in lines[1]
    pair = compare_paired(replayed.calibrated["5"], replayed.before_calibration["5"])
    assert f"from {score(pair.second.mean)} to {score(pair.first.mean)} on the remaining windows" in lines[4]
    assert f"{signed(pair.mean)} (95 % interval {range_words(pair.interval)})" in lines[4]
    assert len(result_lines(of(finished()))) <= 7


def test_an_unfinished_run_claims_nothing() -> None:
    text = example("unfinished")
    outline = Outline(text)
    assert outline.title.startswith("INCOMPLETE")
    assert "38 of the 132 fits" in outline.text
    assert "2 fits failed" in outline.text
    for claim in ("Next subject", "delivered model", "chosen</b>"):
        assert claim not in text
    assert "INCOMPLETE" not in example("gain")
    nothing = light(empty())
    assert figure_data(nothing) == []
    assert "0 of the 12 fits" in Outline(nothing).text


# ---- sentences -------------------------------------------------------------------------------------------------------


def test_gains_by_adaptation_and_labels_are_means_over_subjects() -> None:
    choice = of(averaged())
    played = choice.replay
    unlabeled, labels = describe_unlabeled(choice), describe_labels(choice)
    assert signed(played.gain) in unlabeled
    assert "12 held-out subjects" in unlabeled
    for n, scores in played.calibrated.items():
        gain = np.mean([value - played.before_calibration[n][who] for who, value in scores.items()])
        assert f"with {n} {signed(float(gain))}" in labels.replace(" labeled window per class", "")
    nobody = replace(choice, replay=None)
    assert "tested neither" in describe_unlabeled(nobody)
    assert describe_unlabeled(replace(nobody, adaptation="transductive")) is None


def test_the_part_of_censoring_is_the_difference_to_uncensored_candidates() -> None:
    run = finished()
    nested = of(run).nested_test_scores
    plain = {subject: value - 0.01 * (1 + n % 3) for n, (subject, value) in enumerate(nested.items())}
    part = compare_paired(nested, plain)
    (line,) = describe_censoring(of(run, alternatives={"uncensored": plain}))
    assert f"scores {score(part.second.mean)}" in line
    assert signed(part.mean) in line
    assert describe_censoring(of(run, alternatives={"uncensored": nested})) == []
    assert "censoring did not help" in page(paper_network_chosen())
    assert "no penalty was tried" in page(paper_network_chosen(), shortlist=[of(paper_network_chosen()).paper_network])


@pytest.mark.parametrize("adaptation", ["online", "transductive"])
def test_scores_of_adapted_models_are_not_called_zero_shot(adaptation: str) -> None:
    run = averaged()
    adapted = replace(run, choice=of(run, adaptation=adaptation))
    for tell in (page, methods_paragraph):
        assert f"({adaptation}), so these are not zero-shot scores" in tell(adapted)
        assert "not zero-shot" not in tell(run)


def test_every_model_family_has_a_name() -> None:
    registered = {name: one.display_name for name, one in (ENCODERS | REPRESENTATIONS).items() if name != "linear"}
    assert {name: family_words(name) for name in registered} == registered
    assert len({*registered.values()} - {None}) == len(registered)


def test_a_users_encoder_has_its_own_name_in_tables_and_not_the_papers() -> None:
    network = NamedSetting("paper_network", Setting(encoder="module:Small"))
    run = finished()
    labels = [row.label for row in list_models(of(run, paper_network=network))]
    assert "module:Small as given" in labels
    assert not any("EEGNet" in label for label in labels)
    assert "EEGNet (paper)" in [row.label for row in list_models(of(run))]
    assert "module:Small as given" in page(run, paper_network=network)
