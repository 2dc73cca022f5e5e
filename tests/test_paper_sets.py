"""The paper's data sets, on small files of their layouts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from autotransfer.errors import UserError
from autotransfer.recordings import READERS, RECIPES, SETS, absolute, load, read
from autotransfer.recordings.matlab import numbers, read_mat, words
from autotransfer.recordings.paper.ecog_faces import pictures
from autotransfer.recordings.sources import catalogue

EEG = ("Fp1", "Fz", "Cz")


def refused(source: str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        load(source)
    assert "\n" not in str(caught.value)


def test_every_recipe_is_a_reader_and_says_where_from() -> None:
    assert set(RECIPES) == {"rsvp:", "errp:", "asl-emg:", "ecog-faces:"}
    for prefix, recipe in RECIPES.items():
        assert READERS[prefix] is recipe.read
        assert all(len(text) > 20 for text in recipe[1:])
    lines = list(catalogue())
    for name in (*SETS, "moabb:NAME", *(f"{prefix}FOLDER" for prefix in RECIPES)):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    for recipe in RECIPES.values():
        for text in recipe[1:]:
            assert any(line.endswith(text) for line in lines)


@pytest.mark.parametrize("prefix", RECIPES)
def test_folders_that_are_not_there_or_empty(prefix: str, tmp_path: Path) -> None:
    refused(prefix, f"there is no folder ''; write {prefix}FOLDER")
    refused(f"{prefix}{tmp_path / 'no'}", f"there is no folder .*no'; write {prefix}FOLDER")
    refused(f"{prefix}{tmp_path}", f"there is no file .* in .*'autotransfer datasets' lists what {prefix} expects")


def test_absolute_sources_are_understood_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "a.npz").touch()
    (tmp_path / "watch").mkdir()
    assert absolute("errp:kaggle") == f"errp:{tmp_path / 'kaggle'}"
    assert absolute("rsvp:~/letters") == f"rsvp:{tmp_path / 'home' / 'letters'}"
    assert absolute("a.npz") == str(tmp_path / "a.npz")
    for same in ("watch", "moabb:BNCI2014_001", "b.npz"):
        assert absolute(same) == same


# --- error potentials --------------------------------------------------------------------------------------


def write_errp(
    folder: Path, people: dict[str, int], *, columns: tuple[str, ...] = EEG, feedbacks: int = 2, seconds: float = 8.0
) -> dict[tuple[str, int], np.ndarray[Any, Any]]:
    """CSV files as published: `people` by name with their number of sessions. Returns the samples of each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, stored = np.random.default_rng(0), {}
    for person, sessions in people.items():
        for session in range(1, sessions + 1):
            n = round(seconds * 200)
            signal = rng.standard_normal((n, len(columns))).round(4)
            event = np.zeros(n, int)
            event[[100 + 500 * k for k in range(feedbacks)]] = 1
            with (folder / f"Data_{person}_Sess{session:02d}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["Time", *columns, "EOG", "FeedBackEvent"])
                for k in range(n):
                    writer.writerow([round(k / 200, 3), *signal[k], 999.0, event[k]])
            stored[person, session] = signal
    return stored


def write_labels(path: Path, people: dict[str, int], feedbacks: int = 2) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["IdFeedBack", "Prediction"])
        for person, sessions in people.items():
            for session in range(1, sessions + 1):
                for k in range(1, feedbacks + 1):
                    writer.writerow([f"{person}_Sess{session:02d}_FB{k:03d}", k % 2])


PEOPLE = {"S02": 2, "S06": 1, "S11": 1}


