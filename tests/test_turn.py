"""People who wear an armband turned are turned back; people who do not stay as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.preprocessing import FittedPreprocessing, Preprocessing
from autotransfer.preprocessing import turn as module
from autotransfer.preprocessing.turn import FEWEST, FLOOR, LEAST, MARGIN, PRIOR_WINDOWS, SHRINKAGE, PersonTurn

PLACES, TIMES, CLASSES, PER = 8, 40, 3, 60
TURN = {"standardize": "none", "turn": "transductive"}


def armband(
    turned: dict[int, int], n_subjects: int = 6, seed: int = 0, places: int = PLACES, **more: object
) -> at.Recordings:
    """Three gestures, each with muscles of its own; everybody has a gain and a little unevenness of their own. Person p
    wears the band so that place i shows what belongs to place i − turned[p]."""
    draw = np.random.default_rng(seed)
    pattern = np.exp(1.2 * draw.standard_normal((CLASSES, places)))
    subject = np.repeat(np.arange(n_subjects), PER)
    y = np.tile(np.arange(CLASSES), len(subject) // CLASSES)
    uneven = np.exp(0.1 * draw.standard_normal((n_subjects, places)) + draw.standard_normal((n_subjects, 1)))
    noise = draw.standard_normal((len(y), places, TIMES))
    X = (pattern[y] * uneven[subject])[..., None] * (noise + 0.5 * np.roll(noise, 1, 1))
    for person, places_on in turned.items():
        X[subject == person] = np.roll(X[subject == person], places_on, 1)
    return at.Recordings(X, y, subject, sfreq=TIMES, ring=True, **more)


def fit(rec: at.Recordings, training: np.ndarray, **values: object) -> FittedPreprocessing:
    return Preprocessing.of(TURN | values).fit(rec.X.double(), rec.subject, [training], ring=rec.ring)


def without(rec: at.Recordings, *people: int) -> np.ndarray:
    return np.flatnonzero(~np.isin(rec.subject.numpy(), people))


def turns_of(fitted: FittedPreprocessing) -> list[int]:
    (step,) = fitted.steps
    assert isinstance(step, PersonTurn)
    return step.turns[0].tolist()  # type: ignore[no-any-return]


# ---- the estimate, by brute force in numpy ---------------------------------------------------------------------------


def described(X: np.ndarray) -> np.ndarray:
    """(n, R, T) -> (n, numbers), a window and a channel at a time."""
    found = []
    for window in X - X.mean(-1, keepdims=True):
        power = [(channel @ channel) / len(channel) for channel in window]
        logs = [math.log(own / (sum(power) / len(power)) + FLOOR) for own in power]
        numbers = [own - sum(logs) / len(logs) for own in logs]
        for step in (1, 2, 3):
            for i, one in enumerate(window):
                other = window[(i + step) % len(window)]
                numbers.append(one @ other / math.sqrt((one @ one) * (other @ other)))
        found.append(numbers)
    return np.array(found)


def expected_ratios(own: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """(n, R): every turn of the windows themselves, under a normal density of the others, who count the same each."""
    weights = np.concatenate([np.full(len(X), 1 / len(X) / len(others)) for X in others])
    f = np.concatenate([described(X) for X in others])
    mean = weights @ f
    covariance = (weights[:, None] * (f - mean)).T @ (f - mean)
    covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance)) + LEAST * np.eye(len(mean))
    inverse, found = np.linalg.inv(covariance), []
    for turn in range(own.shape[1]):
        gap = described(np.roll(own, -turn, 1)) - mean
        found.append(-0.5 * np.einsum("ni,ij,nj->n", gap, inverse, gap))
    return np.stack(found, 1) - found[0][:, None]


def expected_turn(ratios: np.ndarray) -> int:
    n = len(ratios)
    evidence = ratios.sum(0) / (n + PRIOR_WINDOWS)
    return int(evidence.argmax()) if n >= FEWEST and evidence.max() > MARGIN else 0


@pytest.mark.parametrize("turned", [0, 3])
def test_evidence_is_that_of_brute_force(turned: int) -> None:
    """Of all windows, and online of those so far."""
    rec = armband({0: turned}, n_subjects=4)
    X = rec.X.double().numpy()
    own = torch.from_numpy(X[rec.subject == 0])
    expected = expected_ratios(own.numpy(), [X[rec.subject == person] for person in (1, 2, 3)])
    fitted = fit(rec, without(rec, 0))
    precision = fitted.steps[0].precision
    f = module.describe(own, torch.arange(PLACES))
    np.testing.assert_allclose(f[:, 1:], described(own.numpy()), atol=1e-10)
    np.testing.assert_allclose(module.window_ratios(precision, f[None], PLACES)[0], expected, rtol=1e-6, atol=1e-6)
    moments = module.log_ratios(precision[0], module.outer(f).mean(0), PLACES)
    np.testing.assert_allclose(moments, expected.mean(0), rtol=1e-6, atol=1e-6)
    assert turns_of(fitted)[0] == expected_turn(expected) == turned
    person = fit(rec, without(rec, 0), turn="online").follow()
    found = torch.cat([person.feed(window[None])[0] for window in own])
    online = [window.roll(-expected_turn(expected[: n + 1]), 0) for n, window in enumerate(own)]
    assert torch.equal(found, torch.stack(online))
    assert torch.equal(found[: FEWEST - 1], own[: FEWEST - 1]), "few windows turn nobody"
    assert torch.equal(found[FEWEST:], own[FEWEST:].roll(-turned, 1)), "and more do here"


@pytest.mark.parametrize("kind", ["transductive", "online"])
@pytest.mark.parametrize("turned", range(PLACES))
def test_a_new_person_is_turned_back_exactly(turned: int, kind: str) -> None:
    straight, rec = armband({}), armband({0: turned})
    own = rec.subject == 0
    found = fit(rec, without(rec, 0), turn=kind).follow().feed(rec.X[own].double())[0]
    last = slice(None) if kind == "transductive" else slice(FEWEST, None)
    assert torch.equal(found[last], straight.X[own].double()[last])


@pytest.mark.parametrize("turned", [{}, {1: 2}, {1: 2, 4: 5}, {0: 7, 5: 1}])
def test_training_people_are_turned_towards_each_other(turned: dict[int, int]) -> None:
    straight, rec = armband({}), armband(turned)
    fitted = fit(rec, without(rec))
    assert turns_of(fitted) == [turned.get(person, 0) for person in range(6)]
    found = fitted(rec.X.double()[None], rec.subject[None])[0]
    assert torch.equal(found, straight.X.double()), "and nothing but the order of channels has changed"
    torch.testing.assert_close(fitted.steps[0].precision, fit(straight, without(straight)).steps[0].precision)


def test_channels_beside_the_ring_stay_and_the_ring_has_its_order() -> None:
    straight, rec = armband({}), armband({0: 3})
    place = torch.tensor([4, 1, 7, 2, 0, 8, 3, 5])  # of each electrode among nine channels; 6 is something else
    beside = torch.arange(float(TIMES)).expand(rec.n_trials, 1, TIMES)

    def mixed(X: Tensor) -> Tensor:
        found = beside.repeat(1, 9, 1)
        found[:, place] = X
        return found

    one = at.Recordings(mixed(rec.X), rec.y, rec.subject, ring=place)
    found = fit(one, without(rec, 0))(one.X.double()[None], one.subject[None])[0]
    assert torch.equal(found, mixed(straight.X).double())


def test_what_comes_after_sees_people_turned_back() -> None:
    """Statistics of later transforms are those of the straight band, whatever the fold."""
    straight, rec = armband({}), armband({0: 3, 4: 6})
    folds = [without(rec, 0), without(rec, 1)]
    for more in (
        {"standardize": "train"},
        {"standardize": "transductive"},
        {"standardize": "online", "align": "online"},
        {"align": "transductive"},
        {"represent": "features", "centre": "online"},
    ):
        way, plain = Preprocessing.of(TURN | more), Preprocessing.of(TURN | more | {"turn": "none"})
        x, who = rec.X.double(), rec.subject
        found = way.fit(x, who, folds, ring=rec.ring)
        expected = plain.fit(straight.X.double(), who, folds)
        torch.testing.assert_close(
            found(x[None], who[None]).expand(2, -1, -1, -1),
            expected(straight.X.double()[None], who[None]).expand(2, -1, -1, -1),
        )
        own, stored = found.state_dict(), expected.state_dict()
        for name, tensor in stored.items():
            torch.testing.assert_close(own[name], tensor, msg=name)


def test_a_graph_turns_the_windows_of_one_call_or_refuses() -> None:
    rec = armband({0: 3})
    x = rec.X[rec.subject == 0]
    graph = Preprocessing.of(TURN).fit(rec.X, rec.subject, [without(rec, 0)], ring=rec.ring).graph()
    assert torch.equal(graph(x[None])[0], x.roll(-3, 1))
    with pytest.raises(UserError, match=r"every new person.*use the format safetensors"):
        fit(rec, without(rec, 0), turn="online").graph()
