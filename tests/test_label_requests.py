"""Labels in a session equal calibrate, are kept and restored, and requests equal hand computation."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.models.calibration import LABELS
from autotransfer.person.label_requests import N_LIKELY_CLASSES, N_RECENT
from ensembles import with_known
from test_calibration import CLASSES, FEW, KINDS, OWN, REST, SEEN, S, X, Y, both, single, with_card, with_model

TRUSTED = {str(number): [0.6, 0.7] for number in LABELS}


def labeled(clf: at.CensoredClassifier, rows: np.ndarray = FEW) -> at.Session:
    session = at.Session(clf)
    for row in rows:
        session.label(X[row], Y[row])
    return session


@both
def test_labels_one_by_one_are_a_calibration(kind: str) -> None:
    clf = KINDS[kind]()
    want = clf.calibrate(X[FEW], Y[FEW]).predict_proba(X[REST])
    session = labeled(clf)
    assert (session.n_labels, session.n_windows) == (len(FEW), len(FEW))
    np.testing.assert_allclose(session.predict_proba(X[REST]), want, atol=1e-5)
    at_once = at.Session(clf)
    at_once.label(X[FEW], Y[FEW])
    np.testing.assert_allclose(at_once.predict_proba(X[REST]), want, atol=1e-5)
    assert np.abs(want - clf.predict_proba(X[REST])).max() > 0.05


def test_labels_count_as_much_as_for_held_out_subjects() -> None:
    clf = KINDS["mixture"]()
    trusted = with_model(clf, with_card(clf.model_, trust=TRUSTED, calibrates_with=[2, 5, 10]))
    want = trusted.calibrate(X[FEW], Y[FEW]).predict_proba(X[REST])
    np.testing.assert_allclose(labeled(trusted).predict_proba(X[REST]), want, atol=1e-5)
    assert np.abs(want - clf.calibrate(X[FEW], Y[FEW]).predict_proba(X[REST])).max() > 0.01
    one_of_each = FEW[[int(np.flatnonzero(Y[FEW] == name)[0]) for name in CLASSES]]
    session = labeled(trusted, one_of_each)
    np.testing.assert_allclose(session.predict_proba(X[REST]), clf.predict_proba(X[REST]), atol=1e-5)
    for row in np.setdiff1d(FEW, one_of_each):
        session.label(X[row], Y[row])
    np.testing.assert_allclose(session.predict_proba(X[REST]), want, atol=1e-5)


@pytest.fixture(scope="module")
def online() -> at.CensoredClassifier:
    """A model whose latents depend on the windows before."""
    clf = clone(single()).set_params(standardize="online", max_epochs=2)
    return clf.fit(X[SEEN], Y[SEEN], subjects=S[SEEN])


@pytest.mark.parametrize("predicted", [True, False])
def test_a_window_counts_once_whether_it_was_predicted_or_not(online: at.CensoredClassifier, predicted: bool) -> None:
    session = at.Session(online)
    for row in FEW:
        if predicted:
            session.predict(X[row])
            session.ask(X[row])
        session.label(X[row], Y[row])
    assert session.n_windows == len(FEW)
    again = at.Session(online.calibrate(X[FEW], Y[FEW]))
    again.predict_proba(X[FEW])
    np.testing.assert_allclose(session.predict_proba(X[REST]), again.predict_proba(X[REST]), atol=1e-4)


@both
def test_adaptation_goes_on_from_labels(kind: str, tmp_path: Path) -> None:
    clf = KINDS[kind]()
    want = at.Session(clf.calibrate(X[FEW], Y[FEW]), adapt=True).predict_proba(X[REST])
    session = at.Session(clf, adapt=True)
    session.label(X[FEW], Y[FEW])
    found = session.predict_proba(X[REST[:20]])
    np.testing.assert_allclose(found, want[:20], atol=1e-4)
    session.save(tmp_path / "ann.session")
    again = at.Session.load(tmp_path / "ann.session", clf)
    assert again.n_labels == len(FEW)
    found = session.predict_proba(X[REST[20:]])
    np.testing.assert_allclose(found, want[20:], atol=1e-4)
    np.testing.assert_array_equal(again.predict_proba(X[REST[20:]]), found)


def test_a_label_that_is_refused_leaves_no_trace() -> None:
    session = at.Session(single())
    for window, y in [(X[0], "jump"), (X[0][:2], "fist"), (X[:2], ["fist"])]:
        with pytest.raises(UserError):
            session.label(window, y)
    assert (session.n_labels, session.n_windows) == (0, 0)
    with pytest.raises(UserError, match="one"):
        session.ask(X[:2])
    with pytest.raises(UserError, match="at_least"):
        session.ask(X[0], at_least=-1)
    plain = single().model_
    bare = with_known(plain, effects=None)
    with pytest.raises(UserError, match="no subject effects"):
        at.Session(bare).ask(X[0])


def by_hand(clf: at.CensoredClassifier, known: np.ndarray, recent: np.ndarray, row: int) -> float:
    """Σ over classes of what a calibration with one label more would change."""
    own = clf.calibrate(X[known], Y[known]) if len(known) else clf
    before, p = own.predict_proba(X[recent]), own.predict_proba(X[row : row + 1])[0]
    gain = 0.0
    for place, name in enumerate(clf.classes_):
        rows, labels = np.append(known, row), np.append(Y[known], name)
        after = clf.calibrate(X[rows], labels).predict_proba(X[recent])
        gain += p[place] * 0.5 * np.abs(after - before).sum(1).mean()
    return gain


@both
def test_expected_gain_is_that_of_trying_every_class(kind: str) -> None:
    assert len(CLASSES) <= N_LIKELY_CLASSES
    clf = KINDS[kind]()
    session, recent = at.Session(clf), REST[:7]
    asked = REST[7 + clf.predict_proba(X[REST[7:]]).max(1).argmin()]  # the window that is least sure
    session.predict_proba(X[recent])
    want = by_hand(clf, np.empty(0, int), recent, recent[2])
    np.testing.assert_allclose(session.expected_gain(X[recent[2]]), want, rtol=1e-3)
    session.label(X[FEW], Y[FEW])
    seen = np.append(recent, FEW)
    want = by_hand(clf, FEW, np.append(seen, asked), asked)
    assert session.expected_gain(X[asked]) == pytest.approx(want, rel=1e-3, abs=1e-7)  # of float32 probabilities
    assert session.n_windows == len(seen)
    assert session.ask(X[asked], at_least=0.9 * want)
    assert not session.ask(X[asked], at_least=1.1 * want)


def test_a_label_request_leaves_no_trace(online: at.CensoredClassifier) -> None:
    plain, asked = at.Session(online), at.Session(online)
    for row in OWN[:12]:
        asked.ask(X[row])
        np.testing.assert_array_equal(asked.predict_proba(X[row]), plain.predict_proba(X[row]))
    assert asked.n_windows == 12


def test_no_window_is_in_the_file_of_a_session(online: at.CensoredClassifier, tmp_path: Path) -> None:
    session, path = at.Session(online), tmp_path / "ann.session"
    session.predict_proba(X[OWN[:N_RECENT]])
    session.save(path)
    content, window = path.read_bytes(), X[OWN[N_RECENT - 1]].astype(np.float32)
    assert not any(row.tobytes() in content for row in window[:, :4])


def test_no_label_is_requested_if_labels_did_not_help_held_out_subjects() -> None:
    model = with_card(KINDS["mixture"]().model_, calibrates_with=[])
    session = at.Session(model)
    session.predict_proba(torch.from_numpy(X[OWN]))
    assert session.expected_gain(X[OWN[-1]]) == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.label(X[FEW], Y[FEW])
    np.testing.assert_allclose(session.predict_proba(X[REST]), model.predict_proba(X[REST]), atol=1e-5)