def test_errp(tmp_path: Path) -> None:
    stored = write_errp(tmp_path / "train", PEOPLE)
    write_errp(tmp_path / "test", {"S01": 1})
    write_labels(tmp_path / "TrainLabels.csv", PEOPLE)
    rec = load(f"errp:{tmp_path}")
    assert (rec.n_trials, rec.channels, rec.n_times, rec.sfreq) == (8, EEG, 260, 200.0)
    assert [rec.subjects[s] for s in rec.subject] == ["S02"] * 4 + ["S06"] * 2 + ["S11"] * 2
    assert rec.session.tolist() == [1, 1, 2, 2, 1, 1, 1, 1]
    assert [rec.classes[k] for k in rec.y] == ["correct", "error"] * 4
    np.testing.assert_array_equal(rec.X[3].numpy(), stored["S02", 2][600:860].T.astype(np.float32))
    (tmp_path / "TrainLabels.csv").rename(tmp_path / "train" / "TrainLabels.csv")
    assert load(f"errp:{tmp_path / 'train'}").n_trials == 8


def test_errp_without_labels_can_be_predicted(tmp_path: Path) -> None:
    write_errp(tmp_path / "test", {"S01": 1, "S03": 1, "S04": 1})
    write_labels(tmp_path / "TrainLabels.csv", PEOPLE)  # of other people
    raw = read(f"errp:{tmp_path / 'test'}")
    assert raw.y is None
    assert np.asarray(raw.X).shape == (6, 3, 260)
    refused(f"errp:{tmp_path / 'test'}", "'errp' holds no y; to train, put TrainLabels.csv of the challenge into")


def test_errp_leaves_out_a_window_cut_off_by_the_end(tmp_path: Path) -> None:
    write_errp(tmp_path, PEOPLE, feedbacks=3, seconds=6.5)  # the third is 200 samples before the end
    write_labels(tmp_path / "TrainLabels.csv", PEOPLE, feedbacks=3)
    rec = load(f"errp:{tmp_path}/")
    assert rec.n_trials == 8
    assert [rec.classes[k] for k in rec.y] == ["correct", "error"] * 4


def test_errp_mistakes(tmp_path: Path) -> None:
    write_errp(tmp_path, PEOPLE)
    labels, data = tmp_path / "TrainLabels.csv", tmp_path / "Data_S06_Sess01.csv"
    write_labels(labels, {"S02": 2, "S06": 1})
    refused(f"errp:{tmp_path}", "TrainLabels.csv has no label for S11_Sess01_FB001, which 'Data_S11_Sess01.csv' holds")
    labels.write_text("Id,Prediction\nS02_Sess01_FB001,1\n")
    refused(f"errp:{tmp_path}", "TrainLabels.csv' has no column 'IdFeedBack'")
    write_labels(labels, PEOPLE)
    text = data.read_text()
    data.write_text(text.replace("FeedBackEvent", "Event"))
    refused(f"errp:{tmp_path}", "Data_S06_Sess01.csv' has no column 'FeedBackEvent'")
    data.write_text("Time,EOG,FeedBackEvent\n0,0,1\n")
    refused(f"errp:{tmp_path}", "has no EEG columns besides Time, EOG, FeedBackEvent")
    data.write_text(text.replace("Cz", "Pz"))
    refused(f"errp:{tmp_path}", "'Data_S02_Sess01.csv' has the channels 'Cz', 'Data_S06_Sess01.csv' has not")
    data.write_text(text.replace("0.005", "zero", 1).replace("999.0", "999.0,1", 3))
    refused(f"errp:{tmp_path}", "samples of .*Data_S06_Sess01.csv' cannot be read")
    data.write_text("")
    refused(f"errp:{tmp_path}", "columns of .*Data_S06_Sess01.csv' cannot be read")
    data.rename(tmp_path / "Data_S06_Sess01_copy.csv")
    refused(f"errp:{tmp_path}", "'Data_S06_Sess01_copy.csv' is not named like Data_S02_Sess01.csv")


# --- faces and houses --------------------------------------------------------------------------------------

CODES = (7, 60, 100, 1, 50, 51)  # pictures in the order shown


