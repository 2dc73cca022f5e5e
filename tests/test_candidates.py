"""Candidates of a run use no more of a new subject than its adaptation allows."""

from __future__ import annotations

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.runs.options import resolve_options
from autotransfer.runs.preparation import Preparation
from autotransfer.search.candidates import (
    CONSTANTS,
    SHRINKAGES,
    SIGNAL_REPRESENTATIONS,
    find_candidates,
    find_representations,
    linear_candidates,
    network_candidates,
)
from tiny import described, tiny

USED = {"zero-shot": {"none"}, "online": {"none", "online"}, "transductive": {"none", "transductive"}}


def candidates(recordings: at.Recordings | None = None, **options: str) -> list[at.Setting]:
    made = find_candidates(Preparation(described(source="x", **options), recordings or tiny()))
    return made.networks + made.linear


@pytest.mark.parametrize("name", USED)
def test_candidates_use_no_more_of_a_subject_than_allowed(name: str) -> None:
    found = candidates(adaptation=name)
    assert {setting.adaptation for setting in found} == USED[name]
    assert found[0] == described(source="x").apply(at.Setting()), "the plain network comes first"
    assert len(set(found)) == len(found)
    general = {"features", "tangent", "tdar", "templates", "evoked"}
    assert {one.family for one in found} == {"eegnet", "shallow"} | general
    names = [described(source="x").name_of(setting) for setting in found]
    assert len(set(names)) == len(names), "names are keys in choice.json"


def test_a_custom_encoder_replaces_eegnet() -> None:
    found = candidates(adaptation="zero-shot", encoder="mine")
    assert {setting.encoder for setting in found} == {"mine", "shallow", "linear", "templates", "evoked"}
    assert all(setting.log_power is None for setting in found if setting.encoder == "mine")


@pytest.mark.parametrize(
    ("options", "encoders"),
    [
        ({"networks": "none"}, {"linear", "templates", "evoked", "trees", "boosting"}),
        ({"kinds": "linear"}, {"linear", "templates", "evoked"}),
        ({"kinds": "linear,statistics"}, {"linear", "templates"}),
        ({"kinds": "trees"}, {"trees", "boosting"}),
        ({"kinds": "networks"}, {"eegnet", "shallow"}),
        ({"encoder": "shallow", "kinds": "networks,linear"}, {"shallow", "linear", "templates", "evoked"}),
    ],
)
def test_families_that_were_not_asked_for_are_not_trained(options: dict[str, str], encoders: set[str]) -> None:
    wanted = signals("eeg", 30) if "trees" in encoders else tiny()  # trees need 17 samples
    made = find_candidates(Preparation(described(source="x", adaptation="zero-shot", **options), wanted))
    assert {setting.encoder for setting in made.settings} == encoders


@pytest.mark.parametrize(
    "options",
    [
        {"adaptation": "some"}, {"rule": "best"}, {"lrr": 1e-3}, {"adaptation": "online", "standardize": "train"},
        {"adaptation": "online", "align": "online"}, {"adaptation": "zero-shot", "search": "tpe"},
        {"adaptation": "zero-shot", "rule": "published"}, {"grid": "uncensored", "search": "tpe"},
        {"folds": 5, "grid": "paper"}, {"hold_out": "session", "rule": "published"},
        {"trials": 5, "adaptation": "zero-shot"}, {"kinds": "linear", "adaptation": "none"},
    ],
)  # fmt: skip
def test_contradictory_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(UserError):
        described(source="gestures", **options)


@pytest.mark.parametrize("preprocessing", ["zero-shot", "online", "transductive"])
def test_augmentations_are_candidates_for_their_signal_only(preprocessing: str) -> None:
    """And of no other."""
    plain = tiny()
    taken_up = {"EMG": "channel_mask 0.1", "C": "channel_mask 0.1", "ECG": "amplitude 0.5", "EDA": "mixup 0.5", "x": ""}
    for name, augmentation in taken_up.items():
        channels = [f"{name}{n}" for n in range(plain.n_channels)]
        own = at.Recordings(plain.X, plain.y, plain.subject, sfreq=200.0, channels=channels)
        options = resolve_options(described(source="tiny", adaptation=preprocessing), own)
        found = [one for one in network_candidates(options.settings(), own, preprocessing) if one.augmentation]
        assert len(found) == bool(augmentation)
        assert all(augmentation in options.name_of(one) for one in found)


def muscles(**more: object) -> at.Recordings:
    made = at.synthetic(n_subjects=3, n_channels=4, n_times=50)
    return at.Recordings(made.X, made.y, made.subject, sfreq=100.0, channels=[f"EMG{n}" for n in range(4)], **more)


