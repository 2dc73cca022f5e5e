"""What is known about a signal is compared in the same way at every entry point."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.models.model import Model
from autotransfer.models.saving import write_model
from autotransfer.recordings import Cutting, read, read_npz, save_npz
from autotransfer.recordings.filters import Filter, combine
from autotransfer.recordings.signal import Signal
from autotransfer.runs.data_facts import fingerprint
from faults import assert_one_line, call

BAND = Filter(5.0, 30.0)
SIGNAL = Signal(channels=("C3", "Cz", "C4"), sfreq=64.0, filter=BAND, unit="V", reference="average")
NOT_FILTERED = Filter()

REFUSED: dict[str, tuple[Signal, dict[str, Any], str]] = {
    "rate": (SIGNAL, {"sfreq": 64.2}, "sampled at 64.2 Hz, the model expects 64 Hz"),
    "filter": (SIGNAL, {"filter": Filter(5.0, 31.0)}, "filtered 5–31 Hz, .* filtered 5–30 Hz"),
    "notch": (SIGNAL, {"filter": Filter(5.0, 30.0, (25.0,))}, "notch 25 Hz"),
    "not filtered": (SIGNAL, {"filter": NOT_FILTERED}, "the data are not filtered"),
    "filtered": (replace(SIGNAL, filter=NOT_FILTERED), {"filter": BAND}, "signals that are not filtered"),
    "unit": (SIGNAL, {"unit": "µV"}, "unit of the data is 'µV', the model expects 'V'"),
    "reference": (SIGNAL, {"reference": "Cz"}, "reference of the data is 'Cz'"),
    "channel": (SIGNAL, {"channels": ("C3", "Cz", "Oz")}, "needs the channel 'C4'"),
    "channels": (SIGNAL, {"channels": ("ch0", "ch1")}, "takes 3 channels, the data have 2"),
}
WARNED: dict[str, tuple[Signal, dict[str, Any], str]] = {
    "no rate": (SIGNAL, {"sfreq": None}, "no sampling rate; the model expects 64 Hz"),
    "no filter": (SIGNAL, {"filter": None}, "filtered 5–30 Hz, and the filter of the data is unknown"),
    "model without": (replace(SIGNAL, filter=None), {"filter": BAND}, "filter of the training recordings is unknown"),
    "delay": (SIGNAL, {"filter": Filter(5.0, 30.0, is_causal=True)}, "training recordings were filtered by another"),
    "no names": (SIGNAL, {"channels": ("ch0", "ch1", "ch2")}, "data do not name channels; .* C3, Cz, C4"),
    "names": (replace(SIGNAL, channels=("ch0", "ch1", "ch2")), {"channels": SIGNAL.channels}, "model does not name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_known_properties_that_differ_are_refused(case: str) -> None:
    model, changes, text = REFUSED[case]
    with pytest.raises(UserError, match=text):
        model.check(replace(SIGNAL, **changes))


@pytest.mark.parametrize("case", WARNED)
def test_what_cannot_be_compared_is_said(case: str) -> None:
    model, changes, text = WARNED[case]
    (line,) = model.check(replace(SIGNAL, **changes)).warnings
    assert text.split(".*")[-1].strip() in line


def test_equal_or_unknown_properties_pass() -> None:
    spellings: dict[str, Any] = {"channels": ("c4", "C3.", "cz", "EOG"), "sfreq": 64.03}
    assert SIGNAL.check(replace(SIGNAL, **spellings)) == ([1, 2, 0], [])
    assert replace(SIGNAL, unit="µV").check(replace(SIGNAL, unit="uV")).warnings == []
    assert SIGNAL.check(replace(SIGNAL, unit=None, reference=None)).warnings == []
    with pytest.raises(UserError, match="--filter or in meta"):
        SIGNAL.check(replace(SIGNAL, filter=None), remedy="state it with --filter or in meta")


@pytest.fixture(scope="module")
def recordings() -> at.Recordings:
    made = at.synthetic(n_subjects=4, windows_per_class=8, n_channels=3, n_times=64)
    about = {"channels": SIGNAL.channels, "sfreq": 64.0, "unit": "V", "filter": BAND.to_dict()}
    return at.Recordings(1e-5 * made.X, made.y, made.subject, **about)


@pytest.fixture(scope="module")
def model(recordings: at.Recordings) -> Model:
    setting = at.Setting(encoder="linear", represent="tangent", standardize="none")
    job = at.Job(setting, at.leave_one_subject_out(recordings)[0], 0)
    return at.train(recordings, [job], "cpu", progress=False)[0].model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    model.save(path)
    return path


def data_file(path: Path, recordings: at.Recordings, **meta: Any) -> Path:
    """Write one subject's windows with what `meta` states."""
    own = recordings.subject == 0
    stated = {"channels": SIGNAL.channels, "sfreq": 64.0, "unit": "V", "classes": [str(k) for k in recordings.classes]}
    np.savez(
        path, X=recordings.X[own].numpy(), y=recordings.y[own].numpy(), subject=np.zeros(int(own.sum()), int),
        meta=np.array(json.dumps(stated | meta)),
    )  # fmt: skip
    return path


