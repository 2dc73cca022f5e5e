"""benchmarks.paper_sets converts the paper's data sets from small files of their layouts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.paper_sets import main
from scipy.io import savemat

import autotransfer as at

EEG = ("Fp1", "Fz", "Cz")


def converted(name: str, folder: Path) -> at.Recordings:
    """What is loaded of the file that the command writes."""
    out = folder / "converted.npz"
    assert main([name, str(folder), "--out", str(out)]) == 0
    return at.load(out)


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
    rec = converted("errp", tmp_path)
    assert (rec.n_windows, rec.channels, rec.n_times, rec.sfreq) == (8, EEG, 260, 200.0)
    assert [rec.subjects[s] for s in rec.subject] == ["S02"] * 4 + ["S06"] * 2 + ["S11"] * 2
    assert rec.session.tolist() == [1, 1, 2, 2, 1, 1, 1, 1]
    assert [rec.classes[k] for k in rec.y] == ["correct", "error"] * 4
    np.testing.assert_array_equal(rec.X[3].numpy(), stored["S02", 2][600:860].T.astype(np.float32))
    (tmp_path / "TrainLabels.csv").rename(tmp_path / "train" / "TrainLabels.csv")
    assert converted("errp", tmp_path / "train").n_windows == 8


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
    rec = converted("ecog-faces", tmp_path / "faces_basic")
    assert (rec.n_windows, rec.n_channels, rec.n_times, rec.sfreq) == (18, 31, 400, 1000.0)
    assert [rec.classes[k] for k in rec.y[:6]] == ["house", "face", "face", "house", "house", "face"]
    assert [rec.subjects[s] for s in rec.subject] == ["aa"] * 6 + ["ca"] * 6 + ["jt"] * 6
    expected = stored["ca"]["data"][300 + 800 : 300 + 800 + 400, :31].T
    np.testing.assert_array_equal(rec.X[7].numpy(), expected.astype(np.float32))
    assert rec.channels[:2] == ("electrode 1", "electrode 2")


# --- one file a subject -------------------------------------------------------------------------------------


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
    rec = converted("rsvp", tmp_path)
    assert (rec.n_windows, rec.sfreq, rec.channels) == (18, 256.0, ("Fz", "Pz"))
    assert [rec.classes[k] for k in rec.y[:3]] == ["non-target", "target", "non-target"]
    assert rec.subjects == ("p1", "p2", "p3")
    assert rec.session.tolist()[:6] == [1, 1, 1, 2, 2, 2]
    np.testing.assert_array_equal(rec.X[6:12].numpy(), stored["p2"]["X"].astype(np.float32))
