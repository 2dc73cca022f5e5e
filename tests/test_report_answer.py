"""What the report says, and what it must not say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotransfer import Setting, grid
from autotransfer.model.encoders import ENCODERS
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.report.averaging import averaged_kinds, moved_weight, nested_shares
from autotransfer.report.comparison import contenders
from autotransfer.report.methods import methods_paragraph
from autotransfer.report.result_words import headline
from autotransfer.report.statistics import paired
from autotransfer.report.summary import Summary
from autotransfer.report.terminal import answer_lines
from autotransfer.report.wording import (
    date_and_time,
    duration,
    interval,
    kind_label,
    kind_words,
    setting_words,
    signed,
)
from autotransfer.runs.choice import Average, Choice, NamedSetting
from autotransfer.runs.ending import OVER
from report_example import KINDS, averaged, baseline_won, empty, failing, finished
from report_outline import Outline, example, figure_data, light, place


def of(run: Summary, **changes: Any) -> Choice:
    """The run's choice, changed."""
    assert run.choice is not None
    return replace(run.choice, **changes)


def said(run: Summary, **changes: Any) -> str:
    """The text of the run's page once its choice has been changed."""
    return Outline(light(replace(run, choice=of(run, **changes)))).text


def like(one: NamedSetting, **fields: Any) -> NamedSetting:
    """Another setting, named anew."""
    setting = replace(one.setting, **fields)
    return NamedSetting(setting.name_relative_to(Setting(max_epochs=60)), setting)


def test_the_answer_comes_first() -> None:
    run = finished()
    choice = of(run)
    pair = paired(choice.nested_test_scores, choice.test_scores["baseline"])
    assert pair is not None
    assert pair.interval is not None
    assert pair.interval[0] > 0
    text = said(run)
    assert place(choice.verdict, text) < place("Next person:", text) < place("Every person it has not seen", text)
    for number in (f"{pair.first.mean:.3f}", f"{pair.second.mean:.3f}", signed(pair.mean)):
        assert text.index(number) < text.index("Test score of every fold"), "the plain network is a line further down"
    assert " ".join(setting_words(choice.chosen.setting, run.plain).split()) in text
    assert "reselected without the person" in text
    assert "As published in the paper" in text
    assert run.command in text
    for version in run.versions.values():
        assert version in text


def test_the_terminal_says_whom_playback_is_of() -> None:
    found = of(averaged())
    text = "\n".join(answer_lines(found))
    assert "on the 12 people played back, without labels a session gains " in text
    assert "a session learns from unlabelled windows (by a shift that all classes share)" in text
    before, after = (np.mean(list(own["1"].values())) for own in (found.playback.before, found.playback.calibrated))
    assert f"with 1 label of each class {before:.3f} becomes {after:.3f} on the windows left; with 2, " in text
    text = "\n".join(answer_lines(replace(found, metric="f1_macro")))
    assert "on the 12 people played back, in balanced accuracy, without labels a session gains " in text


def test_the_terminal_says_where_nobody_was_played_back() -> None:
    played, line = of(averaged()), "neither adaptation nor labels were tried on held-out people"
    assert not any(line in words for words in answer_lines(played))
    choice = replace(played, playback=None)
    assert line in answer_lines(choice)
    assert f"{line}: the time was too short for that" in answer_lines(replace(choice, ended=OVER))
    assert not any(line in words for words in answer_lines(replace(choice, adaptation="transductive")))


def test_plain_words_when_the_baseline_won() -> None:
    run = baseline_won()
    text = said(run)
    assert "censoring did not help on these recordings" in text
    alone = {"shortlist": [of(run).baseline]}
    assert "No setting is clearly better than the plain network" in said(run, **alone)
    assert any("No setting is clearly better" in line for line in answer_lines(of(run, **alone)))
    assert "no censor was tried" in said(run, **alone)


def test_every_kind_of_ours_has_a_name() -> None:
    kinds = {*ENCODERS, *REPRESENTATIONS} - {"linear"}
    assert sorted(kind for kind in kinds if kind_label(kind) == kind) == []
    assert len({kind_label(kind) for kind in kinds}) == len({kind_words(kind) for kind in kinds}) == len(kinds)


def test_a_run_that_never_came_to_the_plain_network_speaks_of_none() -> None:
    """Its baseline is the first thing that was trained."""
    run = averaged()
    for tell in (lambda own: "\n".join(answer_lines(of(own))), said, methods_paragraph):
        assert "lain network" in tell(run)
        features = Setting(encoder="linear", standardise="none", represent="features")
        early = replace(run, choice=replace(of(run), baseline=NamedSetting("features", features)))
        assert "lain network" not in tell(early)
        assert early.plain == run.options.plain


def test_the_terminal_names_setting_metric_and_chance() -> None:
    choice = of(finished())
    lines = answer_lines(choice)
    assert lines[:4] == [*headline(choice), f"chosen: {choice.chosen.name}"]
    assert "balanced accuracy on 12 test subjects (chance .25):" in lines
    assert "balanced accuracy on 12 test subjects:" in answer_lines(replace(choice, chance=None))
    nested = np.mean(list(choice.nested_test_scores.values()))
    assert any("nested choice" in line and f"mean {nested:.3f}" in line for line in lines)
    assert "not zero-shot" in answer_lines(replace(choice, adaptation="online"))[4]
    more = {"nested": choice.nested_test_scores, "baseline": choice.test_scores["baseline"]}
    assert len(answer_lines(replace(choice, delivered_test_scores=more))) == len(answer_lines(choice)) + 2


