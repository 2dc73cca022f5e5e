"""What terminal, page and methods paragraph say of a choice: its numbers, and what they must not claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotransfer.model.encoders import ENCODERS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.report.comparison import list_models
from autotransfer.report.findings import describe_censoring, describe_replay, headline, notes
from autotransfer.report.methods import methods_paragraph
from autotransfer.report.statistics import paired
from autotransfer.report.summary import Summary
from autotransfer.report.terminal import result_lines
from autotransfer.report.wording import family_label, family_words, signed
from autotransfer.runs.choice import Choice, Ensemble, NamedSetting
from autotransfer.settings import Setting
from report_example import averaged, empty, finished, paper_network_won
from report_outline import Outline, example, figure_data, light, place


def of(run: Summary, **changes: Any) -> Choice:
    """The run's choice, changed."""
    assert run.choice is not None
    return replace(run.choice, **changes)


def page(run: Summary, **changes: Any) -> str:
    """The text of the run's page once its choice has been changed."""
    return Outline(light(replace(run, choice=of(run, **changes)))).text


def ensemble_of(run: Summary) -> Ensemble:
    assert run.choice.ensemble is not None
    return run.choice.ensemble


# ---- page and terminal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [finished, averaged, paper_network_won])
def test_page_terminal_and_methods_have_the_headline_first(make: Any) -> None:
    run = make().require(0.6)
    lines, text = headline(of(run)), page(run)
    assert result_lines(of(run))[: len(lines)] == lines
    places = [place(line, text) for line in lines]
    assert places == sorted(places)
    assert places[-1] < text.index("Every person it has not seen")
    assert " ".join(lines) in methods_paragraph(run)
    assert run.command in text
    assert all(place(note, text) > places[-1] for note in notes(of(run)))


@pytest.mark.parametrize("make", [finished, averaged, paper_network_won])
def test_what_is_not_better_than_guessing_is_called_that_first(make: Any) -> None:
    run = make()
    near_chance = {s: 0.255 + 0.03 * (-1) ** n for n, s in enumerate(of(run).nested_test_scores)}
    guessing = of(run, nested_test_scores=near_chance)
    assert guessing.headline.startswith("Not clearly better than guessing")
    assert result_lines(guessing)[0] == guessing.headline
    assert 'class="answer guessing"' in light(replace(run, choice=guessing))
    assert 'class="answer guessing"' not in light(run)


def test_rows_of_the_terminal_are_scores_of_the_choice() -> None:
    for run in (finished(), averaged()):
        choice = of(run)
        rows, lines = list_models(choice), result_lines(choice)
        assert rows[0].scores == choice.estimate
        assert {row.label: row.scores for row in rows if row.is_baseline} == choice.baselines
        assert rows[-1].scores == choice.test_scores["paper_network"]
        for row in rows:
            assert any(line.startswith(f"  {row.label} ") and f"mean {row.mean:.3f}" in line for line in lines)
        assert any("balanced accuracy on 12 test subjects (chance .25)" in line for line in lines)
    scores = {row.key: row.scores for row in rows}
    assert scores["choosing"] == choice.alternatives["best_single"]
    assert scores["equal"] == choice.alternatives["equal_weights"]
    assert any("0.021" in line and "0.083" in line for line in lines), "calibration errors"


def test_names_cannot_control_the_terminal() -> None:
    run = averaged()
    ensemble = ensemble_of(run)
    rude = replace(ensemble, candidates=[replace(ensemble.candidates[0], family="a\x1b[31m\nb")])
    assert all(line.isprintable() for line in result_lines(of(run, ensemble=rude)))
    assert all(line.isprintable() for line in headline(of(run, nested_test_scores={"a\x1b[31m\nb": 0.5})))


def test_an_unfinished_run_claims_nothing() -> None:
    text = example("unfinished")
    outline = Outline(text)
    assert outline.title.startswith("INCOMPLETE")
    assert "38 of the 132 jobs" in outline.text
    assert "2 jobs failed" in outline.text
    for claim in ("Next subject", "average, nested", "chosen</b>"):
        assert claim not in text
    assert "INCOMPLETE" not in example("gain")
    nothing = light(empty())
    assert figure_data(nothing) == []
    assert "0 of the 12 jobs" in Outline(nothing).text


