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
    lines, best = result_lines(choice, "my-run"), choice.best_baseline
    pair = compare_paired(choice.replay.calibrated["5"], choice.replay.before_calibration["5"])
    assert len(lines) == 7
    for line, facts in {
        lines[0]: (score(np.mean(list(choice.estimate.values()))), "12", ".250"),
        lines[1]: (best.name, signed(best.difference)),
        lines[4]: (score(pair.second.mean), score(pair.first.mean), signed(pair.mean), range_words(pair.interval)),
    }.items():
        assert all(fact in line for fact in facts), line
    assert len(result_lines(of(finished()))) <= 7


def test_an_unfinished_run_claims_nothing() -> None:
    text = example("unfinished")
    assert Outline(text).title.startswith("INCOMPLETE")
    for claim in ("Next subject", "delivered model", "chosen</b>"):
        assert claim not in text
    assert "INCOMPLETE" not in example("gain")
    nothing = light(empty())
    assert figure_data(nothing) == []
    assert Outline(nothing).title.startswith("INCOMPLETE")


# ---- sentences -------------------------------------------------------------------------------------------------------


def test_gains_by_adaptation_and_labels_are_means_over_subjects() -> None:
    choice = of(averaged())
    played = choice.replay
    labels = describe_labels(choice)
    assert signed(played.gain) in describe_unlabeled(choice)
    for n, scores in played.calibrated.items():
        gain = np.mean([value - played.before_calibration[n][who] for who, value in scores.items()])
        assert signed(float(gain)) in labels
    assert describe_unlabeled(replace(choice, replay=None, adaptation="transductive")) is None


def test_the_part_of_censoring_is_the_difference_to_uncensored_candidates() -> None:
    run = finished()
    nested = of(run).nested_test_scores
    plain = {subject: value - 0.01 * (1 + n % 3) for n, (subject, value) in enumerate(nested.items())}
    part = compare_paired(nested, plain)
    (line,) = describe_censoring(of(run, alternatives={"uncensored": plain}))
    assert score(part.second.mean) in line
    assert signed(part.mean) in line
    assert describe_censoring(of(run, alternatives={"uncensored": nested})) == []


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
