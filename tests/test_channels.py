"""Channels of new data are matched by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings.signal import Signal, find_channels
from autotransfer.recordings.windows import validate_windows

NAMED = SimpleNamespace(signal=Signal(channels=("Fc5", "Cz", "FC6"), sfreq=100.0), n_times=8)
UNNAMED = SimpleNamespace(signal=Signal(channels=("ch0", "ch1")), n_times=8)
X = np.random.default_rng(0).standard_normal((4, 5, 8)).astype(np.float32)


def validated(windows: Any, expected: Any, *channels: str) -> Any:
    return validate_windows(windows, expected, Signal(channels=channels))[0]


def test_any_order_and_more_channels() -> None:
    found = validated(X, NAMED, "EOG", "Fc6.", "fc5", "ECG", "Cz.")
    np.testing.assert_array_equal(found, X[:, [2, 4, 1]])
    np.testing.assert_array_equal(validated(X[:, :3], NAMED, "Fc5", "Cz", "FC6"), X[:, :3])


def test_names_that_leave_doubt_must_be_equal() -> None:
    assert find_channels(["c-z", "cz", "Fc5"], ["Fc5", "cz"]) == ([2, 1], [])
    assert find_channels(["c-z", "C.z"], ["Cz"]) == ([], ["Cz"])
    assert find_channels(["+", "-"], ["-", "+"]) == ([1, 0], [])


@pytest.mark.parametrize(("name", "other"), [("R1_11", "R11_1"), ("1 23", "12 3"), ("A'1", "A1"), ("1.5", "15")])
def test_separators_between_numbers_belong_to_the_name(name: str, other: str) -> None:
    assert find_channels([name], [other]) == ([], [other])
    assert find_channels([name.lower()], [name.replace(" ", "_")]) == ([0], [])


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="the model needs the channel 'Cz', and the data have Fc5, Pz, FC6"):
        validated(X[:, :3], NAMED, "Fc5", "Pz", "FC6")
    with pytest.raises(UserError, match="needs the channel 'Cz'"):
        validated(X[:, :2], NAMED, "Fc5", "FC6")


def test_channels_without_names_are_all_there() -> None:
    with pytest.raises(UserError, match="takes 2 channels, the data have 5"):
        validated(X, UNNAMED, *(f"ch{n}" for n in range(5)))


NAMES = ("F3", "Fz", "F4", "Oz")


@pytest.fixture(scope="module")
def model() -> Any:
    draw = np.random.default_rng(0)
    y = np.tile([0, 1], 36)
    signals = draw.standard_normal((72, 4, 40))
    signals[:, 0] *= np.where(y, 3.0, 1.0)[:, None]
    recordings = at.Recordings(
        signals.astype(np.float32), y, np.repeat(np.arange(3), 24), sfreq=40.0, channels=NAMES, name="study"
    )
    setting = at.Setting(encoder="linear", represent="tangent", standardize="none")
    return at.train(recordings, [at.Job(setting, at.leave_one_subject_out(recordings)[0], 0)])[0].model()


WINDOWS = np.random.default_rng(1).standard_normal((12, 4, 40)).astype(np.float32)


def test_models_and_sessions_find_channels_by_name_and_refuse_a_missing_one(model: Any) -> None:
    expected = model.predict_proba(WINDOWS)
    more = np.concatenate([WINDOWS[:, ::-1], np.full_like(WINDOWS[:, :1], np.nan)], 1)
    names = [*NAMES[::-1], "EOG"]
    np.testing.assert_array_equal(model.predict_proba(more, channels=names), expected)
    session = at.Session(model, channels=names)
    np.testing.assert_allclose([session.predict_proba(window) for window in more[:5]], expected[:5], atol=1e-6)
    np.testing.assert_allclose(session.predict_proba(more[5:]), expected[5:], atol=1e-6)
    with pytest.raises(UserError, match="5 names"):
        session.predict_proba(WINDOWS[0])
    with pytest.raises(UserError):
        session.predict_proba(np.full((5, 40), np.nan, np.float32))
    for channels in (["F3", "Fz", "Oz"], ["F3", "Fz", "left", "Oz"]):
        with pytest.raises(UserError, match="needs the channel 'F4'"):
            model.predict_proba(WINDOWS[:, : len(channels)], channels=channels)
        with pytest.raises(UserError, match="needs the channel 'F4'"):
            at.Session(model, channels=channels).predict_proba(WINDOWS[0, : len(channels)])