def lowered(run: Summary, to: float) -> Summary:
    """The run with scores of what is delivered around `to`, so that some people lie above and some below."""
    nested = {s: to + 0.03 * (-1) ** n for n, s in enumerate(of(run).nested_test_scores)}
    return replace(run, choice=of(run, nested_test_scores=nested))


@pytest.mark.parametrize("make", [finished, averaged, baseline_won])
def test_what_is_not_better_than_guessing_is_called_that_first(make: Any) -> None:
    run = lowered(make(), 0.255)
    text = Outline(light(run)).text
    assert of(run).verdict.startswith("Not clearly better than guessing: ")
    assert place(of(run).verdict, text) < place("Next person:", text)
    assert answer_lines(of(run))[0] == of(run).verdict
    better = lowered(make(), 0.3)
    assert "Not clearly better than guessing" not in light(better)
    assert "Not clearly better than" not in answer_lines(of(better))[0]


def test_tables_name_metric_and_chance_and_other_metrics_by_subject() -> None:
    run = finished()
    for words in (
        "Balanced accuracy (chance .25) on the test subjects",
        "Balanced accuracy (chance .25) of every test subject",
        "Balanced accuracy (chance .25) of every setting on validation",
    ):
        assert words in said(run)
    assert "AUC" not in said(run)
    told = said(run, other_metrics={"roc_auc": {"1": 0.8765}, "cohen_kappa": {"1": -0.1234}})
    assert "AUC, Cohen's kappa: of the delivered model, nested" in told
    assert "0.876 −0.123" in told


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


def test_nothing_is_called_help_and_the_best_uncensored_setting_is_told() -> None:
    run = finished()
    assert "helped" not in said(run)
    chosen, best = like(of(run).chosen, align="online"), like(of(run).baseline, align="online")
    text = said(run, chosen=chosen, best_uncensored=best)
    assert "Best uncensored" in text
    assert "“Uncensored, align online” first among the uncensored settings" in text


def test_censorings_own_part_is_what_the_same_choice_lacks_without_it() -> None:
    run = finished()
    nested = of(run).nested_test_scores
    plain = {subject: value - 0.01 * (1 + place % 3) for place, (subject, value) in enumerate(nested.items())}
    part = paired(nested, plain)
    assert part is not None
    assert f"own part of the difference is {signed(part.mean)}" in said(run, nested_uncensored_test_scores=plain)
    assert "own part" not in said(run, nested_uncensored_test_scores=nested)


# ---- an average ------------------------------------------------------------------------------------------------------


def average_of(run: Summary) -> Average:
    assert run.average is not None
    return run.average


def test_the_answer_speaks_of_the_average() -> None:
    run = averaged()
    choice = of(run)
    pair = paired(choice.nested_test_scores, choice.test_scores["baseline"])
    assert pair is not None
    text = said(run)
    top = text[: text.index("Test score of every fold")]
    assert place(choice.verdict, top) > 0
    assert "Delivered: an average of 6 candidates of 5 kinds." in top, "templates have no weight"
    assert (
        f"A single plain network scores {pair.second.mean:.3f}; what is delivered minus it is {signed(pair.mean)}"
        in top
    )
    assert "Most weight, 45 %, lies on EEGNet" in top
    assert "reweighted without the person" in top
    for other in ("reselected", "As published"):
        assert other not in top
    assert "published" not in [row.key for row in contenders(run)]


def test_what_an_ensemble_or_uncensored_candidates_have_alone_is_said() -> None:
    run = averaged()
    choice = of(run)
    text = said(run)
    for words, other in (
        ("An ensemble of plain networks scores", choice.delivered_test_scores["baseline"]),
        ("Averaged over uncensored candidates alone, the score is", choice.nested_uncensored_test_scores),
    ):
        pair = paired(choice.nested_test_scores, other)
        assert pair is not None
        assert f"{words} {pair.second.mean:.3f}" in text
        assert signed(pair.mean) in text
    text = said(run, delivered_test_scores={}, nested_uncensored_test_scores={})
    assert "An ensemble of plain" not in text
    assert "uncensored candidates alone" not in text