def faces(electrodes: int, seed: int = 0) -> dict[str, Any]:
    """A file's variables: 0 before the run, then each picture for 400 ms and 101 for 400 ms."""
    stim = [0] * 300
    for code in CODES:
        stim += [code] * 400 + [101] * 400
    data = np.random.default_rng(seed).integers(-3000, 3000, (len(stim), electrodes)).astype(float)
    return {"data": data, "stim": np.array(stim)[:, None], "srate": np.array([[1000]])}


def write_faces(folder: Path, people: dict[str, int]) -> dict[str, dict[str, Any]]:
    stored = {}
    for k, (name, electrodes) in enumerate(people.items()):
        (folder / "data" / name).mkdir(parents=True)
        stored[name] = faces(electrodes, seed=k)
        savemat(folder / "data" / name / f"{name}_faceshouses.mat", stored[name], do_compression=True)
    return stored


def test_ecog_faces(tmp_path: Path) -> None:
    stored = write_faces(tmp_path / "faces_basic", {"aa": 40, "ca": 33, "jt": 35})
    rec = load(f"ecog-faces:{tmp_path / 'faces_basic'}")
    assert (rec.n_trials, rec.n_channels, rec.n_times, rec.sfreq) == (18, 31, 400, 1000.0)
    assert [rec.classes[k] for k in rec.y[:6]] == ["house", "face", "face", "house", "house", "face"]
    assert [rec.subjects[s] for s in rec.subject] == ["aa"] * 6 + ["ca"] * 6 + ["jt"] * 6
    expected = stored["ca"]["data"][300 + 800 : 300 + 800 + 400, :31].T
    np.testing.assert_array_equal(rec.X[7].numpy(), expected.astype(np.float32))
    assert rec.channels[:2] == ("electrode 1", "electrode 2")


def test_ecog_faces_with_fewer_electrodes(tmp_path: Path) -> None:
    write_faces(tmp_path, {"aa": 5, "ca": 3, "jt": 4})
    assert load(f"ecog-faces:{tmp_path}").n_channels == 3


def test_pictures_are_runs_of_one_code() -> None:
    stim = np.array([5] * 4 + [101] * 4 + [5] * 4 + [0] + [9] + [101] * 4 + [88] * 4 + [99] * 4 + [3] * 3)
    onsets, codes = pictures(stim, shortest=4)
    assert onsets.tolist() == [0, 8, 18, 22]  # the single 9 is a blip, the 3 at the end is too short
    assert codes.tolist() == [5, 5, 88, 99]
    assert pictures(np.array([]), 4)[0].tolist() == []


