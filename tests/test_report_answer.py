"""What the report says, and what it must not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotransfer import Setting, grid
from autotransfer.report.statistics import paired
from autotransfer.report.summary import Summary
from autotransfer.report.terminal import answer
from autotransfer.report.verdict import verdict
from autotransfer.report.wording import duration, moment, setting_words, signed
from autotransfer.runs.choice import Choice, Compared, Named
from report_example import baseline_won, empty, failing, finished, nested_full
from report_outline import Outline, example, figure_data, light


def of(run: Summary, **changes: Any) -> Choice:
    """The run's choice, changed."""
    assert run.choice is not None
    return replace(run.choice, **changes)


def said(run: Summary, **changes: Any) -> str:
    """The text of the run's page once its choice has been changed."""
    return Outline(light(replace(run, choice=of(run, **changes)))).text


def like(one: Named, **fields: Any) -> Named:
    """Another setting, named anew."""
    setting = replace(one.setting, **fields)
    return Named(setting.name_beside(Setting(max_epochs=60)), setting)


def test_the_answer_comes_first() -> None:
    run = finished()
    choice = of(run)
    pair = paired(choice.nested_test_scores, choice.test_scores["baseline"])
    assert pair is not None
    assert pair.interval is not None
    assert pair.interval[0] > 0
    text = said(run)
    assert "Censoring helped on unseen subjects" in text
    for number in (f"{pair.first.mean:.3f}", f"{pair.second.mean:.3f}", signed(pair.mean), f"{pair.wins} of {pair.n}"):
        assert text.index(number) < text.index("Test score of every fold")
    assert " ".join(setting_words(choice.chosen.setting, run.plain).split()) in text
    assert "reselected without the person" in text
    assert "As published in the paper" in text
    assert run.command in text
    for version in run.versions.values():
        assert version in text


def test_plain_words_when_the_baseline_won() -> None:
    run = baseline_won()
    text = said(run)
    assert "Censoring did not help on these recordings" in text
    assert "Censoring helped" not in text
    assert "same model" in text
    for changes in ({"lead": 2.0}, {"shortlist": [of(run).baseline]}):
        assert "No setting is clearly better than the plain network" in said(run, **changes)
        assert any("No setting is clearly better" in line for line in answer(of(run, **changes)))
    assert "No censor was tried" in said(run, shortlist=[of(run).baseline])


def test_the_terminal_names_setting_metric_and_chance() -> None:
    choice = of(finished())
    lines = answer(choice, 4)
    assert lines[0] == f"chosen: {choice.chosen.name}"
    assert "balanced accuracy on 12 test subjects (chance 0.250):" in lines
    assert "balanced accuracy on 12 test subjects:" in answer(choice)
    nested = np.mean(list(choice.nested_test_scores.values()))
    assert any("nested choice" in line and f"mean {nested:.3f}" in line for line in lines)
    assert "not zero-shot" in answer(replace(choice, adaptation="online"))[1]
    more = {"nested": choice.nested_test_scores, "baseline": choice.test_scores["baseline"]}
    full = replace(choice, delivered_test_scores=more, nested_full_test_scores=choice.nested_test_scores)
    assert len(answer(full)) == len(answer(choice)) + 3


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
    found = verdict(finished(6), paired({str(i): v for i, v in enumerate(first)}, base))
    assert found.kind == kind
    assert ("helped" in found.headline) == (kind == "gain")


def test_full_nesting_takes_the_headline() -> None:
    run = nested_full()
    mean = np.mean(list(of(run).nested_full_test_scores.values()))
    assert "fully nested" in said(run)
    assert f"AutoTransfer scored {mean:.3f}" in said(run)


@pytest.mark.parametrize(
    ("change", "label"),
    [({"align": "transductive"}, "Transductive"), ({"standardise": "transductive"}, "Transductive"),
     ({"align": "online"}, "Adapts to each new person"), ({"standardise": "online"}, "Adapts to each new person")],
)  # fmt: skip
def test_scores_of_adapted_models_are_labelled(change: dict[str, str], label: str) -> None:
    run = finished()
    assert label not in example("gain")
    chosen, baseline = like(of(run).chosen, **change), like(of(run).baseline, **change)
    assert f"{label}: this is true of AutoTransfer's choice, while the baseline is" in said(run, chosen=chosen)
    both = said(run, chosen=chosen, baseline=baseline)
    assert label in both
    assert "the baseline is zero-shot" not in both
    kind = chosen.setting.adaptation
    some = said(run, nested_adaptations={"S1": kind, "S2": "none"})
    assert f"{label}: this is true of the nested choices of 1 subject" in some


