"""Channels of new data are found by name: in another order, among others, in other spellings, or not at all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from autotransfer.errors import UserError
from autotransfer.recordings.windows import channel_places, windows_for_model

NAMED = SimpleNamespace(channels=["Fc5", "Cz", "FC6"], n_times=8, sfreq=100.0)
UNNAMED = SimpleNamespace(channels=["ch0", "ch1"], n_times=8, sfreq=None)
X = np.random.default_rng(0).standard_normal((4, 5, 8)).astype(np.float32)


def test_any_order_and_more_channels() -> None:
    found = windows_for_model(X, NAMED, ["EOG", "Fc6.", "fc5", "ECG", "Cz."])
    np.testing.assert_array_equal(found, X[:, [2, 4, 1]])
    np.testing.assert_array_equal(windows_for_model(X[:, :3], NAMED, ["Fc5", "Cz", "FC6"]), X[:, :3])


def test_names_that_leave_doubt_must_be_equal() -> None:
    assert channel_places(["c-z", "cz", "Fc5"], ["Fc5", "cz"]) == ([2, 1], [])
    assert channel_places(["c-z", "C.z"], ["Cz"]) == ([], ["Cz"])
    assert channel_places(["+", "-"], ["-", "+"]) == ([1, 0], [])


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="the data have no channel 'Cz', which the model reads, but Fc5, Pz, FC6"):
        windows_for_model(X[:, :3], NAMED, ["Fc5", "Pz", "FC6"])
    with pytest.raises(UserError, match="takes 3 channels, the data have 2"):
        windows_for_model(X[:, :2], NAMED, ["Fc5", "FC6"])


def test_channels_without_names_are_all_there() -> None:
    with pytest.raises(UserError, match="takes 2 channels, the data have 5"):
        windows_for_model(X, UNNAMED, [f"ch{n}" for n in range(5)])
