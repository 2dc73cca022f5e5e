"""Shortlist and choice on numbers whose answer is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotransfer.search.stages import (
    Score,
    choose,
    lower_quartile,
    shortlist,
    simplest,
    without_subject,
    worth_leaving,
)


def scores(**values: list[float]) -> list[Score]:
    return [Score(setting, subject, v) for setting, own in values.items() for subject, v in enumerate(own)]


def test_the_choice_is_the_highest_lower_quartile_not_the_highest_mean() -> None:
    found = scores(bold=[0.2, 0.2, 0.99, 0.99, 0.99], steady=[0.6, 0.6, 0.6, 0.6, 0.6])
    assert np.mean([0.2, 0.2, 0.99, 0.99, 0.99]) > 0.6
    assert choose(found, ["bold", "steady"]) == "steady"
    assert lower_quartile(found, "bold") == 0.2


def test_ties_are_broken_by_the_mean_then_by_order() -> None:
    found = scores(a=[0.5, 0.5, 0.5, 0.6], b=[0.5, 0.5, 0.5, 0.9], c=[0.5, 0.5, 0.5, 0.9])
    assert choose(found, ["a", "b", "c"]) == "b"
    assert choose(found, ["a", "c", "b"]) == "c"


def test_seeds_are_averaged_per_subject_first() -> None:
    found = [Score("a", 0, 0.0), Score("a", 0, 1.0), Score("a", 1, 0.5), Score("b", 0, 0.4), Score("b", 1, 0.4)]
    assert lower_quartile(found, "a") == 0.5
    assert choose(found, ["a", "b"]) == "a"


def test_the_simplest_of_the_best_is_the_first_within_a_standard_error() -> None:
    low = [0.5, 0.6, 0.7, 0.8]
    noise = [0.02, -0.02, 0.02, -0.02]
    near = [value + 0.01 + gap for value, gap in zip(low, noise, strict=True)]  # better by 0.01 ± 0.0115
    far = [value + 0.02 + gap for value, gap in zip(low, noise, strict=True)]
    assert simplest(scores(plain=low, near=near), ["plain", "near"]) == "plain"
    assert simplest(scores(plain=low, far=far), ["plain", "far"]) == "far"
    assert simplest(scores(plain=low, near=near, far=far), ["plain", "near", "far"]) == "far", "0.01 ± 0 is short"
    assert simplest(scores(plain=low, far=far), ["far", "plain"]) == "far", "the order says what is simple"
    worst_loses = [0.1, 0.9, 0.9, 0.9]  # a lower quartile would refuse it, a mean within its error does not
    assert simplest(scores(bold=worst_loses, steady=[0.7] * 4), ["bold", "steady"]) == "bold"
    assert simplest(scores(a=[0.5], b=[0.6]), ["a", "b"]) == "b", "one subject has no spread"
    assert simplest(scores(plain=low, near=near), ["plain", "near"], 0.5) == "near", "0.01 is more than half of 0.0115"
    assert simplest(scores(plain=low, far=far), ["plain", "far"], 2.0) == "plain"


def test_the_plain_network_is_left_for_a_mean_that_is_no_lower_or_a_lower_quartile_that_is_clearly_higher() -> None:
    plain = [0.5, 0.52, 0.54, 0.56, 0.7, 0.8, 0.9, 0.95]
    everybody = [value + 0.01 for value in plain]
    lucky = [0.5, 0.53, 0.54, 0.56, 0.6, 0.7, 0.8, 0.9]  # a lower quartile higher by .0075, a mean lower by .03
    lifted = [0.58, 0.6, 0.62, 0.6, 0.6, 0.62, 0.6, 0.62]  # all low ones rise by .06 and more, at the cost of the high
    found = scores(plain=plain, everybody=everybody, lucky=lucky, lifted=lifted)
    assert np.mean(lifted) < np.mean(plain)
    assert lower_quartile(found, "lucky") > lower_quartile(found, "plain")
    assert worth_leaving(found, ["plain", "everybody", "lucky", "lifted"]) == ["plain", "everybody", "lifted"]
    assert worth_leaving(found, ["lucky", "plain"]) == ["lucky", "plain"], "the first is what it is compared with"
    assert worth_leaving(scores(plain=plain, same=plain), ["plain", "same"]) == ["plain", "same"]


def test_the_shortlist_keeps_three_of_each_method_and_the_baseline() -> None:
    methods = {"base": None, **{f"mmd{i}": "mmd" for i in range(5)}, "adv0": "adversary"}
    found = scores(base=[0.1], mmd0=[0.5], mmd1=[0.9], mmd2=[0.7], mmd3=[0.8], mmd4=[0.6], adv0=[0.2])
    assert shortlist(found, methods) == ["base", "mmd1", "mmd2", "mmd3", "adv0"]


def test_of_many_uncensored_settings_the_best_three_and_the_plain_one_are_kept() -> None:
    methods = {"plain": None, **{f"u{i}": None for i in range(5)}, "mmd0": "mmd"}
    found = scores(plain=[0.1], u0=[0.2], u1=[0.9], u2=[0.5], u3=[0.7], u4=[0.3], mmd0=[0.0])
    assert shortlist(found, methods) == ["plain", "u1", "u2", "u3", "mmd0"]
    best = scores(plain=[0.8], u0=[0.2], u1=[0.9], u2=[0.5], u3=[0.7], u4=[0.3], mmd0=[0.0])
    assert shortlist(best, methods) == ["plain", "u1", "u3", "mmd0"], "the plain one may be among the best three"
    assert shortlist([score for score in found if score.setting != "plain"], methods)[0] == "plain"


@given(
    st.lists(st.floats(0, 1), min_size=12, max_size=12),
    st.integers(0, 3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_scores_measured_on_a_subject_do_not_reach_the_choice_for_them(
    values: list[float], subject: int, corrupted: list[float]
) -> None:
    names = ["a", "b", "c"]
    found = [Score(names[i // 4], i % 4, value) for i, value in enumerate(values)]
    changed = [
        score._replace(value=corrupted[names.index(score.setting)]) if score.subject == subject else score
        for score in found
    ]
    assert choose(without_subject(found, subject), names) == choose(without_subject(changed, subject), names)