COMMANDS = {
    "predict": lambda folder, data, out: ("predict", folder, data, "--quiet"),
    "calibrate": lambda folder, data, out: ("calibrate", folder, data, "--out", out),
}


META: dict[str, dict[str, Any]] = {
    "unknown filter": {},
    "no filter": {"filter": {}},
    "another filter": {"filter": {"highpass": 5, "lowpass": 20}},
    "another unit": {"filter": BAND.to_dict(), "unit": "µV"},
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", META)
def test_files_with_another_or_an_unknown_filter_or_unit_are_refused(
    command: str, case: str, folder: Path, recordings: at.Recordings, tmp_path: Path
) -> None:
    data = data_file(tmp_path / "ann.npz", recordings, **META[case])
    assert_one_line(call(*COMMANDS[command](folder, data, tmp_path / "out")), 2, case.split()[-1])


def test_a_recording_at_another_rate_is_refused_before_it_is_cut(folder: Path, tmp_path: Path) -> None:
    lines = ["time,C3,Cz,C4", *(f"{n / 66:.6f},{n % 3},{n % 5},{n % 7}" for n in range(64))]  # shorter than a second
    (tmp_path / "ann.csv").write_text("\n".join(lines))
    for command in COMMANDS.values():
        assert_one_line(call(*command(folder, tmp_path / "ann.csv", tmp_path / "out")), 2, "sampled at 66 Hz")


def test_the_user_or_the_file_settles_the_filter(folder: Path, recordings: at.Recordings, tmp_path: Path) -> None:
    data = data_file(tmp_path / "ann.npz", recordings)
    stated = data_file(tmp_path / "told.npz", recordings, filter=BAND.to_dict())
    results = [call("predict", folder, data, "--filter", "5-30", "--quiet"), call("predict", folder, stated, "--quiet")]
    assert [result.code for result in results] == [0, 0]
    assert results[0].out == results[1].out
    assert_one_line(
        call("predict", folder, stated, "--filter", "5-20", "--quiet"),
        2,
        "5–20 Hz according to --filter; omit --filter",
    )


def test_streams_of_files_are_filtered_once(folder: Path, recordings: at.Recordings, tmp_path: Path) -> None:
    told = data_file(tmp_path / "told.npz", recordings, filter=BAND.to_dict())
    unknown = data_file(tmp_path / "unknown.npz", recordings)
    lines = call("stream", folder, "--source", told, "--out", tmp_path / "a.csv").err
    assert "not filtered here" in lines
    here = call("stream", folder, "--source", unknown, "--filter", "5-30", "--out", tmp_path / "b.csv")
    assert "filtered 5–30 Hz" in here.err
    for options in ((), ("--filter", "none")):
        refused = call("stream", folder, "--source", unknown, *options, "--out", tmp_path / "c.csv")
        assert_one_line(refused, 2, "the filter of the data is unknown; state it in meta")
    other = call("stream", folder, "--source", unknown, "--filter", "5-20", "--out", tmp_path / "d.csv")
    assert_one_line(other, 2, "filtered 5–20 Hz")


def test_a_session_does_not_replace_the_decisions(folder: Path, recordings: at.Recordings, tmp_path: Path) -> None:
    data, out = data_file(tmp_path / "ann.npz", recordings, filter=BAND.to_dict()), tmp_path / "ann.csv"
    result = call("stream", folder, "--source", data, "--out", out, "--session", out)
    assert_one_line(result, 2, "--out and --session are the same file")
    assert not out.exists()


def test_arrays_get_one_warning(model: Model, recordings: at.Recordings, recwarn: pytest.WarningsRecorder) -> None:
    X = recordings.X[:12].numpy()
    model.predict(X)
    assert ["filter of the data is unknown" in str(one.message) for one in recwarn] == [True]
    recwarn.clear()
    session = at.Session(model)
    for window in X:
        session.predict(window)
    assert ["filter of the data is unknown" in str(one.message) for one in recwarn] == [True]


def test_decisions_of_a_reader_are_told_before_predictions(model: Model, recordings: at.Recordings) -> None:
    with pytest.warns(UserWarning, match="the stream states 60 Hz"):
        model.read(replace(recordings.raw(), notes=("the stream states 60 Hz, but the time stamps show 64 Hz",)))


def test_arrays_in_another_unit_are_reported(model: Model, recordings: at.Recordings) -> None:
    with pytest.warns(UserWarning, match="a factor of about 1,000,000"):
        model.predict(1e6 * recordings.X.numpy())


def test_a_subject_in_another_unit_is_reported_among_others(model: Model, recordings: at.Recordings) -> None:
    X, subjects = recordings.X.numpy().copy(), recordings.subject.numpy()
    X[subjects == 1] *= 1e-3
    for predict in (model.predict, model.predict_proba):
        with pytest.warns(UserWarning, match="the windows of 1 vary by .* a factor of about"):
            predict(X, subjects)


@pytest.mark.parametrize("windows", [3, 16])
@pytest.mark.parametrize("command", ["predict", "calibrate", "stream"])
def test_a_file_in_another_unit_is_reported_by_every_command(
    command: str,
    windows: int,
    folder: Path,
    recordings: at.Recordings,
    tmp_path: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    own = np.flatnonzero(recordings.subject.numpy() == 0)[:windows]
    data = tmp_path / "ann.npz"
    about = {"channels": SIGNAL.channels, "sfreq": 64.0, "unit": "V", "filter": BAND.to_dict()}  # states volts
    np.savez(data, X=1e3 * recordings.X[own].numpy(), y=np.arange(windows) % 2, meta=json.dumps(about))
    words = {
        "predict": ("predict", folder, data, "--quiet"),
        "calibrate": ("calibrate", folder, data, "--out", tmp_path / "out"),
        "stream": ("stream", folder, "--source", data, "--out", tmp_path / "out.csv"),
    }[command]
    result = call(*words)
    assert result.code == 0, result.err
    told = [result.err, *(str(one.message) for one in recwarn)]
    assert len(re.findall(r"a factor of about \d[\d,]*: convert", "\n".join(told))) == 1, told


def test_a_signal_survives_files(model: Model, folder: Path, recordings: at.Recordings, tmp_path: Path) -> None:
    assert at.load_model(folder).card.signal == model.card.signal == recordings.signal
    assert recordings.signal.sources == {"sfreq": "user", "filter": "user", "unit": "user"}
    save_npz(tmp_path / "all.npz", recordings)
    stated = Signal.from_raw(read_npz(tmp_path / "all.npz"))
    assert stated == replace(recordings.signal, sources=dict.fromkeys(("sfreq", "filter", "unit"), "stated"))


def test_stated_names_are_matched_and_default_names_are_not(model: Model) -> None:
    own = replace(SIGNAL, channels=("ch1", "ch2", "ch3"))
    assert own.check(replace(SIGNAL, channels=("ch3", "ch1", "ch2"))).channels == [1, 2, 0]
    with pytest.raises(UserError, match="needs the channel 'ch1'"):
        own.check(replace(SIGNAL, channels=("ch4", "ch2", "ch3")))


def test_epochs_are_matched_by_name_and_rate(model: Model, recordings: at.Recordings) -> None:
    mne = pytest.importorskip("mne", reason="epochs are MNE's")
    X = recordings.X[:6].double().numpy()
    epochs = mne.EpochsArray(X[:, ::-1], mne.create_info(["C4", "Cz", "C3"], 64.0, "eeg"), verbose="error")
    with epochs.info._unlock():
        epochs.info["highpass"], epochs.info["lowpass"] = 5.0, 30.0
    np.testing.assert_allclose(model.predict_proba(epochs), model.predict_proba(X), atol=1e-6)
    with pytest.raises(UserError, match="sampled at 32 Hz"):
        model.predict(mne.EpochsArray(X, mne.create_info(list(SIGNAL.channels), 32.0, "eeg"), verbose="error"))
    with pytest.raises(UserError, match="from_epochs"):
        at.Recordings(epochs, [0, 1] * 3, [0, 0, 1, 1, 2, 2])


def test_filters_that_files_state_are_kept(tmp_path: Path) -> None:
    mne = pytest.importorskip("mne", reason="FIF files are read by MNE")
    raw = mne.io.RawArray(np.random.default_rng(0).standard_normal((2, 640)), mne.create_info(2, 64.0, "eeg"))
    raw.save(tmp_path / "ann_raw.fif", verbose="error")
    raw.filter(5.0, 30.0, verbose="error").save(tmp_path / "bob_raw.fif", verbose="error")
    found = [read(tmp_path / f"{name}_raw.fif", Cutting(window=1.0)).filter for name in ("ann", "bob")]
    assert found == [NOT_FILTERED, BAND]
    together = read(tmp_path, Cutting(window=1.0))
    assert together.filter is None
    assert "filter differs between recordings ('ann_raw.fif' none, 'bob_raw.fif' 5–30 Hz)" in together.notes[0]


def test_a_filter_that_a_file_states_is_not_applied_again(folder: Path, tmp_path: Path) -> None:
    mne = pytest.importorskip("mne", reason="FIF files are read by MNE")
    about = mne.create_info(list(SIGNAL.channels), 64.0, "eeg")
    raw = mne.io.RawArray(1e-5 * np.random.default_rng(0).standard_normal((3, 640)), about, verbose="error")
    raw.filter(5.0, 30.0, verbose="error").set_annotations(mne.Annotations([2.0], [1.0], ["1"]))
    raw.save(tmp_path / "ann_raw.fif", verbose="error")
    plain, again, none = (read(tmp_path / "ann_raw.fif", Cutting(window=1.0, filter=f)) for f in (None, "5-30", "none"))
    np.testing.assert_array_equal(plain.X, again.X)
    assert plain.filter == again.filter == none.filter == BAND
    result = call("stream", folder, "--replay", tmp_path / "ann_raw.fif", "--filter", "auto")
    assert result.code == 0, result.err
    other = call("stream", folder, "--replay", tmp_path / "ann_raw.fif", "--filter", "8-30")
    assert_one_line(other, 2, "filtered 8–30 Hz")


def test_filters_are_combined() -> None:
    device, asked = Filter(0.1, 100.0), Filter(5.0, 45.0, (50.0,), is_causal=True)
    assert combine(device, asked) == (asked, asked)
    assert combine(None, asked) == combine(NOT_FILTERED, asked) == (asked, asked)
    assert combine(device, None) == combine(device, NOT_FILTERED) == (None, device)
    assert combine(Filter(10.0, 20.0, (60.0,)), asked) == (asked, Filter(10.0, 20.0, (50.0, 60.0)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_models_that_predict_no_numbers_are_refused(model: Model, tmp_path: Path, value: float) -> None:
    tensors = model.tensors()
    tensors["candidates.0.classifier.weight"] = torch.full_like(tensors["candidates.0.classifier.weight"], value)
    write_model(tmp_path / "model", model.card, tensors)
    with pytest.raises(UserError, match="not finite"):
        at.load_model(tmp_path / "model")


def test_predictions_replace_no_recordings(folder: Path, recordings: at.Recordings, tmp_path: Path) -> None:
    data = data_file(tmp_path / "ann.npz", recordings, filter=BAND.to_dict())
    other = data_file(tmp_path / "bob.npz", recordings)
    content = other.read_bytes()
    assert_one_line(call("predict", folder, data, "--out", other), 2, "not an earlier output of --out")
    assert other.read_bytes() == content


def test_a_run_does_not_continue_with_another_unit(recordings: at.Recordings) -> None:
    other = at.Recordings.from_raw(replace(recordings.raw(), unit="µV"))
    assert fingerprint(other) != fingerprint(recordings) == fingerprint(at.Recordings.from_raw(recordings.raw()))