@pytest.mark.parametrize("name", USED)
def test_representations_of_a_signal_are_added_to_general_ones(name: str) -> None:
    special = set(SIGNAL_REPRESENTATIONS["emg"])
    forms = linear_candidates(name, muscles())
    assert special < {setting.family for setting in forms}
    own = [setting for setting in forms if setting.family in special]
    assert {setting.center for setting in own} == {"none"} | ({name} - {"zero-shot"})
    assert len(own) == len(special) * len(SHRINKAGES) * len(USED[name])
    unknown = at.Recordings(muscles().X, muscles().y, muscles().subject, sfreq=100.0, channels=list("abcd"))
    others = {setting.family for setting in linear_candidates(name, unknown)}
    assert not special & others
    assert others <= {setting.family for setting in forms}, "a signal removes no candidate"


def test_unknown_signals_have_trees_and_all_general_features() -> None:
    X = np.random.default_rng(0).standard_normal((12, 2, 300)).astype(np.float32)
    unknown = at.Recordings(X, np.arange(12) % 2, np.arange(12) // 4, sfreq=100.0, channels=["x", "y"])
    made = find_candidates(Preparation(described(source="x", adaptation="zero-shot", networks="none"), unknown))
    assert {setting.encoder for setting in made.trees} == {"trees", "boosting"}
    assert {"features", "tangent", "combined", "tdar", "bands", "templates"} == {one.family for one in made.linear}


def test_model_families_are_named_by_signal_or_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def kinds(text: str, recordings: at.Recordings) -> list[str]:
        return [fields["represent"] for fields in find_representations(text, recordings)]

    assert kinds("emg", tiny()) == ["tdar", *SIGNAL_REPRESENTATIONS["emg"]]
    assert kinds("tdpsd, other,beats", muscles()) == ["combined", "tdar", "tdpsd", "beats"]
    assert kinds("emg,tangent", tiny()) == kinds("emg,emg", tiny()), "what any signal has is there already"
    named = {setting.family for setting in linear_candidates("zero-shot", muscles(), "ls9")}
    assert named == {"features", "tangent", "templates", "combined", "tdar", "ls9"}
    with pytest.raises(UserError, match=r"unknown kind 'emgs'; choose from 'linear', .*'emg', .*'tdpsd'"):
        kinds("emgs", tiny())

    class Reading(REPRESENTATIONS["features"]):  # type: ignore[name-defined,misc]
        required_fields = ("sfreq", "constants")
        min_samples = 50

    monkeypatch.setitem(REPRESENTATIONS, "reading", Reading)
    monkeypatch.setattr("autotransfer.search.candidates.REPRESENTATIONS_OF_ALL", ())
    assert find_representations("reading", muscles()) == [], "nobody knows its constants"
    monkeypatch.setitem(CONSTANTS, "reading", lambda recordings: (float(recordings.n_channels),))
    assert find_representations("reading", muscles()) == [{"represent": "reading", "sfreq": 100.0, "constants": (4.0,)}]
    assert find_representations("reading", tiny()) == [], "windows are too short"


def signals(kind: str, times: int, sfreq: float = 100.0, per: int = 4, classes: object = None) -> at.Recordings:
    names = {"eeg": ["Fz", "Cz", "Oz"], "ecg": ["I", "II", "V1"], "wearable": ["EDA", "BVP", "TEMP"]}[kind]
    X = np.random.default_rng(0).standard_normal((3 * per, 3, times)).astype(np.float32)
    y = np.arange(3 * per) % 2
    return at.Recordings(X, y, np.arange(3 * per) // per, sfreq=sfreq, channels=names, classes=classes)


def test_frequencies_are_those_of_the_stimuli_where_classes_are_named_after_them() -> None:
    def constants(recordings: at.Recordings) -> object:
        (found,) = (one for one in find_representations(None, recordings) if one["represent"] == "rhythms")
        return found["constants"]

    assert constants(signals("eeg", 300, classes=["13 Hz", "rest"])) == (13.0, 26.0, 39.0)
    assert constants(signals("eeg", 300, classes=["7.5hz", "12 Hz"])) == (7.5, 12.0, 15.0, 22.5, 24.0, 36.0)
    assert constants(signals("eeg", 300)) == tuple(range(6, 45))
    assert constants(signals("eeg", 200, sfreq=40.0)) == tuple(range(6, 18))


def test_window_length_decides_the_representations() -> None:
    long, short = (linear_candidates("transductive", signals("eeg", times)) for times in (300, 90))
    bands = {"bands", "fine_bands", "band_tangent", "rhythms"}
    general = {"features", "tangent", "templates", "combined", "tdar"}
    assert {one.family for one in long} == general | bands
    assert {one.family for one in short} == general | {"evoked"}
    assert {(one.standardize, one.align) for one in short if one.family == "evoked"} == {
        ("train", "none"), ("none", "transductive"),
    }  # fmt: skip
    named = linear_candidates("zero-shot", signals("eeg", 90), "bands")
    assert {one.family for one in named} == general | {"bands"}, "who names it has it"
    assert not bands & {one["represent"] for one in find_representations(None, signals("eeg", 30, sfreq=1.0))}, (
        "no such bands"
    )
