"""Windows unlike those of training are reported before prediction."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.folds import Fold
from autotransfer.recordings import Raw
from autotransfer.recordings.concerns import compare_with_training
from autotransfer.recordings.signal import find_channels

X = np.random.default_rng(0).normal(size=(9, 2, 50))
SETTING = at.Setting(encoder="linear", represent="features")
WHO = np.repeat(["ann", "bob", "cleo"], 3)
NAMES = ["C3", "C4"]


def test_windows_like_those_of_training_raise_no_warning() -> None:
    assert compare_with_training(X, NAMES, 1.0, WHO) == []
    assert compare_with_training(20 * X, NAMES, 1.0, WHO) == []
    assert compare_with_training(1e-6 * X, NAMES, None, WHO) == [], "nobody knows their unit"


def test_another_unit_is_reported_with_its_subject() -> None:
    (everybody,) = compare_with_training(1e-6 * X, NAMES, 1.0, WHO)
    assert everybody.startswith("the windows vary by 1e-06, the training windows by 1, a factor of about 1,")
    mixed = X.copy()
    mixed[3:6] *= 1e3
    (one,) = compare_with_training(mixed, NAMES, 1.0, WHO)
    assert one.startswith("the windows of 'bob' vary by ")
    mixed[6:] *= 1e3
    assert compare_with_training(mixed, NAMES, 1.0, WHO)[0].startswith("the windows of 'bob' and 1 more vary by ")


def test_constant_channels_are_reported() -> None:
    dead = X.copy()
    dead[:, 1] = 3.0
    assert compare_with_training(dead, NAMES, 1.0) == ["constant in these windows: C4; check the electrodes"]
    assert compare_with_training(0 * X, NAMES, 1.0) == [
        "every channel is constant in these windows: is the device connected?"
    ]


@pytest.mark.parametrize("other", ["a1", "A 1", "A_1", "A1.", "A1.."])
def test_spellings_of_one_name_are_one(other: str) -> None:
    assert find_channels([other], ["A1"]) == ([0], [])


def test_a_session_warns_once_of_its_first_windows(recwarn: pytest.WarningsRecorder) -> None:
    rec = at.synthetic(n_subjects=4, windows_per_class=6, n_channels=3, n_times=32)
    fitted = at.CensoredClassifier(encoder="linear", method="none", device="cpu")
    session = at.Session(fitted.fit(rec.X.numpy(), rec.y.numpy(), subjects=rec.subject.numpy()))
    windows = rec.X.numpy()[:12]
    for window in windows[:9]:
        session.predict_proba(1e-6 * window)
    assert not [one for one in recwarn if "unit" in str(one.message)], "a few windows may be a pause"
    for window in windows:
        session.predict_proba(1e-6 * window)
    assert len([one for one in recwarn if "a factor of about 1,000,000" in str(one.message)]) == 1
    session.reset()
    recwarn.clear()
    session.predict_proba(windows)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="is the device connected"):
        at.Session(fitted).predict_proba(0 * windows)


def test_missing_metadata_is_reported(recwarn: pytest.WarningsRecorder) -> None:
    rec = at.synthetic(n_subjects=4, windows_per_class=6, n_channels=3, n_times=32)
    named = at.Recordings(rec.X, rec.y, rec.subject, channels=["C3", "Cz", "C4"], sfreq=64)
    (outcome,) = at.train(named, [at.Job(SETTING, Fold(np.arange(len(rec.y))), 0)], "cpu", progress=False)
    model = outcome.model()
    model.read(Raw(X=rec.X.numpy(), channels=["C4", "Cz", "C3"], sfreq=64.0, name="told"))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="do not name channels; they are assumed to be C3, Cz, C4"):
        model.read(Raw(X=rec.X.numpy(), sfreq=64.0, name="unnamed"))
    with pytest.warns(UserWarning, match="have no sampling rate; the model expects 64 Hz"):
        model.read(Raw(X=rec.X.numpy(), channels=["C3", "Cz", "C4"], name="no rate"))
