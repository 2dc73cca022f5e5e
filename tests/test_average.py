"""The average: what weighs for a person has never met them, and a cap keeps prediction quick."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotransfer.search import average
from autotransfer.search.average import blocks, calibration, find_nested, find_weights
from autotransfer.search.held_out import HeldOutLogProbs
from autotransfer.search.weights import combine_log_probs
from autotransfer.settings import Setting

PEOPLE, CLASSES = 6, 3
QUALITY = [2.0, 1.0, 0.3, 1.5]
ALL = range(len(QUALITY))


def held_out_of(quality: list[float] = QUALITY, people: int = PEOPLE, seed: int = 0, rows: int = 40) -> HeldOutLogProbs:
    """A ring of folds; each training says something of the two people it held out."""
    generator = np.random.default_rng(seed)
    y = {person: generator.integers(0, CLASSES, rows) for person in range(people)}
    found = {}
    for test in range(people):
        fold = ((test - 1) % people, test)
        for person in fold:
            logits = generator.normal(size=(len(quality), rows, CLASSES))
            logits[:, np.arange(rows), y[person]] += np.array(quality)[:, None]
            found[fold, person] = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    candidates = [Setting(lr=0.001 * (k + 1)) for k in range(len(quality))]
    return HeldOutLogProbs(candidates, found, y)


@pytest.mark.parametrize("people", [PEOPLE, 3])
def test_whatever_a_person_has_touched_does_not_reach_their_weights(people: int) -> None:
    """Their labels, and everything said by trainings that held them out, of them and of the other, become noise."""
    clean = find_nested(held_out_of(people=people), ALL).weights
    for person in range(people):
        noisy, generator = held_out_of(people=people), np.random.default_rng(person)
        noisy.y[person] = generator.integers(0, CLASSES, 40)
        for (fold, _), own in noisy.log_probs.items():
            if person in fold:
                own[:] = np.log(generator.dirichlet(np.ones(CLASSES), own.shape[:2]))
        again = find_nested(noisy, ALL).weights
        np.testing.assert_array_equal(again[person].exponents, clean[person].exponents)
        others = [q for q in range(people) if q != person]
        assert any(not np.array_equal(again[q].exponents, clean[q].exponents) for q in others), "or nothing was changed"


def test_a_person_is_predicted_by_all_who_held_them_out() -> None:
    held_out = held_out_of()
    nested = find_nested(held_out, ALL)
    for person in range(PEOPLE):
        own = [np.exp(p) for (fold, who), p in held_out.log_probs.items() if who == person]
        assert len(own) == 2
        direct = np.tensordot(nested.weights[person].exponents, np.log(np.mean(own, 0)), 1)
        np.testing.assert_array_equal(nested.log_probs[person].argmax(1), direct.argmax(1))
        np.testing.assert_allclose(np.exp(nested.log_probs[person]).sum(1), 1)


def test_the_better_weighs_more_and_the_average_beats_the_best_alone() -> None:
    held_out = held_out_of(rows=200)
    found = find_weights(held_out, ALL)
    assert found.shares.sum() == pytest.approx(1)
    assert list(np.argsort(-found.exponents)[:2]) == [0, 3]
    nested = find_nested(held_out, ALL)
    together = np.mean([held_out.score(p, own) for p, own in nested.log_probs.items()])
    alone = np.mean([held_out.score(p, held_out.of_person(p)[0]) for p in held_out.people])
    assert together > alone + 0.01


def test_many_people_are_left_out_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(average, "BLOCKS", 3)
    assert blocks([[n] for n in range(7)]) == [[0, 1, 2], [3, 4], [5, 6]]
    held_out = held_out_of(people=7)
    nested = find_nested(held_out, ALL)
    assert set(nested.weights) == set(range(7))
    direct = find_weights(held_out, ALL, without=[3, 4])
    np.testing.assert_array_equal(nested.weights[4].exponents, direct.exponents)


class Sure:
    """A nested prediction of given confidence and accuracy."""

    def __init__(self, confidence: float, right: NDArray[np.bool_]) -> None:
        y = np.zeros(len(right), dtype=np.int64)
        p = np.where(right, confidence, 1 - confidence)
        log_p = np.log(np.stack([p, 1 - p], 1))
        self.held_out = HeldOutLogProbs([Setting()], {((1, 0), 0): log_p[None].astype(np.float32)}, {0: y})
        self.nested = average.Nested({0: average.Weights(np.ones(1))}, {0: log_p})


@pytest.mark.parametrize(("confidence", "hits", "error"), [(0.8, 8, 0.0), (0.9, 5, 0.4), (0.6, 10, 0.4)])
def test_the_calibration_error_is_the_gap(confidence: float, hits: int, error: float) -> None:
    sure = Sure(confidence, np.arange(10) < hits)
    found = calibration(sure.held_out, sure.nested)
    assert found.error == pytest.approx(error, abs=1e-6)
    assert found.accuracy == pytest.approx([hits / 10])
    assert found.share == pytest.approx([1.0])


def test_few_people_who_differ_get_no_temperature() -> None:
    """Nested weights of five people have their temperature from two of them."""
    generator, y, log_p = np.random.default_rng(0), {}, {}
    for person, factor in enumerate((0.35, 1.25, 1.3, 1.2, 1.4)):  # what would make each well calibrated
        logits = 1.5 * generator.normal(size=(1, 400, CLASSES))
        p, said = (combine_log_probs(np.array([much]), logits) for much in (factor, 1.0))
        y[person] = (np.exp(p).cumsum(1) > generator.random((400, 1))).argmax(1)
        for fold in (((person - 1) % 5, person), (person, (person + 1) % 5)):
            log_p[fold, person] = said[None].astype(np.float32)
    held_out = HeldOutLogProbs([Setting()], log_p, y)
    nested = find_nested(held_out, [0])
    assert [weights.temperature for weights in nested.weights.values()] == pytest.approx([1.0] * 5, abs=0.05)
    found = calibration(held_out, nested)
    assert found.error <= found.error_before + 0.002


def test_a_temperature_calibrates_what_is_too_sure() -> None:
    held_out = held_out_of([0.8, 0.6], people=20, rows=300)
    for own in held_out.log_probs.values():
        own *= 5
        own -= np.log(np.exp(own).sum(-1, keepdims=True))
    found = calibration(held_out, find_nested(held_out, [0, 1]))
    assert found.error < 0.05 < found.error_before
