"""A subject's ensemble weights use no evidence about the subject, and predictions are calibrated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotransfer.runs.choice import Calibration, EnsembleWeights, NamedSetting, WeightedCandidate
from autotransfer.search import evidence
from autotransfer.search.diagnosis import calibration
from autotransfer.search.evidence import ClassificationEvidence
from autotransfer.search.selection import select
from autotransfer.search.weights import Floats, combine_log_probs
from autotransfer.settings import Setting
from autotransfer.training.metrics import balanced_accuracy_of

PEOPLE, CLASSES = 6, 3
QUALITY = [2.0, 1.0, 0.3, 1.5]
ALL = range(len(QUALITY))


def evidence_from(log_probs: dict[Any, NDArray[np.float32]], y: dict[int, NDArray[np.int64]]) -> ClassificationEvidence:
    """Return the evidence of candidates without validation scores."""
    n = len(next(iter(log_probs.values())))
    named = tuple(NamedSetting(str(k), Setting(lr=0.001 * (k + 1))) for k in range(n))
    return ClassificationEvidence(named, tuple(map(str, range(len(y)))), log_probs, y, trained=tuple(range(n)))


def held_out_of(
    quality: list[float] = QUALITY, people: int = PEOPLE, seed: int = 0, rows: int = 40
) -> ClassificationEvidence:
    """A ring of folds; each fit predicts the two subjects it held out."""
    generator = np.random.default_rng(seed)
    y = {person: generator.integers(0, CLASSES, rows) for person in range(people)}
    found = {}
    for test in range(people):
        fold = ((test - 1) % people, test)
        for person in fold:
            logits = generator.normal(size=(len(quality), rows, CLASSES))
            logits[:, np.arange(rows), y[person]] += np.array(quality)[:, None]
            found[fold, person] = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    return evidence_from(found, y)


def nested_weights(evidence: ClassificationEvidence) -> dict[int, Floats]:
    """Return weights (K,) found without each subject."""
    return {person: evidence.without([person]).weights(evidence.trained) for person in evidence.held_out_subjects}


def predicted(evidence: ClassificationEvidence) -> dict[int, NDArray[np.float64]]:
    """Return log-probabilities of each subject, with weights that were found without them."""
    return {person: combine_log_probs(beta, evidence.pool(person)) for person, beta in nested_weights(evidence).items()}


def calibrated(evidence: ClassificationEvidence) -> Calibration:
    nested = nested_weights(evidence)
    named = {str(p): {str(k): float(b) for k, b in enumerate(beta)} for p, beta in nested.items()}
    ensemble = EnsembleWeights(candidates=[WeightedCandidate("0", "eegnet", 1.0, 1.0)], nested=named)
    return calibration(ensemble, evidence, predicted(evidence))


@pytest.mark.parametrize("people", [PEOPLE, 3])
def test_no_evidence_of_a_subject_changes_its_weights(people: int) -> None:
    """Their labels, and everything said by fits that held them out, of them and of the other, become noise."""
    clean = nested_weights(held_out_of(people=people))
    for person in range(people):
        noisy, generator = held_out_of(people=people), np.random.default_rng(person)
        noisy.y[person][:] = generator.integers(0, CLASSES, 40)
        for (fold, _), own in noisy.log_probs.items():
            if person in fold:
                own[:] = np.log(generator.dirichlet(np.ones(CLASSES), own.shape[:2]))
        again = nested_weights(noisy)
        np.testing.assert_array_equal(again[person], clean[person])
        others = [q for q in range(people) if q != person]
        assert any(not np.array_equal(again[q], clean[q]) for q in others), "or nothing was changed"


def test_a_subject_is_predicted_by_all_fits_that_held_it_out() -> None:
    held_out = held_out_of()
    nested, log_probs = nested_weights(held_out), predicted(held_out)
    for person in range(PEOPLE):
        own = [np.exp(p) for (fold, who), p in held_out.log_probs.items() if who == person]
        assert len(own) == 2
        direct = np.tensordot(nested[person], np.log(np.mean(own, 0)), 1)
        np.testing.assert_array_equal(log_probs[person].argmax(1), direct.argmax(1))
        np.testing.assert_allclose(np.exp(log_probs[person]).sum(1), 1)


def test_better_candidates_weigh_more_and_the_ensemble_beats_the_best() -> None:
    held_out = held_out_of(rows=200)
    found = held_out.weights(ALL)
    assert list(np.argsort(-found)[:2]) == [0, 3]

    def score(person: int, log_p: NDArray[np.floating]) -> float:
        return balanced_accuracy_of(log_p.argmax(1), held_out.y[person], CLASSES)

    together = np.mean([score(person, log_p) for person, log_p in predicted(held_out).items()])
    alone = np.mean([score(person, held_out.pool(person)[0]) for person in held_out.held_out_subjects])
    assert together > alone + 0.01


def test_weights_are_equal_if_no_subject_is_left_or_no_candidate_helps() -> None:
    assert held_out_of().without(range(PEOPLE)).weights(ALL).tolist() == [0.25] * 4
    wrong = np.log(np.array([[1e-6, 1 - 1e-6], [1 - 1e-6, 1e-6]]))
    log_p = np.stack([wrong, 4 * wrong]).astype(np.float32)
    found = evidence_from({((0, 1), 0): log_p}, {0: np.array([0, 1])}).weights([0, 1])
    assert found[0] == found[1] > 0


def test_many_subjects_are_left_out_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "BLOCKS", 3)
    held_out = held_out_of(people=7)
    assert held_out.blocks == [[0, 1, 2], [3, 4], [5, 6]]
    ensemble = select(held_out).ensemble
    assert set(ensemble.nested) == set(map(str, range(7)))
    direct = held_out.without([3, 4]).weights(ALL)
    assert ensemble.nested["4"] == {str(k): beta for k, beta in enumerate(direct.tolist()) if beta}


@pytest.mark.parametrize(("confidence", "hits", "error"), [(0.8, 8, 0.0), (0.9, 5, 0.4), (0.6, 10, 0.4)])
def test_the_calibration_error_is_the_gap(confidence: float, hits: int, error: float) -> None:
    p = np.where(np.arange(10) < hits, confidence, 1 - confidence)
    log_p = np.log(np.stack([p, 1 - p], 1))
    evidence = evidence_from({((1, 0), 0): log_p[None].astype(np.float32)}, {0: np.zeros(10, dtype=np.int64)})
    ensemble = EnsembleWeights(candidates=[WeightedCandidate("0", "eegnet", 1.0, 1.0)], nested={"0": {"0": 1.0}})
    found = calibration(ensemble, evidence, {0: log_p})
    assert found.error == pytest.approx(error, abs=1e-6)
    assert found.accuracy == pytest.approx([hits / 10])
    assert found.share == pytest.approx([1.0])


def test_few_different_subjects_get_no_temperature() -> None:
    """Nested weights of five subjects have their temperature from two of them."""
    generator, y, log_p = np.random.default_rng(0), {}, {}
    for person, factor in enumerate((0.35, 1.25, 1.3, 1.2, 1.4)):  # what would make each well calibrated
        logits = 1.5 * generator.normal(size=(1, 400, CLASSES))
        p, said = (combine_log_probs(np.array([much]), logits) for much in (factor, 1.0))
        y[person] = (np.exp(p).cumsum(1) > generator.random((400, 1))).argmax(1)
        for fold in (((person - 1) % 5, person), (person, (person + 1) % 5)):
            log_p[fold, person] = said[None].astype(np.float32)
    held_out = evidence_from(log_p, y)
    assert [1 / beta.sum() for beta in nested_weights(held_out).values()] == pytest.approx([1.0] * 5, abs=0.05)
    found = calibrated(held_out)
    assert found.error <= found.error_before + 0.002
