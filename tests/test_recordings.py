"""Recordings are valid or refused in one line."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import Recordings
from autotransfer.recordings.signal import Signal
from autotransfer.recordings.windows import validate_windows

N, C, T = 12, 3, 10
SUBJECT = np.repeat(["a", "b", "c"], 4)
Y = np.tile([0, 1], 6)


def noise(n: int = N, c: int = C, t: int = T, dtype: str = "float32") -> np.ndarray:
    return (100 * np.random.default_rng(0).standard_normal((n, c, t))).astype(dtype)


def make(**changes: object) -> Recordings:
    return Recordings(**{"X": noise(), "y": Y, "subject": SUBJECT, **changes})


def assert_valid(rec: Recordings) -> None:
    """What the rest of the project relies on."""
    assert rec.X.dtype == torch.float32
    assert rec.X.shape == (rec.n_windows, rec.n_channels, rec.n_times)
    assert min(rec.X.shape) >= 1
    assert rec.n_times >= 8
    assert torch.isfinite(rec.X).all()
    flat = rec.X.transpose(0, 1).flatten(1)
    assert (flat.amin(1) < flat.amax(1)).all()
    for codes, labels, least in ((rec.y, rec.classes, 2), (rec.subject, rec.subjects, 3)):
        assert codes.dtype == torch.int64
        assert codes.shape == (rec.n_windows,)
        assert codes.unique().tolist() == list(range(len(labels)))
        assert len(set(labels)) == len(labels) >= least
        assert not any(isinstance(label, np.generic) for label in labels)
    if rec.session is not None:
        assert rec.session.dtype == torch.int64
        assert rec.session.shape == (rec.n_windows,)
    assert rec.sfreq is None or (isinstance(rec.sfreq, float) and 0 < rec.sfreq < float("inf"))
    assert len(set(rec.channels)) == len(rec.channels) == rec.n_channels
    assert all(isinstance(name, str) for name in rec.channels)


def test_plain_case() -> None:
    rec = make(sfreq=np.int64(5), session=[7] * N, name="study")
    assert_valid(rec)
    np.testing.assert_array_equal(rec.X.numpy(), noise())
    assert rec.y.tolist() == Y.tolist()
    assert rec.subject.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert rec.subjects == ("a", "b", "c")
    assert rec.session.tolist() == [7] * N
    assert rec.channels == ("ch0", "ch1", "ch2")
    assert (
        repr(rec) == "<Recordings 'study': 3 subjects, 12 windows of 3 channels × 10 samples (2 s at 5 Hz); "
        "classes: 0, 1; 1 session>"
    )


def test_is_frozen_copied_and_pickled() -> None:
    rec = make(sfreq=5)
    with pytest.raises(FrozenInstanceError):
        rec.y = rec.subject  # type: ignore[misc]
    for other in (copy.deepcopy(rec), pickle.loads(pickle.dumps(rec)), replace(rec)):
        assert torch.equal(other.X, rec.X)
        assert (other.classes, other.subjects, other.sfreq) == (rec.classes, rec.subjects, rec.sfreq)


# --- labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["b", "a", "c"], ("a", "b", "c")),
        ([10, 9, -1], (-1, 9, 10)),
        (["b", 1, 2.5], ("b", 1, 2.5)),  # cannot be sorted: as they appear
        (np.array([b"b", b"a", b"c"]), ("a", "b", "c")),
        (np.array([3, 1, 2], dtype=np.uint8), (1, 2, 3)),
        (pd.Series(["q", "p", "r"], index=[5, 6, 7]), ("p", "q", "r")),
        (pd.Series(["q", "p", "r"], dtype="category"), ("p", "q", "r")),
        (torch.tensor([3, 1, 2]), (1, 2, 3)),
        ([np.int64(3), torch.tensor(1), np.str_("2")], (3, 1, "2")),
    ],
)
def test_labels_become_sorted_integers_and_come_back(labels: object, expected: tuple[object, ...]) -> None:
    rows = np.tile([0, 1, 2], 4)
    if isinstance(labels, pd.Series):
        values: object = pd.concat([labels] * 4)
    elif isinstance(labels, torch.Tensor):
        values = labels[torch.from_numpy(rows)]
    else:
        values = labels[rows] if isinstance(labels, np.ndarray) else [labels[k] for k in rows]
    rec = make(subject=values)
    assert rec.subjects == expected
    assert [type(label) for label in rec.subjects] == [type(label) for label in expected]
    plain = [value.decode() if isinstance(value, bytes) else value for value in values]
    assert [rec.subjects[k] for k in rec.subject] == [getattr(value, "item", lambda v=value: v)() for value in plain]


def test_names_label_integers_and_unused_names_are_left_out() -> None:
    rec = make(y=Y * 2, classes=["rest", "left", "right"], subjects=["z", "y", "x"], subject=np.repeat([2, 1, 0], 4))
    assert rec.classes == ("rest", "right")
    assert rec.y.tolist() == Y.tolist()
    assert rec.subjects == ("z", "y", "x")
    assert rec.subject.tolist() == [2] * 4 + [1] * 4 + [0] * 4
    assert make(y=Y.astype(float), classes=["rest", "left"]).classes == ("rest", "left")
    assert make(classes=[0, 1]).classes == (0, 1)
    assert make(classes=[5, 1]).classes == (5, 1), "0 is no name, so both count"
    assert make(y=Y + 4, classes=[5, 4]).classes == (5, 4), "5 counts into nothing, so both are names"


def test_names_give_the_order_of_labels_that_are_names() -> None:
    rec = make(y=np.where(Y == 1, "left", "right"), classes=["right", "unused", "left"])
    assert rec.classes == ("right", "left")
    assert rec.y.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"y": Y + 1, "classes": ["a", "b"]}, r"y holds 2, which is neither one of the 2 names"),
        (
            {"y": Y + 1, "classes": [1, 2, 3]},
            r"y holds 1, which is one of the names .* index of 2",
        ),
        ({"classes": [1, 0]}, r"y holds 0, which is one of the names .* index of 1; give names that are text"),
        ({"classes": ["a", "a"]}, r"names for y hold 'a' twice"),
        ({"y": [None, float("nan")] * 6}, r"no window has a label"),
        ({"subject": ["a", "b", np.nan] * 4}, r"subject\[2\] is nan"),
        ({"y": Y[:, None]}, r"y has the shape \(12, 1\)"),
        ({"y": Y[:-1]}, r"y has 11 entries but X has 12 windows"),
        ({"subject": ["a"] * 12}, r"there is 1 subject \('a'\); .*at least 3"),
        ({"subject": ["a", "b"] * 6}, r"there are 2 subjects \('a', 'b'\); .*at least 3"),
        ({"y": ["left"] * N}, r"every window is of the class 'left'; at least 2"),
        ({"channels": ["x", "y"]}, r"channels holds 2 names but X has 3"),
        ({"channels": ["x", "y", "x"]}, r"channels hold 'x' twice"),
        ({"sfreq": 0}, r"sfreq is 0; it must be a positive"),
        ({"sfreq": "fast"}, r"sfreq is 'fast'"),
        ({"sfreq": 10**400}, r"sfreq is 1000"),
        ({"name": 3}, r"name is 3"),
    ],
)
def test_wrong_labels_and_names_are_refused_in_one_line(changes: dict[str, object], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("missing", [float("nan"), None, pd.NA, pd.NaT, Decimal("nan"), "", "  "], ids=repr)
def test_windows_without_a_label_are_left_out_with_a_warning(missing: object) -> None:
    y = [missing, *(["left", "right"] * 6)[1:]]
    columns = {"hand": list("abcdefghijkl"), "age": np.arange(N) + 0.5}
    with pytest.warns(UserWarning, match="1 of 12 windows have no label: they are left out of training"):
        rec = make(y=y, columns=columns, session=np.arange(N))
    assert rec.classes == ("left", "right")
    assert rec.X.shape[0] == N - 1
    assert rec.y.tolist() == [1, *[0, 1] * 5]
    assert rec.subject.tolist() == make().subject[1:].tolist()
    assert rec.session is not None
    assert rec.session.tolist() == list(range(1, N))
    assert rec.columns["hand"].labels == tuple("bcdefghijkl")
    assert rec.columns["age"].values.tolist() == [n + 0.5 for n in range(1, N)]


def test_minus_one_is_a_missing_label_if_labels_are_indices() -> None:
    y = np.array([-1, *Y[1:]])
    with pytest.warns(UserWarning, match="1 of 12 windows"):
        assert make(y=y, classes=["a", "b"]).classes == ("a", "b")
    assert make(y=y).classes == (-1, 0, 1)
    assert make(y=np.where(Y == 1, 1, -1)).classes == (-1, 1)


def test_sessions_that_are_not_integers_are_numbered() -> None:
    assert make(session=["day 2", "day 1"] * 6).session.tolist() == [1, 0] * 6
    assert make(session=np.array([9, -3] * 6)).session.tolist() == [9, -3] * 6
    assert make(session=[2**70, 0] * 6).session.tolist() == [1, 0] * 6


# --- X -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64", ">f4", ">i2", "longdouble"])
def test_any_numeric_array_becomes_float32(dtype: str) -> None:
    X = noise(dtype="int8").astype(dtype)
    rec = make(X=X)
    assert_valid(rec)
    np.testing.assert_array_equal(rec.X.numpy(), X.astype("float32"))


def test_a_mapped_file_stays_mapped_without_a_warning(tmp_path: object) -> None:
    path = f"{tmp_path}/X.dat"
    noise().tofile(path)
    X = np.memmap(path, dtype="float32", mode="r", shape=(N, C, T))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rec = make(X=X)
    assert rec.X.data_ptr() == X.ctypes.data
    np.testing.assert_array_equal(rec.X.numpy(), noise())


def bad(value: float, *places: tuple[int, int, int], dtype: str = "float32") -> np.ndarray:
    X = noise(dtype=dtype)
    for place in places:
        X[place] = value
    return X


def with_dead_channel(value: float) -> np.ndarray:
    X = noise()
    X[:, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (noise()[0], r"shape \(3, 10\)\. Reshape your data to"),
        (noise()[:0], r"\(0, 3, 10\); none of the axes"),
        (noise()[..., :7], r"\(12, 3, 7\); .* at least 8 samples"),
        (noise().astype(complex), r"complex128 values \(Complex data not supported\); give real numbers"),
        (noise().astype(str), r"values; give real numbers"),
        (torch.tensor(noise()).to(torch.complex64), r"X holds complex64 values"),
        (torch.tensor(noise()).to_sparse(), r"give a dense tensor"),
        ([[[1.0, 2.0], [1.0]]], r"X is not an array of numbers"),
        (np.ma.masked_less(noise(), -150), r"X masks \d+ values"),
        (bad(np.nan, (4, 1, 0), (4, 2, 0), (9, 0, 9)), r"NaN .* 2 of 12 .* window 4, channel 'ch1'"),
        (bad(np.inf, (0, 0, 0)), r"NaN or infinite values in 1 of 12 windows, first in window 0, channel 'ch0"),
        (bad(1e39, (5, 2, 1), dtype="float64"), r"beyond ±1e\+15 in 1 of 12 .* window 5, channel 'ch2'"),
        (noise().astype(float) * 1e-22, r"no channel of X varies by more than .*; give another unit"),
        (with_dead_channel(0.1), r"channel 'ch1' is 0.1 in all windows; leave it out"),
    ],
)  # fmt: skip
def test_wrong_X_is_refused_in_one_line(X: object, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match=text) as caught:
            make(X=X)
    assert "\n" not in str(caught.value)


def test_a_channel_may_be_constant_within_a_window() -> None:
    X = noise()
    X[3, 1] = 0.1
    assert_valid(make(X=X))


def test_windows_to_predict_need_no_subjects() -> None:
    class Card:
        signal, n_times = Signal(channels=("a", "b", "c")), noise().shape[2]

    assert validate_windows(noise(dtype="float64")[:1], Card())[0].dtype == torch.float32
    validate_windows(with_dead_channel(1.0), Card())
    with pytest.raises(UserError, match="NaN"):
        validate_windows(bad(np.nan, (0, 0, 0)), Card())


# --- nothing else ever comes out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "classes", [np.array(["2020-01-01", "2021-01-01"], "M8[D]"), np.array([1, 2], np.longdouble), [("a", 1), ("a", 2)]]
)
def test_classes_that_are_no_numbers_or_text_are_refused(classes: list[object]) -> None:
    X, y, who = np.ones((12, 2, 8)), [classes[k % 2] for k in range(12)], np.repeat(np.arange(3), 4)
    with pytest.raises(UserError, match="give them a number or text"):
        at.Recordings(X, y, who)


@pytest.mark.parametrize("labels", [("1", 1), ("a", ""), ("a", float("nan"))])
def test_labels_that_files_cannot_tell_apart_are_refused(labels: tuple[object, object]) -> None:
    made = at.synthetic(4)
    names = (*labels, "c", "d")
    subject = [names[index] for index in made.subject.tolist()]
    with pytest.raises(UserError, match="subject"):
        at.Recordings(made.X, made.y, subject)
    with pytest.raises(UserError, match="the names for y"):
        at.Recordings(made.X, made.y, made.subject, classes=labels)
