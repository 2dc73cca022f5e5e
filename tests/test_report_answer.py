"""What the report says, and what it must not say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotransfer import Setting
from autotransfer.report.statistics import paired
from autotransfer.report.wording import duration, moment, setting_words, signed, verdict
from report_example import baseline_won, empty, finished, nested_full
from report_outline import Outline, example, figure_data, light


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


@pytest.mark.parametrize(
    ("change", "label"),
    [({"align": "subject"}, "Transductive"), ({"align": "running"}, "Adapts to each new person"),
     ({"standardise": "running"}, "Adapts to each new person")],
)  # fmt: skip
def test_scores_of_adapted_models_are_labelled(change: dict[str, str], label: str) -> None:
    run = finished()
    assert run.choice is not None
    assert label not in example("gain")
    chosen = {**run.choice["chosen"], **change}
    text = Outline(light(replace(run, choice={**run.choice, "chosen": chosen}))).text
    assert f"{label}: this is true of AutoTransfer's choice, while the baseline is zero-shot" in text
    both = {**run.choice, "chosen": chosen, "baseline": {**run.choice["baseline"], **change}}
    text = Outline(light(replace(run, choice=both))).text
    assert label in text
    assert "the baseline is zero-shot" not in text
    some = {**run.choice, "nested_adaptations": {"S1": "running", "S2": "none"}}
    text = Outline(light(replace(run, choice=some))).text
    assert "Adapts to each new person: this is true of the nested choices of 1 subject" in text


def test_a_gain_with_several_causes_is_not_called_censorings() -> None:
    run = finished()
    assert run.choice is not None
    name = run.choice["chosen"]["name"]
    assert "Censoring helped" in Outline(light(run)).text
    chosen = {**run.choice["chosen"], "name": f"{name} with align running", "align": "running"}
    best = {**run.choice["baseline"], "name": "baseline with align running", "align": "running"}
    tests = {**run.choice["test_scores"], "best_uncensored": run.choice["test_scores"]["baseline"]}
    choice = {**run.choice, "chosen": chosen, "best_uncensored": best, "test_scores": tests}
    text = Outline(light(replace(run, choice=choice))).text
    assert "Censoring helped" not in text
    assert "The chosen setting helped on unseen subjects" in text
    assert "Best uncensored" in text
    assert "“Uncensored, align running” first among the uncensored settings" in text


def test_a_preparation_that_only_nested_choices_have_is_a_cause_too() -> None:
    run = finished()
    assert run.choice is not None
    picks = dict.fromkeys(run.choice["nested_choices"], "baseline with standardise channel")
    text = Outline(light(replace(run, choice={**run.choice, "nested_choices": picks}))).text
    assert "Censoring helped" not in text
    assert "The chosen setting helped on unseen subjects" in text


def test_censorings_own_part_is_what_the_same_choice_lacks_without_it() -> None:
    run = finished()
    assert run.choice is not None
    nested = run.choice["nested_test_scores"]
    plain = {subject: value - 0.01 * (1 + place % 3) for place, (subject, value) in enumerate(nested.items())}
    text = Outline(light(replace(run, choice={**run.choice, "nested_uncensored_test_scores": plain}))).text
    part = paired(nested, plain)
    assert part is not None
    assert f"censoring's own part of the difference is {signed(part.mean)}" in text
    same = {**run.choice, "nested_uncensored_test_scores": nested}
    assert "censoring's own part" not in Outline(light(replace(run, choice=same))).text


def test_where_validation_shows_no_need_of_a_censor_the_page_says_so() -> None:
    run = finished()
    assert run.choice is not None
    baseline = {**run.choice, "careful": run.choice["baseline"]}
    assert (
        "clearly ahead of it, “Uncensored baseline” has the highest lower quartile"
        in Outline(light(replace(run, choice=baseline))).text
    )
    itself = {**run.choice, "careful": run.choice["chosen"]}
    assert "Validation does not show" not in Outline(light(replace(run, choice=itself))).text
    other = {**run.choice, "chosen": run.choice["baseline"], "careful": run.choice["chosen"]}
    assert "Validation does not show" not in Outline(light(replace(run, choice=other))).text, "no censor is simpler"


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


def test_failed_jobs_are_listed_but_not_all() -> None:
    run = finished(6)
    results = run.results.assign(failure="the loss is not finite")
    text = Outline(light(replace(run, results=results))).text
    assert f"{len(results)} jobs failed" in text
    assert "more are in results.csv" in text


def test_words() -> None:
    assert setting_words({"method": "none"}) == setting_words({}) == "Uncensored baseline"
    steady = Setting(power=True, schedule="constant", keep="last")
    assert setting_words({"name": steady.name_beside(Setting())}) == "Uncensored, power, steady training"
    full = {"method": "mige", "mode": "marginal", "strength": 0.1, "estimator": "nu_method", "regularization": 0.001}
    assert setting_words(full | {"length_scale": "perplexity"}).replace("\xa0", " ") == (
        "MIGE, marginal, λ = 0.1, ν-method, γ = 0.001, perplexity scale"
    )
    assert (duration(12.3), duration(600), duration(7300)) == ("12 s", "10 min", "2 h 2 min")
    assert moment("2026-03-02T10:15:00+00:00") == "2 March 2026, 10:15 UTC"
    assert moment("yesterday") == "yesterday"
    assert (signed(0.0421), signed(-0.0421), signed(0.0001)) == ("+0.042", "−0.042", "0.000")


def test_methods_are_judged_in_words_after_correction() -> None:
    assert "No method differs significantly from the baseline" in light(finished(gain=0.0))
    assert "Significantly different from the baseline, corrected for" in light(finished(gain=0.2))
    assert "No method could be tested against the baseline" in light(finished(4))