def test_a_gain_with_several_causes_is_not_called_censorings() -> None:
    run = finished()
    assert "Censoring helped" in said(run)
    chosen, best = like(of(run).chosen, align="online"), like(of(run).baseline, align="online")
    text = said(run, chosen=chosen, best_uncensored=best)
    assert "Censoring helped" not in text
    assert "The chosen setting helped on unseen subjects" in text
    assert "Best uncensored" in text
    assert "“Uncensored, align online” first among the uncensored settings" in text


def test_a_preprocessing_that_only_nested_choices_have_is_a_cause_too() -> None:
    run = finished()
    other = like(of(run).baseline, standardise="train")
    picks = dict.fromkeys(of(run).nested_choices, other.name)
    compared = [Compared(other, 0.5, 0.6, kept=True), Compared(of(run).baseline, 0.4, 0.5, kept=False)]
    text = said(run, nested_choices=picks, preprocessings=compared)
    assert "The chosen setting helped on unseen subjects" in text
    assert "Uncensored, standardise train yes 0.500 0.600 Uncensored baseline 0.400 0.500" in text


def test_censorings_own_part_is_what_the_same_choice_lacks_without_it() -> None:
    run = finished()
    nested = of(run).nested_test_scores
    plain = {subject: value - 0.01 * (1 + place % 3) for place, (subject, value) in enumerate(nested.items())}
    part = paired(nested, plain)
    assert part is not None
    assert f"own part of the difference is {signed(part.mean)}" in said(run, nested_uncensored_test_scores=plain)
    assert "own part" not in said(run, nested_uncensored_test_scores=nested)


def test_where_validation_shows_no_need_of_a_censor_the_page_says_so() -> None:
    run = finished()
    chosen, baseline = of(run).chosen, of(run).baseline
    assert "does not show that censoring is needed" in said(run, two_se=baseline)
    assert "does not show" not in said(run, two_se=chosen)
    assert "does not show" not in said(run, chosen=baseline, two_se=chosen), "no censor is simpler"


def test_an_unfinished_run_claims_nothing() -> None:
    text = example("unfinished")
    outline = Outline(text)
    assert outline.title.startswith("INCOMPLETE")
    assert "38 of the 132 jobs" in outline.text
    for claim in ("helped", "did not help", "No clear gain", "chosen</b>", "p: Wilcoxon"):
        assert claim not in text
    assert "2 jobs failed" in outline.text
    assert "out of memory" in outline.text
    assert "AutoTransfer, nested" not in text


def test_a_finished_run_is_not_called_incomplete() -> None:
    assert "INCOMPLETE" not in example("gain")


def test_nothing_measured_yet() -> None:
    text = light(empty())
    assert figure_data(text) == []
    assert "0 of the 12 jobs" in Outline(text).text


def test_failed_jobs_are_listed_but_not_all() -> None:
    run = finished(6)
    text = Outline(light(failing(run, dict.fromkeys(range(60), "the loss is not finite")))).text
    assert "60 jobs failed" in text
    assert "10 more are in results.csv" in text


def test_words() -> None:
    def words(**fields: Any) -> str:
        return setting_words(Setting(**fields), Setting()).replace("\xa0", " ")

    assert words() == "Uncensored baseline"
    assert words(log_power=True, schedule="constant", checkpoint="last") == (
        "Uncensored, log_power, constant rate, last epoch"
    )
    mige = {"method": "mige", "strength": 0.1, "estimator": "nu_method"}
    assert words(**mige, length_scale=2.0) == "MIGE, marginal, λ = 0.1, ν-method, σ = 2.0"
    assert words(**mige, regularization=0.5) == "MIGE, marginal, λ = 0.1, ν-method, γ = 0.5"
    assert words(method="mmd", mode="conditional", strength=0.3) == "MMD, conditional, λ = 0.3"
    for name in ("quick", "paper", "extended"):
        assert len({setting_words(one, Setting()) for one in grid(name)}) == len(grid(name))
    assert (duration(12.3), duration(600), duration(7300)) == ("12 s", "10 min", "2 h 2 min")
    assert moment("2026-03-02T10:15:00+00:00") == "2 March 2026, 10:15 UTC"
    assert moment("yesterday") == "yesterday"
    assert (signed(0.0421), signed(-0.0421), signed(0.0001)) == ("+0.042", "−0.042", "0.000")


def test_methods_are_judged_in_words_after_correction() -> None:
    assert "No method differs significantly from the baseline" in light(finished(gain=0.0))
    assert "Significantly different from the baseline, corrected for" in light(finished(gain=0.2))
    assert "No method could be tested against the baseline" in light(finished(4))
