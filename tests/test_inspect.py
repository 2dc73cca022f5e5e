"""Concerns about recordings are reported before any work, and good recordings raise none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import Raw, save_npz
from autotransfer.recordings import concerns as wrong
from autotransfer.recordings.copies import find_near_copies
from autotransfer.recordings.overview import summarize
from faults import call
from real_data import NAMES, QUICK, real_file
from tiny import tiny

PEOPLE, PER = 6, 24


def raw(**changes: Any) -> Raw:
    """Six subjects with twelve windows of two classes each, in two sessions, in which both occur."""
    draw = np.random.default_rng(0)
    n = PEOPLE * PER
    parts: dict[str, Any] = {
        "X": draw.standard_normal((n, 3, 32)), "y": np.tile([0, 1], n // 2),
        "subject": np.repeat(np.arange(PEOPLE), PER),
        "session": np.tile(np.repeat([1, 2], PER // 2), PEOPLE), "classes": ("rest", "move"), "sfreq": 32,
        "channels": ("a", "b", "c"), "name": "study",
    }  # fmt: skip
    return Raw(**parts | changes)


def concerns(raw: Raw) -> list[str]:
    return wrong.find_concerns(wrong.Study.from_raw(raw))


def said(text: str, **changes: Any) -> str:
    """The one concern about recordings with these changes."""
    found = [line.removeprefix("! ") for line in summarize(raw(**changes)) if line.startswith("! ")]
    assert len(found) == 1, found
    assert re.search(text, found[0]), found[0]
    assert "\n" not in found[0]
    return found[0]


def test_good_recordings_raise_no_concern() -> None:
    assert concerns(raw()) == []
    assert concerns(raw(y=None)) == []
    assert concerns(raw(subject=None, y=None, session=None)) == []
    assert concerns(tiny().raw()) == []
    uneven = np.random.default_rng(1).permutation(np.repeat([0, 1], [100, 44]))
    assert concerns(raw(y=uneven)) == [], "by chance people differ a little"


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in NAMES])
def test_real_recordings_raise_no_concern(name: str) -> None:
    assert concerns(at.load(real_file(name)).raw()) == []


def test_classes_predicted_by_subjects() -> None:
    mostly = np.where(np.arange(PEOPLE * PER) % PER < 20, raw().subject // 3, 1 - raw().subject // 3)  # type: ignore[operator]
    said(r"the subject of a window tells its class \(18% of the mutual information", y=mostly, session=None)


def test_classes_predicted_by_sessions() -> None:
    said(r"the session of a window tells its class \(100% of the mutual", y=np.asarray(raw().session) - 1)
    hours = np.arange(PEOPLE * PER) // 2  # of two windows each, one of either class
    assert concerns(raw(session=hours)) == []
    one = np.zeros(PEOPLE * PER, int)
    assert not any("tells its class" in line for line in concerns(raw(y=one, session=one)))
    assert not any("tells its class" in line for line in concerns(raw(y=one, subject=one, session=None)))
    few = np.random.default_rng(0).permutation(hours)
    assert concerns(raw(session=few)) == [], "sessions of two trials tell much by chance"


def test_a_class_that_training_subjects_lack() -> None:
    y = np.asarray(raw().y).copy()
    y[[0, 5, 30]] = 2
    said("'odd'.*at most 2 of 6 subjects .*0, 1", y=y, classes=("rest", "move", "odd"))
    y[:80] = np.arange(2, 82)
    (line,) = [line for line in concerns(raw(y=y, classes=None)) if "rare" in line]
    assert "80 rare classes" in line


def test_subjects_with_one_class() -> None:
    y = np.asarray(raw().y).copy()
    y[:PER] = 0
    said(r"1 of 6 subjects have windows of only one class \(0\), .* cannot be scored", y=y)


def test_a_subject_per_window(tmp_path: Path) -> None:
    source = tmp_path / "own.npz"
    np.savez(source, X=raw().X, y=raw().y, subject=np.arange(PEOPLE * PER), meta='{"sfreq": 32}')
    result = call("run", source, "--out", tmp_path / "run")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "windows has a different subject" in result.err
    assert not (tmp_path / "run").exists()


def test_channels_that_are_last() -> None:
    X = np.random.default_rng(0).standard_normal((PEOPLE * PER, 32, 8))
    said(r"X has 32 channels of 8 samples.*X\.transpose\(0, 2, 1\)", X=X, channels=None)
    named = [f"E{n}" for n in range(32)]
    assert "nothing looks wrong" in shown(raw(X=X, channels=named)), "whoever names 32 channels has them"


@pytest.mark.parametrize(
    ("factor", "told"), [(1e6, "1,000,000"), (1e-6, "1,000,000"), (1e3, "1,000"), (1 / 0.005, "200")]
)
def test_units_that_differ_between_subjects(factor: float, told: str) -> None:
    X = np.asarray(raw().X).copy()
    X[2 * PER : 3 * PER] *= factor
    said(f"the windows of 2 vary by .*a factor of about {told}: .*same unit", X=X)
    assert concerns(raw(X=np.asarray(raw().X) * factor)) == [], "any unit is right if it is everybody's"


def test_channels_that_never_change_and_lost_values() -> None:
    X = np.asarray(raw().X).copy()
    X[:PER, 1] = 5
    said("channel 'b' of 0 is constant in 100% of the windows", X=X)
    X[:, 1] = 5
    said("channel 'b' of 0 .the worst of 6 in 6 subjects. is constant in 100%", X=X)
    X = np.asarray(raw().X).copy()
    X[7, 2, 3] = np.nan
    said(r"NaN or infinite values in 1 of 144 windows \(c\)", X=X)


def test_a_rate_that_is_unknown(tmp_path: Path) -> None:
    said("the sampling rate is unknown, .*--sfreq", sfreq=None)
    np.savez(tmp_path / "x.npz", X=raw().X, y=raw().y, subject=raw().subject)
    with pytest.warns(UserWarning, match="the sampling rate is unknown"):
        at.load(tmp_path / "x.npz")
    rec = at.load(tmp_path / "x.npz", sfreq=32)
    assert rec.sfreq == 32
    save_npz(tmp_path / "y.npz", rec)
    assert at.load(tmp_path / "y.npz", sfreq=32).sfreq == 32
    with pytest.raises(at.UserError, match="is sampled at 32 Hz, not at 50 Hz; leave sfreq out"):
        at.load(tmp_path / "y.npz", sfreq=50)
    with pytest.raises(at.UserError, match="cut already; leave out window"):
        at.load(tmp_path / "y.npz", sfreq=32, window=1)


def test_missing_labels() -> None:
    y = np.asarray(raw().y).copy()
    y[:7] = -1
    said("7 of 144 windows have no label: they are left out of training", y=y)
    words = np.where(y == -1, "", np.where(y == 0, "rest", "move"))
    said("7 of 144 windows", y=words, classes=None)
    assert "137 of 32 samples" in shown(raw(y=words, classes=None))


# --- artefacts -------------------------------------------------------------------------------------------------------


def test_channels_that_are_flat() -> None:
    assert concerns(raw(X=np.round(4 * np.asarray(raw().X)))) == [], "few levels are no isolated values"
    X = np.asarray(raw().X).copy()
    X[: 2 * PER // 3, 1] = 5
    said("channel 'b' of 0 is constant in 67% of the windows", X=X)
    X[:, 1] = np.arange(PEOPLE * PER)[:, None]  # as a battery: another value in every window
    said("channel 'b' of 0 .the worst of 6 in 6 subjects. is constant in 100%", X=X)


@pytest.mark.parametrize("value", [-9999.0, 32767.0])
def test_values_that_mark_lost_samples(value: float) -> None:
    X = np.asarray(raw().X).copy()
    X[3, 1, :4] = value
    said(f"channel 'b' of 0 is {value:g} in 0.52% of the samples, far from all other values; .*NaN", X=X)
    X[3, 1] = value  # a whole window
    said(f"is {value:g} in", X=X)
    X[2, 1, 0] = np.nan
    assert any("far from all other values" in line for line in concerns(raw(X=X)))
    X = np.asarray(raw().X).copy()
    X[3, 1, :4] = 300 * np.arange(4)
    assert not any("far from all other values" in line for line in concerns(raw(X=X))), "no artefact repeats a value"


@pytest.mark.parametrize(
    ("names", "similar"),
    [
        (["s1", "s1\u200b", "s2"], True), (["s-1", "S1", "b"], True), (["left hand", "left_Hand", "b"], True),
        (["sub-01", "sub01", "b"], True), (["1-1", "11", "1"], False), (["-1", "1", "0"], False), ([-1, 1, 0], False),
        (["x1-2", "x12", "x1"], False),
    ],
)  # fmt: skip
def test_names_that_hardly_differ(names: list[Any], similar: bool) -> None:
    subject = np.array(names, object)[np.arange(PEOPLE * PER) % 3]
    for values in ({"subject": subject, "session": None}, {"y": subject, "classes": None}):
        lines = [line for line in concerns(raw(**values)) if "differ only" in line]
        assert len(lines) == similar, lines
        assert all(line.isprintable() for line in lines)


# --- copies ----------------------------------------------------------------------------------------------------------


def test_one_recording_under_two_names() -> None:
    X = np.asarray(raw().X).copy()
    X[PER : 2 * PER] = X[:PER]
    said("0 and 1 are one recording: they share 100% of the windows", X=X)
    X = np.asarray(raw().X).copy()
    X[PER + 3] = X[2]
    said("0 and 1 share 1 window; find out", X=X)
    X = np.asarray(raw().X).copy()
    X[::5] = 0
    assert concerns(raw(X=X)) == [], "what rests is nobody's copy"


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.round(x, 3),
        lambda x: x.astype(np.float16),
        lambda x: -x,
        lambda x: x[:, [2, 0, 1]],
        lambda x: 7 * x + 2,
        lambda x: x[::-1],
    ],
    ids=["rounded", "float16", "inverted", "permuted", "scaled", "reordered"],
)
def test_one_recording_in_another_form(change: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((PEOPLE, 3, 3))
    X = np.einsum("pcd,pndt->pnct", mixing, rng.standard_normal((PEOPLE, PER, 3, 32)))
    X[3] = change(X[1])
    told = concerns(raw(X=X.reshape(-1, 3, 32)))
    (line,) = (line for line in told if "one recording" in line)
    assert line.startswith("1 and 3 are")


def test_average_reference_is_found_with_enough_channels() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((PEOPLE * PER, 16, 32))
    X[:PER] = X[PER : 2 * PER] - X[PER : 2 * PER].mean(1, keepdims=True)
    assert find_near_copies(X, np.repeat(np.arange(PEOPLE), PER)) == [(0, 1)]


# --- cleaning --------------------------------------------------------------------------------------------------------


def test_clean_leaves_out_broken_windows_and_subjects(tmp_path: Path) -> None:
    from autotransfer.recordings.cleaning import clean

    same, lines = clean(raw())
    assert lines == []
    np.testing.assert_array_equal(same.X, raw().X)
    X = np.asarray(raw().X).copy()
    X[0, 1, 4] = np.nan
    X[1] = 7
    X[PER : 2 * PER, 2] = 5  # a dead channel of one subject
    left, lines = clean(raw(X=X, channels=None))
    assert lines == [
        "left out: 2 of 144 windows with lost values, or in which every channel is constant",
        "left out: 1 of 6 subjects with a dead channel ('1')",
    ]
    assert left.X.shape == (144 - 2 - PER, 3, 32)
    assert set(left.subject) == {0, 2, 3, 4, 5}  # type: ignore[call-overload]
    np.testing.assert_array_equal(left.X, X[np.r_[2:PER, 2 * PER : 6 * PER]])
    X = np.asarray(raw().X).copy()
    X[: 2 * PER, 1] = 0
    left, lines = clean(raw(X=X))
    assert (left.channels, lines) == (("a", "c"), ["left out: channels b, dead in 2 of 6 subjects"])
    np.savez(tmp_path / "x.npz", X=X, y=raw().y, subject=raw().subject, meta='{"sfreq": 32}')
    with pytest.warns(UserWarning, match="left out: channels ch1, dead in 2 of 6 subjects"):
        result = call("run", tmp_path / "x.npz", "--dry-run", "--clean")
    assert result.code == 0, result.err
    assert "144 windows of 2 channels" in result.out


# --- what inspect shows ----------------------------------------------------------------------------------------------


def shown(raw: Raw) -> str:
    return "\n".join(summarize(raw))


def test_the_overview_counts() -> None:
    text = shown(raw(subjects=("ann", "bob", "cy", "dee", "eve", "a\u202eb")))
    for part in ("144 of 32 samples (1 s at 32 Hz)", "a, b, c", "rest 72, move 72", "2 per subject", "nothing looks"):
        assert part in text
    assert re.search(r"ann +12 +12\n", text)
    alike = np.tile(np.repeat([-1, -2], PER // 2), PEOPLE)  # numbers of one hash
    assert "2 per subject" in shown(raw(session=alike))
    assert "\u202e" not in shown(raw(channels=("a\u202eb", "b", "c"))), "names of channels control no terminal"


def test_measurements_are_no_classes() -> None:
    text = shown(raw(y=np.random.default_rng(0).standard_normal(PEOPLE * PER), classes=None))
    assert "classes        unknown" in text
    assert text.count("! ") == text.count("--target continuous") == 1
    assert "0.5 72, 1.5 72" in shown(raw(y=np.tile([0.5, 1.5], PEOPLE * PER // 2), classes=None))