@pytest.mark.usefixtures("read_here")
def test_ecog_faces_mistakes(tmp_path: Path) -> None:
    write_faces(tmp_path / "faces_basic", {"aa": 4, "ca": 4, "jt": 4})
    source, path = f"ecog-faces:{tmp_path}", tmp_path / "faces_basic" / "data" / "ca" / "ca_faceshouses.mat"
    whole = faces(4)
    for name in ("data", "stim", "srate"):
        savemat(path, {key: value for key, value in whole.items() if key != name} | {"other": 1})
        refused(source, f"ca_faceshouses.mat' has no variable '{name}'")
    savemat(path, whole | {"stim": whole["stim"][:-5]})
    refused(source, r"has data \(5100, 4\), stim \(5095,\) and srate \[1000\], which do not match")
    savemat(path, whole | {"srate": np.array([[np.nan]])})
    refused(source, "which do not match")
    savemat(path, whole | {"stim": np.array(["a", "b"], object)})
    refused(source, "'stim' of .* holds object values; it must hold real numbers")
    savemat(path, whole | {"stim": 0 * whole["stim"]})
    refused(source, "'ca_faceshouses.mat' holds no windows")
    content = path.read_bytes()
    for length in (0, 60, 200, len(content) // 2):
        path.write_bytes(content[:length])
        refused(source, "variables of .*ca_faceshouses.mat' cannot be read .*damaged or cut short")
    savemat(path, whole)
    write_faces(tmp_path / "faces_noise", {"ca": 4})
    refused(source, "two files 'ca_faceshouses.mat' .*; name the folder faces_basic, not the whole library")


# --- one file a person -------------------------------------------------------------------------------------


def write_people(folder: Path, names: tuple[str, ...] = ("p1", "p2", "p3"), **more: Any) -> dict[str, dict[str, Any]]:
    stored = {}
    for k, name in enumerate(names):
        X = np.random.default_rng(k).standard_normal((6, 2, 16))
        stored[name] = {"X": X, "y": np.array([[0, 1, 0, 1, 1, 0]]), **more}
        savemat(folder / f"{name}.mat", stored[name])
    return stored


def test_rsvp(tmp_path: Path) -> None:
    channels = np.array(["Fz", "Pz "], object)
    stored = write_people(tmp_path, sfreq=256, channels=channels, session=np.array([1, 1, 1, 2, 2, 2])[:, None])
    rec = load(f"rsvp:{tmp_path}")
    assert (rec.n_trials, rec.sfreq, rec.channels) == (18, 256.0, ("Fz", "Pz"))
    assert [rec.classes[k] for k in rec.y[:3]] == ["non-target", "target", "non-target"]
    assert rec.subjects == ("p1", "p2", "p3")
    assert rec.session.tolist()[:6] == [1, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(rec.X[6:12].numpy(), stored["p2"]["X"].astype(np.float32))


def test_asl_emg(tmp_path: Path) -> None:
    write_people(tmp_path, y=np.array(["a", "b", "hello"] * 2, object))
    rec = load(f"asl-emg:{tmp_path}")
    assert (rec.sfreq, rec.classes) == (1000.0, ("a", "b", "hello"))
    assert rec.channels == ("ch0", "ch1")
    write_people(tmp_path, y=np.arange(6) + 1, channels=np.array(["one", "two"]))
    rec = load(f"asl-emg:{tmp_path}")
    assert rec.classes == (1, 2, 3, 4, 5, 6)
    assert rec.channels == ("one", "two")


@pytest.mark.usefixtures("read_here")
def test_one_file_a_person_mistakes(tmp_path: Path) -> None:
    source = f"rsvp:{tmp_path}"
    write_people(tmp_path, y=np.array([0, 1, 2, 0, 1, 2]))
    refused(source, "y holds 2, for which the 2 names given have no entry")
    stored = write_people(tmp_path)["p2"]
    savemat(tmp_path / "p2.mat", {"Y": stored["y"], "data": stored["X"]})
    refused(source, "p2.mat' has no variable 'X'; it holds 'Y', 'data'")
    savemat(tmp_path / "p2.mat", stored | {"X": stored["X"][0]})
    refused(source, r"X of .*p2.mat' has the shape \(2, 16\); it must be \(windows, channels, times\)")
    savemat(tmp_path / "p2.mat", stored | {"y": stored["y"][:, :4]})
    refused(source, "y of .*p2.mat' has 4 entries, its X 6 windows")
    savemat(tmp_path / "p2.mat", stored | {"channels": np.array(["a"], object)})
    refused(source, "p2.mat' names 1 channels, its X has 2")
    savemat(tmp_path / "p2.mat", stored | {"sfreq": 50})
    refused(source, "'p2.mat' is sampled at 50 Hz, 'p1.mat' at an unknown rate; give all files the same sfreq")
    savemat(tmp_path / "p2.mat", {"X": stored["X"]})
    refused(source, "'rsvp' holds no y; to train, every file needs a variable 'y'")
    assert read(source).y is None


def write_hdf5(path: Path, variables: dict[str, Any]) -> None:
    """As MATLAB's version 7.3 does: axes reversed, after a header of 512 bytes; texts as references to characters."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if isinstance(value, list):
                texts = [np.array([[ord(letter)] for letter in text], np.uint16) for text in value]
                references = [file.create_dataset(f"#refs#/{name}{k}", data=text).ref for k, text in enumerate(texts)]
                file.create_dataset(name, data=np.array([references], dtype=h5py.ref_dtype))
            else:
                file[name] = np.asarray(value).T


def test_files_of_version_7_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = write_people(tmp_path, sfreq=np.array([[256]]), channels=["Fz", "Pz"])["p2"]
    for name in ("p1", "p2", "p3"):
        write_hdf5(tmp_path / f"{name}.mat", stored)
    rec = load(f"rsvp:{tmp_path}")
    np.testing.assert_array_equal(rec.X[6:12].numpy(), stored["X"].astype(np.float32))
    assert (rec.channels, rec.y.tolist()[:6], rec.sfreq) == (("Fz", "Pz"), [0, 1, 0, 1, 1, 0], 256.0)
    write_hdf5(tmp_path / "p2.mat", {"y": stored["y"]})
    refused(f"rsvp:{tmp_path}", "p2.mat' has no variable 'X'; it holds 'y'")
    for k, name in enumerate(("aa", "ca", "jt")):
        write_hdf5(tmp_path / f"{name}_faceshouses.mat", faces(3 + k))
    assert load(f"ecog-faces:{tmp_path}").n_channels == 3
    (tmp_path / "h5py.py").write_text("raise ImportError(name='h5py')")
    monkeypatch.syspath_prepend(tmp_path)
    refused(
        f"rsvp:{tmp_path}", "'aa_faceshouses.mat', a MATLAB file of version 7.3, needs h5py, which is not installed"
    )


# --- MATLAB files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_variables_of_a_matlab_file(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.mat"
    stored = {"n": np.arange(6, dtype="i2").reshape(1, 2, 3), "text": ["Fz", "P10"], "rate": 0.5, "z": np.array([1j])}
    savemat(path, stored | {"cell": np.array(["µ", 3.0, ""], object), "s": {"a": 1}}, do_compression=compressed)
    found = read_mat(path, ("n", "text"), ("cell", "rate", "absent", "z"))
    np.testing.assert_array_equal(found["n"], stored["n"])
    assert found["n"].dtype == np.int16
    assert list(found) == ["n", "text", "cell", "rate", "z"]
    assert [words(found[name]) for name in ("text", "cell", "rate")] == [["Fz", "P10"], ["µ", "3.0", ""], ["0.5"]]
    with pytest.raises(UserError, match=r"'z' of .*a.mat' holds complex128 values; it must hold real numbers"):
        numbers(found["z"], "z", path)
    with pytest.raises(UserError, match=r"'s' of .*a.mat' holds neither numbers nor text"):
        read_mat(path, ("s",))


def test_a_variable_larger_than_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotransfer.recordings.npy.available_memory", lambda: 10**6)
    X = np.zeros((500, 1000))
    savemat(tmp_path / "v5.mat", {"X": X}, do_compression=True)
    write_hdf5(tmp_path / "v73.mat", {"X": X})
    for name in ("v5", "v73"):
        with pytest.raises(
            UserError, match=r"X of .*\.mat' is too large for memory \(.* GB needed, 0.001 GB available"
        ):
            read_mat(tmp_path / f"{name}.mat", ("X",))


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))])
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, seed: int) -> None:
    write_people(tmp_path, sfreq=256, channels=np.array(["Fz", "Pz"], object))
    rng, content = np.random.default_rng(seed), bytearray((tmp_path / "p1.mat").read_bytes())
    for place in rng.integers(0, len(content) if seed % 2 else 300, 4):  # anywhere, or where the tags are
        content[place] = int(rng.integers(256))
    (tmp_path / "p1.mat").write_bytes(content)
    try:
        load(f"rsvp:{tmp_path}")
    except UserError as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017
