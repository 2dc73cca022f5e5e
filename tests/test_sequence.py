"""Windows in order: a hidden Markov model against all paths, the doors to it, and what they refuse."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autotransfer as at
from autotransfer.training.sequence import stay_of

Floats = NDArray[np.float64]


def by_all_paths(probability: Floats, stay: float, upto: int | None = None) -> Floats:
    """Posteriors (N, K), summed over every path of classes through the windows, or those up to one."""
    n, k = probability.shape
    found = np.zeros((n, k))
    for place in range(n):
        last = n if upto is None else place + 1
        for path in product(range(k), repeat=last):
            weight = 1 / k
            for step, state in enumerate(path):
                weight *= probability[step, state]
                if step:
                    weight *= stay if state == path[step - 1] else (1 - stay) / (k - 1)
            found[place, path[place]] += weight
    return found / found.sum(1, keepdims=True)


@pytest.mark.parametrize("stay", [0.9, 0.3])
@pytest.mark.parametrize("classes", [2, 3])
def test_posteriors_are_those_of_all_paths(stay: float, classes: int) -> None:
    p = np.random.default_rng(classes).dirichlet(np.ones(classes), 5)
    np.testing.assert_allclose(np.exp(at.smooth(np.log(p), stay)), by_all_paths(p, stay), atol=1e-9)
    causal = at.smooth(np.log(p), stay, causal=True)
    np.testing.assert_allclose(np.exp(causal), by_all_paths(p, stay, upto=0), atol=1e-9)


def test_impossible_windows_do_not_break_it() -> None:
    with np.errstate(divide="ignore"):
        found = at.smooth(np.log(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])), 0.99)
    assert np.isfinite(found).all()
    long = at.smooth(np.log(np.full((5000, 2), 0.5)), 0.999)
    np.testing.assert_allclose(np.exp(long), 0.5)


def in_order(n_people: int = 4, seed: int = 0) -> tuple[Any, list[str], list[int]]:
    """Windows of two classes that last for about ten windows; X, y, subject."""
    rng = np.random.default_rng(seed)
    y = [one for _ in range(n_people) for one in np.repeat(rng.permutation([0, 1] * 3), 10).tolist()]
    who = np.repeat(np.arange(n_people), 60).tolist()
    X = rng.normal(size=(len(y), 3, 32)) * np.where(np.array(y) == 1, 1.15, 1.0)[:, None, None]
    return X, ["rest" if one == 0 else "grip" for one in y], who


def test_stay_counts_pairs_of_a_person_and_session() -> None:
    X = np.random.default_rng(0).normal(size=(9, 2, 16))
    y, who, session = list("aabbbbaba"), [0, 0, 0, 1, 1, 1, 2, 2, 2], [1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert stay_of(at.Recordings(X, y, who, session)) == (3 + 1) / (5 + 2)
    mixed = np.array([0, 3, 6, 1, 4, 7, 2, 5, 8])  # people interleaved, each in their order
    own = at.Recordings(X[mixed], [y[n] for n in mixed], [who[n] for n in mixed], [session[n] for n in mixed])
    assert stay_of(own) == (3 + 1) / (5 + 2)
    assert stay_of(at.Recordings(X[::3], list("aba"), [0, 1, 2])) is None


@pytest.fixture(scope="module")
def classifier() -> Any:
    X, y, who = in_order()
    setting = at.Setting(encoder="linear", represent="features", standardize="none")
    return at.CensoredClassifier(setting=setting, sfreq=32.0).fit(X, y, subjects=who)


def test_causal_smoothing_reads_no_later_window(classifier: Any) -> None:
    X, y, _ = in_order(1, seed=5)
    model = classifier.model_
    assert model.card.stay == pytest.approx(stay_of(at.Recordings(*in_order())))
    plain = np.log(model.predict_proba(X))
    together = at.smooth(plain, model.card.stay, causal=True)
    np.testing.assert_allclose(at.smooth(plain[:20], model.card.stay, causal=True), together[:20], atol=1e-9)
    truth = [model.card.classes.index(one) for one in y]
    whole = at.smooth(plain, model.card.stay)
    assert np.mean(whole.argmax(1) == truth) >= np.mean(plain.argmax(1) == truth)
