"""MNE epochs load as objects and as files, and invalid ones are refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import load, read
from faults import refused
from tiny import tiny

mne = pytest.importorskip("mne", reason="pip install '.[mne]'")
pd = pytest.importorskip("pandas")
mne.set_log_level("ERROR")

N, T = 12, 16
CHANNELS = {"C3": "eeg", "STI": "stim", "Cz": "eeg", "EOG": "eog"}


def make(
    n: int = N,
    *,
    channels: dict[str, str] = CHANNELS,
    sfreq: float = 100.0,
    n_times: int = T,
    tmin: float = -0.05,
    metadata: dict[str, Any] | None = None,
    seed: int = 0,
) -> Any:
    values = np.random.default_rng(seed).standard_normal((n, len(channels), n_times)) * 1e-6
    info = mne.create_info(list(channels), sfreq, list(channels.values()))
    events = np.c_[np.arange(n) * 100, np.zeros(n, int), np.arange(n) % 3 + 5]
    table = None if metadata is None else pd.DataFrame(metadata)
    names = {"hand/left": 5, "hand/right": 6, "rest": 7}
    return mne.EpochsArray(values, info, events, tmin=tmin, event_id=names, metadata=table)


PEOPLE = ["ann", "bob", "cem"] * 4


def test_one_object_with_a_subject_column() -> None:
    epochs = make(metadata={"who": PEOPLE, "day": [1, 2] * 6, "word": ["yes"] * 6 + ["no"] * 6})
    rec = at.Recordings.from_epochs(epochs, subject="who")
    np.testing.assert_array_equal(rec.X.numpy(), epochs.get_data()[:, [0, 2]].astype(np.float32))
    assert rec.channels == ("C3", "Cz")  # neither triggers nor eyes
    assert (rec.sfreq, rec.session) == (100.0, None)
    assert [rec.subjects[s] for s in rec.subject] == PEOPLE
    assert [rec.classes[y] for y in rec.y] == ["hand/left", "hand/right", "rest"] * 4
    rec = at.Recordings.from_epochs(epochs, subject="who", session="day", label="word")
    assert rec.session.tolist() == [1, 2] * 6
    assert [rec.classes[y] for y in rec.y] == ["yes"] * 6 + ["no"] * 6


@pytest.mark.parametrize("column", ["subject", "participant_id"])
def test_the_usual_columns_need_not_be_named(column: str) -> None:
    rec = at.Recordings.from_epochs(make(metadata={"other": [0] * N, column: PEOPLE}))
    assert [rec.subjects[s] for s in rec.subject] == PEOPLE


def saved(folder: Path, people: dict[str, Any]) -> Path:
    """A folder with a file of epochs for each person."""
    for name, epochs in people.items():
        epochs.save(folder / f"{name}-epo.fif")
    return folder


def test_channels_in_another_order_are_brought_into_order(tmp_path: Path) -> None:
    turned = make(4, channels=dict(reversed(CHANNELS.items())), seed=1)
    rec = load(saved(tmp_path, {"a": make(4), "b": turned, "c": make(4)}))
    assert rec.channels == ("C3", "Cz")
    np.testing.assert_array_equal(rec.X[4:8, 0].numpy(), turned.get_data(picks="C3")[:, 0].astype(np.float32))


def test_bad_channels_are_kept_and_recordings_without_brain_signals_keep_all_but_triggers() -> None:
    epochs = make(metadata={"subject": PEOPLE})
    epochs.info["bads"] = ["Cz"]
    assert at.Recordings.from_epochs(epochs).channels == ("C3", "Cz")
    muscles = make(channels={"biceps": "emg", "t": "stim", "heart": "ecg"}, metadata={"subject": PEOPLE})
    assert at.Recordings.from_epochs(muscles).channels == ("biceps", "heart")


def test_epochs_still_to_be_cut_from_raw_are_cut_and_rejected_without_changing_them() -> None:
    signal = np.random.default_rng(0).standard_normal((2, 2000)) * 1e-6
    signal[0, 250] = 1.0  # a spark in the third window
    raw = mne.io.RawArray(signal, mne.create_info(["a", "b"], 100.0, "eeg"))
    events = np.c_[np.arange(9) * 100 + 50, np.zeros(9, int), np.arange(9) % 2 + 1]
    epochs = mne.Epochs(
        raw, events, {"p": 1, "q": 2}, 0, 0.5, baseline=None, preload=False, reject={"eeg": 1e-3},
        metadata=pd.DataFrame({"subject": [0, 1, 2] * 3}),
    )  # fmt: skip
    rec = at.Recordings.from_epochs(epochs)
    assert (rec.n_windows, rec.n_times) == (8, 51)
    assert rec.subject.tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    np.testing.assert_array_equal(rec.X[2].numpy(), signal[:, 350:401].astype(np.float32))
    assert epochs.drop_log == ((),) * 9


def test_a_window_that_starts_between_two_samples_keeps_all_of_them() -> None:
    epochs = make(sfreq=50.0, tmin=-0.05, metadata={"subject": PEOPLE})
    assert len(epochs.times) != epochs.get_data().shape[2]  # what MNE makes of it
    assert at.Recordings.from_epochs(epochs).n_times == T


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"channels": {"C3": "eeg", "Pz": "eeg"}}, "'a-epo.fif' has the channel 'Cz', 'b-epo.fif' does not have it; "),
        ({"channels": {**CHANNELS, "Pz": "eeg"}}, "'b-epo.fif' has the channel 'Pz', 'a-epo.fif' does not have it; "),
        ({"sfreq": 50.0, "tmin": -0.04}, "'b-epo.fif' has a sampling rate of 50 Hz, 'a-epo.fif' .* of 100 Hz; "),
        ({"n_times": 17}, "'b-epo.fif' has windows of 17 samples, 'a-epo.fif' of 16; "),
    ],
)
def test_subjects_with_different_recordings_are_refused(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    saved(tmp_path, {"a": make(4), "b": make(4, **changes), "c": make(4)})
    refused(lambda: load(tmp_path), text)


def test_what_cannot_be_recordings() -> None:
    from_epochs = at.Recordings.from_epochs
    refused(lambda: from_epochs(make()), "'epochs' holds no subject; to train, give the epochs a metadata column")
    refused(lambda: from_epochs(make(), subject="who"), "the metadata of the epochs has no column 'who'")
    epochs = make(metadata={"a": [0] * N, "b": [0] * N})
    refused(lambda: from_epochs(epochs, subject="who"), "no column 'who' for the subject; there are 'a', 'b'")
    refused(lambda: from_epochs(epochs, subject="a", label="c"), "no column 'c' for the label")
    refused(lambda: from_epochs(epochs, subject="a", session="c"), "no column 'c' for the session")
    for wrong in (None, 3, "x-epo.fif", np.zeros((3, 2, 9)), [make()]):
        refused(lambda wrong=wrong: from_epochs(wrong), "is no mne.Epochs; give mne.Epochs")
    refused(lambda: from_epochs(make()[:0]), "the epochs holds no windows; leave it out")
    only = make(channels={"t": "stim", "u": "stim"}, metadata={"subject": PEOPLE})
    refused(lambda: from_epochs(only), r"only trigger channels \(t, u\)")
    missing = make(metadata={"subject": [*PEOPLE[:-1], None]})
    refused(lambda: from_epochs(missing), r"subject\[11\] is .*drop windows without a label")
    waves = make(metadata={"subject": PEOPLE}).apply_hilbert(picks="eeg")
    refused(lambda: from_epochs(waves), "holds complex values")


def test_without_mne(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mne", None)
    (tmp_path / "a-epo.fif").write_bytes(b"x")
    (tmp_path / "mne.py").write_text("raise ImportError(name='mne')")
    monkeypatch.syspath_prepend(tmp_path)
    missing = r"reading MNE epochs needs mne, which is not installed; pip install mne"
    refused(lambda: at.Recordings.from_epochs([1]), missing)
    refused(lambda: load(tmp_path / "a-epo.fif"), missing)


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a-epo.fif", "a_epo.fif", "a.fif", "a-epo.fif.gz", "a.FIF"])
def test_a_file_gives_what_the_object_gives(tmp_path: Path, name: str) -> None:
    epochs = make(metadata={"participant_id": PEOPLE})
    epochs.save(tmp_path / "b-epo.fif.gz" if name.endswith("gz") else tmp_path / "b-epo.fif")
    next(tmp_path.iterdir()).rename(tmp_path / name)
    rec, same = load(str(tmp_path / name)), at.Recordings.from_epochs(epochs)
    torch.testing.assert_close(rec.X, same.X, rtol=1e-6, atol=0)
    for field in ("channels", "sfreq", "classes", "subjects"):
        assert getattr(rec, field) == getattr(same, field)
    assert (rec.y.tolist(), rec.subject.tolist()) == (same.y.tolist(), same.subject.tolist())
    assert rec.name == "a"


def test_a_folder_of_subjects(tmp_path: Path) -> None:
    for k, name in enumerate(["sub-01_ses-2_epo", "sub-02_ses-1_epo", "sub-02_ses-2-epo", "sub-ab_ses-1_task-x_epo"]):
        make(4, seed=k).save(tmp_path / f"{name}.fif")
    (tmp_path / "sub-01_ave.fif").write_bytes(b"something else")
    rec = load(tmp_path)
    assert [rec.subjects[s] for s in rec.subject] == ["01"] * 4 + ["02"] * 8 + ["ab"] * 4
    assert rec.session.tolist() == [1] * 4 + [0] * 4 + [1] * 4 + [0] * 4
    assert rec.name == tmp_path.name


def test_a_folder_of_any_names_and_bids(tmp_path: Path) -> None:
    for k, name in enumerate(["ann", "bob", "cem"]):
        (tmp_path / "flat").mkdir(exist_ok=True)
        make(4, seed=k).save(tmp_path / "flat" / f"{name}.fif")
        (tmp_path / "bids" / f"sub-{name}" / "eeg").mkdir(parents=True)
        make(4, seed=k).save(tmp_path / "bids" / f"sub-{name}" / "eeg" / f"sub-{name}_epo.fif")
    flat, bids = load(tmp_path / "flat"), load(tmp_path / "bids")
    assert flat.subjects == bids.subjects == ("ann", "bob", "cem")
    assert torch.equal(flat.X, bids.X)
    assert flat.session is None


@pytest.mark.parametrize(
    ("name", "naming"), [("{}-epo.fif", "neuromag"), ("{}.fif", "neuromag"), ("{}_epo.fif", "bids")]
)
def test_a_divided_file_is_read_once(tmp_path: Path, name: str, naming: str) -> None:
    for person in ("p-1", "p-2", "ann"):
        make(4, n_times=70_000).save(tmp_path / name.format(person), split_size="3MB", split_naming=naming)
    assert len(list(tmp_path.iterdir())) > 3
    rec = load(tmp_path)
    assert (rec.n_windows, rec.subjects) == (12, ("ann", "p-1", "p-2"))


@pytest.mark.filterwarnings("ignore:the sampling rate is unknown")
def test_a_folder_of_arrays_stays_one(tmp_path: Path) -> None:
    make(4).save(tmp_path / "ann-epo.fif")
    rec = tiny()
    for name in ("X", "y", "subject"):
        np.save(tmp_path / f"{name}.npy", getattr(rec, name).numpy())
    assert load(tmp_path).n_windows == rec.n_windows


def test_files_that_are_no_epochs(tmp_path: Path) -> None:
    raw = mne.io.RawArray(np.zeros((2, 500)), mne.create_info(2, 100.0, "eeg"))
    raw.save(tmp_path / "a_raw.fif")
    refused(lambda: load(tmp_path / "a_raw.fif"), "'a' holds no y; to train, give .* --events")
    (tmp_path / "a_raw.fif").rename(tmp_path / "a-epo.fif")
    refused(lambda: load(tmp_path / "a-epo.fif"), "cannot be read .*Could not find")
    (tmp_path / "a-epo.fif").unlink()
    make().average().save(tmp_path / "a-ave.fif")
    refused(lambda: load(tmp_path / "a-ave.fif"), "cannot be read .*Could not find")
    refused(lambda: load(tmp_path / "none-epo.fif"), "there is no file .*none-epo")
    make().save(tmp_path / "a-epo.fif")
    assert set(read(tmp_path / "a-epo.fif").subject) == {"a"}
    refused(lambda: load(tmp_path / "a-epo.fif", window=1.0), "cut already; leave out window")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fif") / "a-epo.fif"
    make(metadata={"subject": PEOPLE}).save(path)
    return path.read_bytes()


def damaged(content: bytes, path: Path) -> at.Recordings | None:
    path.write_bytes(content)
    try:
        return load(path)
    except UserError as refusal:
        message = str(refusal)
    assert "\n" not in message
    return None


def test_truncated_files_are_refused(intact: bytes, tmp_path: Path) -> None:
    assert damaged(intact, tmp_path / "a-epo.fif") is not None
    for length in (0, 20, len(intact) // 2, len(intact) * 9 // 10):
        assert damaged(intact[:length], tmp_path / "a-epo.fif") is None, length
    refused(lambda: load(tmp_path / "a-epo.fif"), "contents of .* cannot be read .*damaged or cut short")
