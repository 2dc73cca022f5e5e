"""Prediction sets and abstention: thresholds against double loops, coverage against a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import autotransfer as at
from autotransfer.models.card import as_array
from autotransfer.models.loading import load_model
from autotransfer.search.diagnosis import score_prediction_sets
from autotransfer.search.procedure import perform_plan
from autotransfer.training.conformal import (
    Thresholds,
    coverage_curves,
    decide_classes,
    find_guaranteed_thresholds,
    find_thresholds,
    make_sets,
    unanswered_value,
)
from tiny import create_run, described, tiny, tiny_file

Person = tuple[NDArray[np.int64], NDArray[np.float64]]


def drawn(draw: np.random.Generator, spread: float, n: int = 60, classes: int = 4, noise: float = 1.0) -> Person:
    """A subject whose windows are told apart the better, the higher a skill that differs between subjects."""
    y = draw.integers(0, classes, n)
    logits = noise * draw.standard_normal((n, classes))
    logits[np.arange(n), y] += 1.5 + spread * draw.standard_normal()
    p = np.exp(logits)
    return y, p / p.sum(1, keepdims=True)


def several(draw: np.random.Generator, people: int, spread: float, **values: float) -> tuple[list, list]:
    y, p = zip(*(drawn(draw, spread, **values) for _ in range(people)), strict=True)  # type: ignore[arg-type]
    return list(y), list(p)


# thresholds


def test_the_cautious_threshold_is_the_formula() -> None:
    """Every mass u at which anything changes, in plain loops."""
    y, p = several(np.random.default_rng(1), 4, 1.0, n=12)
    _, F = coverage_curves(y, p)
    K, T = F.shape

    def largest(people: list[int], u: float) -> int:
        return max(t for t in range(T) if sum(1 - F[k, t] for k in people) <= u + 1e-9)

    for level in (0.6, 0.8, 0.9):
        best = 0
        for u in np.arange(0, 4 * 12 + 1) / 12:
            others = [[j for j in range(K) if j != k] for k in range(K)]
            if (1 + sum(F[k, largest(others[k], u)] for k in range(K))) / (K + 1) >= level - 1e-9:
                best = largest(list(range(K)), u)
        assert find_thresholds(F, np.array([level]))[0] == best


def test_the_guaranteed_threshold_is_that_of_conformal_risk_control() -> None:
    y, p = several(np.random.default_rng(1), 14, 1.0, n=12)
    _, F = coverage_curves(y, p)
    K, T = F.shape
    for level in (0.5, 0.8, 0.9, 0.99):
        fitting = [t for t in range(T) if (1 + sum(1 - F[k, t] for k in range(K))) / (K + 1) <= 1 - level + 1e-9]
        assert find_guaranteed_thresholds(F, np.array([level]))[0] == max(fitting, default=0)


def test_the_guarantee_holds_if_a_few_subjects_are_hard() -> None:
    """12 % of the subjects cannot be decoded."""
    draw, usual, guaranteed, size = np.random.default_rng(0), [], [], []
    for _ in range(300):
        y, p = zip(*(drawn(draw, 0.0, noise=6.0 if draw.random() < 0.12 else 0.2) for _ in range(11)), strict=True)
        thresholds = Thresholds.fit(y[:-1], p[:-1])
        for shares, is_guaranteed in ((usual, False), (guaranteed, True)):
            sets = make_sets(p[-1], thresholds.set_threshold(0.9, is_guaranteed=is_guaranteed))
            shares.append(sets[np.arange(60), y[-1]].mean())
        size.append(sets.mean())
    assert np.mean(guaranteed) > max(0.9, np.mean(usual))
    assert np.mean(size) < 1, "sets are not all classes"


@pytest.mark.parametrize(
    ("people", "spread", "noise"),
    [(5, 1.5, 1.0), *(pytest.param(*own, marks=pytest.mark.slow) for own in ((12, 0.7, 1.0), (19, 3.0, 0.01)))],
)
def test_new_subjects_are_covered_as_often_as_requested(people: int, spread: float, noise: float) -> None:
    """The truth is known: many new subjects are drawn like those of the study. The last but one are all or nothing, so
    a quantile of pooled windows would cover 83 % of them."""
    draw = np.random.default_rng(people)
    reached = []
    for _ in range(150):
        tried, covered = coverage_curves(*several(draw, people, spread, noise=noise, n=40))
        t = tried[find_thresholds(covered, np.array([0.9]))[0]]
        new_y, new_p = several(draw, 15, spread, noise=noise, n=40)
        held = [make_sets(p, t)[np.arange(len(y)), y].mean() for y, p in zip(new_y, new_p, strict=True)]
        reached.append(np.mean(held))
    error = np.std(reached) / np.sqrt(len(reached))
    assert 0.9 - 3 * error <= np.mean(reached) <= 0.9 + 0.1 / people + 3 * error


def test_held_out_subjects_are_scored_with_thresholds_of_the_other_subjects() -> None:
    draw = np.random.default_rng(2)
    people = {str(k): drawn(draw, 1.0) for k in range(12)}
    before = score_prediction_sets(people)
    # somebody of whom everything is wrong, and surely so, changes the others' sets, not their own
    y, p = people["0"]
    wrong = (y + 1) % 4
    people["0"] = wrong, p
    after = score_prediction_sets(people)
    same, others = before.set_size["0.9"]["0"], [before.set_size["0.9"][name] for name in list(people)[1:]]
    assert after.set_size["0.9"]["0"] == same
    assert np.mean([after.set_size["0.9"][name] for name in list(people)[1:]]) > np.mean(others)
    assert after.answered_accuracy["0"]["0"] == pytest.approx(np.mean(p.argmax(1) == wrong))
    assert set(after.answered_share["0"].values()) == {1.0}
    assert score_prediction_sets({name: people[name] for name in "01"}) is None


# what is asked of them


def thresholds() -> Thresholds:
    return Thresholds.fit(*several(np.random.default_rng(3), 8, 1.0))


@pytest.mark.parametrize(
    ("classes", "value", "kind"),
    [
        (["left", "right"], "unanswered", "U"), ([0, 1], -1, "i"), ([-1, 1], -2, "i"), ([0.5, 1.5], -1, "f"),
        ([False, True], -1, "i"), (["unanswered", "no"], "unanswered_", "U"),
        ([2**64 - 1, 0], -1, "O"), ([2**63 - 1, -(2**63) + 1], -(2**63), "i"),
    ],
)  # fmt: skip
def test_the_value_of_unanswered_windows_is_no_class(classes: list[object], value: object, kind: str) -> None:
    p = np.array([[0.9, 0.1], [0.45, 0.55]])
    array = np.array(classes, dtype=np.uint64 if kind == "O" else None)
    found = decide_classes(p, array, 0.6)
    assert found.tolist() == [classes[0], value]
    assert found.dtype.kind == kind
    assert unanswered_value(classes) == value
    assert decide_classes(p[1], array, 0.6) == value  # of a single window
    assert decide_classes(p, array, None).tolist() == classes
    assert as_array(classes).tolist() == classes  # of a saved model


# entry points


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    options = described(
        source=str(tiny_file(folder, n_subjects=5)), max_epochs=1, grid="uncensored", seeds=1, device="cpu"
    )
    own = create_run(folder / "run", options)
    perform_plan(own, lambda _: None, progress=False)
    own.database.close()
    return folder


def test_every_entry_point_gives_the_same_sets_and_predictions(run: Path) -> None:
    rec = tiny(4, per_class=6, seed=5)
    X = rec.X.numpy() + 3 * np.random.default_rng(0).standard_normal(rec.X.shape).astype("float32")
    model = load_model(run / "run/model")
    own = model.card.thresholds
    assert own.n_subjects == 5
    p = model.predict_proba(X)
    own = Thresholds(
        5, [0.4] * 99, [0.3] * 99, np.linspace(p.max(1).min(), p.max(1).max(), 99).tolist()
    )  # some are answered
    model.card = replace(model.card, thresholds=own)
    sets, answers = model.predict_set(X, coverage=0.9), model.predict(X, abstain=0.3)
    assert (sets == make_sets(p, own.set_threshold(0.9))).all()
    assert ((answers == "unanswered") == (p.max(1) < own.confidence_needed(0.3))).all()
    assert 0 < (answers == model.unanswered_).sum() < len(X)
    at.export_model(model, "safetensors", run / "file.safetensors")
    assert (at.load_model(run / "file.safetensors").predict_set(X) == sets).all()


def test_a_model_without_thresholds_is_refused() -> None:
    rec = tiny(5)
    X, y, s = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    clf = at.CensoredClassifier(max_epochs=1, device="cpu").fit(X, y, subjects=s)
    for ask in (lambda: clf.predict_set(X), lambda: clf.predict(X, abstain=0.1)):
        with pytest.raises(at.UserError, match=r"has no thresholds.*AutoTransferClassifier"):
            ask()
    assert set(clf.predict(X)) <= {0, 1}
    held = at.CensoredClassifier(max_epochs=1, device="cpu", validation_subjects=[2, 3, 4]).fit(X, y, subjects=s)
    assert held.predict_set(X, coverage=0.95).shape == (len(X), 2)