def test_each_kind_has_its_share_and_what_it_adds() -> None:
    run = averaged()
    choice, average = of(run), average_of(run)
    text = said(run)
    for kind, own in average.kinds.items():
        pair = paired(choice.nested_test_scores, average.without_kind[kind])
        assert pair is not None
        row = f"{pair.second.mean:.3f} {signed(pair.mean)} {interval(pair)} {pair.wins} / {pair.ties} / {pair.losses}"
        assert row in text
        (line,) = [one for one in averaged_kinds(run) if one.kind == kind]
        assert f"{kind_label(kind)} {line.candidates} {line.members} {100 * own:.0f} %" in text
        low, high = min(found := [s.get(kind, 0) for s in nested_shares(average).values()]), max(found)
        assert line.between == (low, high)
        worse = pair.mean > 0
        assert (f"Without {kind_words(kind)} the average scores the same or better." in text) == (not worse)
    assert [one.kind for one in averaged_kinds(run) if one.idle] == ["templates"]
    assert sum(one.share for one in averaged_kinds(run)) == pytest.approx(1)
    for label, scores in (
        ("Choosing alone", average.choosing_test_scores),
        ("Equal weights", average.equal_test_scores),
    ):
        pair = paired(choice.nested_test_scores, scores)
        assert pair is not None
        numbers = f"{pair.second.mean:.3f} {pair.second.lower_quartile:.3f} {signed(pair.mean)} {interval(pair)}"
        assert f"{label} {numbers}" in text
    assert "balanced accuracy on 12 test subjects (chance .25)" in text


def test_no_section_on_kinds_without_an_average() -> None:
    for name in ("gain", "unfinished", "empty"):
        text = Outline(example(name)).text
        for words in ("What each kind contributes", "Choosing alone", "Equal weights", "temperature"):
            assert words not in text


def test_how_stable_the_weights_are() -> None:
    run = averaged()
    average = average_of(run)
    delivered = {one.name: one.share for one in average.weights}
    still = replace(average, nested_weights=dict.fromkeys(average.nested_weights, delivered))
    assert moved_weight(still) == pytest.approx([0.0] * 12)
    heaviest = average.weights[0]
    alone = replace(average, nested_weights={"1": {heaviest.name: 1.0}, "2": {"stranger": 1.0}})
    assert moved_weight(alone) == pytest.approx([1 - heaviest.share, 1.0])
    assert "100 % at most" in said(run, average=alone)
    assert "of the weight moves" not in said(run, average=replace(average, nested_weights={}))


def test_missing_scores_of_an_average_leave_gaps_and_no_claims() -> None:
    """As where there is one kind: nothing is left without it."""
    run = averaged()
    gone = dict.fromkeys(of(run).nested_test_scores, float("nan"))
    average = replace(
        average_of(run), without_kind={"eegnet": gone}, choosing_test_scores={}, equal_test_scores=gone, weights=[]
    )
    text = said(run, average=average)
    assert "the same or better" not in text
    assert "Equal weights" not in text
    assert not re.search(r"\bnan\b", text)
    assert all(line for line in answer_lines(of(run, average=average)))


def test_adapted_averages_are_labelled() -> None:
    run = averaged()
    assert "Adapts to each new person" not in said(run)
    text = said(run, adaptation="online")
    assert "Adapts to each new person: this is true of AutoTransfer's average, while the baseline is" in text
    some = said(run, nested_adaptations={"S1": "online", "S2": "none"})
    assert "this is true of the nested averages of 1 subject" in some


def test_the_terminal_tells_kinds_scores_and_temperature() -> None:
    run = averaged()
    choice, average = of(run), average_of(run)
    lines = answer_lines(choice)
    assert len(lines) <= 16
    assert lines[3].startswith("average of 6 candidates of 5 kinds: EEGNet 45 %, Tangent space 28 %")
    assert lines[3].endswith("my_encoder 3 %"), "templates have no weight"
    assert "balanced accuracy on 12 test subjects (chance .25):" in lines
    for label, scores in (
        ("average, nested ", choice.nested_test_scores),
        ("  plain network (baseline) ", choice.test_scores["baseline"]),
        ("best single, nested", average.choosing_test_scores),
    ):
        assert any(label in line and f"mean {np.mean(list(scores.values())):.3f}" in line for line in lines)
    assert any("temperature 1.37" in line and "0.021" in line and "0.083" in line for line in lines)
    assert f"best single candidate: {choice.chosen.name}" in lines
    assert choice.playback is not None
    after, before = (np.mean(list(own["1"].values())) for own in (choice.playback.calibrated, choice.playback.before))
    assert any(f"with 1 label of each class {before:.3f} becomes {after:.3f}" in line for line in lines), (
        "what one label of each class gave"
    )
    assert "not zero-shot" in answer_lines(replace(choice, adaptation="online"))[4]
    rude = replace(average, weights=[replace(average.weights[0], kind="a\x1b[31m\nb")])
    assert answer_lines(replace(choice, average=rude))[3].isprintable()
    assert all(line.isprintable() for line in headline(replace(choice, nested_test_scores={"a\x1b[31m\nb": 0.5})))
    assert KINDS.keys() < average.kinds.keys()


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
    assert date_and_time("2026-03-02T10:15:00+00:00") == "2 March 2026, 10:15 UTC"
    assert date_and_time("yesterday") == "yesterday"
    assert (signed(0.0421), signed(-0.0421), signed(0.0001)) == ("+0.042", "−0.042", "0.000")


def test_methods_are_judged_in_words_after_correction() -> None:
    assert "No method differs significantly from the baseline" in light(finished(gain=0.0))
    assert "Significantly different from the baseline, corrected for" in light(finished(gain=0.2))
    assert "No method could be tested against the baseline" in light(finished(4))