# ---- sentences -------------------------------------------------------------------------------------------------------


def test_gains_without_labels_and_with_a_few_are_means_over_people() -> None:
    choice = of(averaged())
    played = choice.replay
    assert played is not None
    unlabeled, labels = describe_replay(choice)
    assert signed(played.gain) in unlabeled
    assert "12 held-out people" in unlabeled
    for n, scores in played.calibrated.items():
        gain = np.mean([value - played.before_calibration[n][who] for who, value in scores.items()])
        assert f"{signed(float(gain))} with {n}" in labels
    nobody = replace(choice, replay=None)
    assert "were tried" in describe_replay(nobody)[0]
    assert describe_replay(replace(nobody, adaptation="transductive")) == []


def test_the_network_of_the_paper_is_not_mentioned_before_it_was_trained() -> None:
    run = averaged()
    choice = of(run)
    without = [{k: v for k, v in t.items() if k != "paper_network"} for t in (choice.test_scores, choice.alternatives)]
    early = replace(run, choice=of(run, paper_network=None, test_scores=without[0], alternatives=without[1]))
    for tell in (lambda own: "\n".join(result_lines(of(own))), page, methods_paragraph):
        assert "(paper)" in tell(run)
        assert "(paper)" not in tell(early)
    assert "paper_network" not in early.networks


def test_the_part_of_censoring_is_the_difference_to_uncensored_candidates() -> None:
    run = finished()
    nested = of(run).nested_test_scores
    plain = {subject: value - 0.01 * (1 + n % 3) for n, (subject, value) in enumerate(nested.items())}
    part = paired(nested, plain)
    assert part is not None
    (line,) = describe_censoring(of(run, alternatives={"uncensored": plain}))
    assert f"{part.second.mean:.3f}" in line
    assert signed(part.mean) in line
    assert describe_censoring(of(run, alternatives={"uncensored": nested})) == []
    assert "censoring did not help" in page(paper_network_won())
    assert "no censor was tried" in page(paper_network_won(), shortlist=[of(paper_network_won()).paper_network])


@pytest.mark.parametrize("adaptation", ["online", "transductive"])
def test_scores_of_adapted_models_are_not_called_zero_shot(adaptation: str) -> None:
    run = averaged()
    adapted = replace(run, choice=of(run, adaptation=adaptation))
    for tell in (lambda own: "\n".join(result_lines(of(own))), page, methods_paragraph):
        assert f"({adaptation}), so these are not zero-shot scores" in tell(adapted)
        assert "not zero-shot" not in tell(run)


def test_missing_scores_of_an_average_leave_gaps_and_no_claims() -> None:
    run = averaged()
    gone = dict.fromkeys(of(run).nested_test_scores, float("nan"))
    changes = {"alternatives": {"best_single": {}, "equal_weights": gone}}
    text = page(run, **changes)
    assert "nan" not in text.lower().split()
    assert "equal weights" not in text
    assert all(line for line in result_lines(of(run, **changes)))


def test_every_kind_of_ours_has_a_name() -> None:
    kinds = {*ENCODERS, *REPRESENTATIONS} - {"linear"}
    assert sorted(kind for kind in kinds if family_label(kind) == kind) == []
    assert len({family_label(kind) for kind in kinds}) == len({family_words(kind) for kind in kinds}) == len(kinds)


def test_a_users_encoder_has_its_own_name_in_tables_and_not_the_papers() -> None:
    network = NamedSetting("paper_network", Setting(encoder="module:Small"))
    run = finished()
    labels = [row.label for row in list_models(of(run, paper_network=network))]
    assert "module:Small as given" in labels
    assert not any("EEGNet" in label for label in labels)
    assert "EEGNet (paper)" in [row.label for row in list_models(of(run))]
    assert "module:Small as given" in page(run, paper_network=network)
