"""Ten things that new users do first, from an empty folder and the wheel: python tests/new_users.py

Everything runs as it would for them: the installed command, files on disk, no source tree. The script prints what each
task took; tests/test_new_users.py runs the same tasks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
SMALL = ("--grid", "uncensored", "--adaptation", "none", "--seeds", "1", "--epochs", "2", "--device", "cpu")
CUT = ("--pattern", "{subject}/{class}_*.csv", "--window", "0.5", "--hop", "0.25", "--sfreq", "64")

# Three people move, as files of each kind say it; class and person are in the signal.
SIGNALS = """
import numpy as np
def windows(people=4, trials=12, channels=2, times=64, sfreq=64.0, seed=0):
    rng = np.random.default_rng(seed)
    who = np.repeat([f"p{n}" for n in range(people)], trials)
    hand = np.tile([0, 1], len(who) // 2)
    phase = 2 * np.pi * np.arange(times) / sfreq
    X = rng.standard_normal((len(who), channels, times))
    X[:, 0] += 3 * np.where(hand[:, None], np.sin(8 * phase), np.sin(16 * phase))
    return X, np.array(["left", "right"])[hand], who
"""
CSV = """
from pathlib import Path
X, y, who = windows(people=5)
for n, (x, label, person) in enumerate(zip(X, y, who)):
    folder = Path("csv-new" if person == "p4" else "csv", person)
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / f"{label}_{n}.csv", x.T, delimiter=",", header="flexor,extensor", comments="")
"""
RAW = """
import mne
def raw_of(person):
    X, y, who = windows()
    own = X[who == person]
    signal = 1e-5 * own.transpose(1, 0, 2).reshape(2, -1)
    raw = mne.io.RawArray(signal, mne.create_info(["C3", "C4"], 64.0, "eeg"), verbose=False)
    labels = ["T1" if one == "left" else "T2" for one in y[who == person]]
    return raw.set_annotations(mne.Annotations(np.arange(len(own)), [1.0] * len(own), labels), verbose=False)
"""
EDF = """
from pathlib import Path
Path("edf").mkdir()
for person in ("p0", "p1", "p2", "p3"):
    raw_of(person).export(f"edf/{person}.edf", physical_range=(-5e3, 5e3), verbose=False)
"""
BIDS = """
import mne_bids
for number in range(4):
    raw = raw_of(f"p{number}")
    raw.info["line_freq"] = 50
    place = mne_bids.BIDSPath(subject=f"{number:02d}", task="move", root="bids", datatype="eeg")
    mne_bids.write_raw_bids(raw, place, format="EDF", allow_preload=True, verbose=False)
"""
EPOCHS = """
import mne, pandas as pd
import autotransfer as at
X, y, who = windows()
epochs = mne.EpochsArray(
    1e-5 * X, mne.create_info(["C3", "C4"], 64.0, "eeg"),
    events=np.c_[np.arange(len(y)), np.zeros(len(y), int), 1 + (y == "right")], event_id={"left": 1, "right": 2},
    metadata=pd.DataFrame({"subject": who}), verbose="ERROR",
)
clf = at.CensoredClassifier(max_epochs=5, lr=1e-2, device="cpu").fit(epochs, epochs.events[:, 2])
print("people", clf.subjects_, "predicts", clf.predict(epochs[:3]))
epochs.save("study-epo.fif", verbose="ERROR")
"""
PIPELINE = """
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
import autotransfer as at
sklearn.set_config(enable_metadata_routing=True)
X, y, who = windows()
clf = at.CensoredClassifier(max_epochs=5, lr=1e-2, device="cpu").set_fit_request(subjects=True)
pipeline = make_pipeline(FunctionTransformer(lambda x: x - x.mean(-1, keepdims=True)), clf)
scores = cross_val_score(pipeline, X, y, cv=GroupKFold(4), params={"subjects": who, "groups": who})
print("scores", scores.round(2).tolist())
"""
MOABB = """
import sklearn, moabb
from moabb.datasets.fake import FakeDataset
from moabb.evaluations import CrossSubjectEvaluation
from moabb.paradigms import LeftRightImagery
import autotransfer as at
moabb.set_log_level("ERROR")
dataset = FakeDataset(event_list=("left_hand", "right_hand"), paradigm="imagery", n_subjects=4, n_sessions=1, n_runs=1,
                      n_events=12, duration=60, sfreq=128, seed=0)
clf = at.CensoredClassifier(max_epochs=2, device="cpu")
found = CrossSubjectEvaluation(LeftRightImagery(), datasets=[dataset], overwrite=True, hdf5_path="moabb").process(
    {"AutoTransfer": clf})
print("scores", found.score.round(2).tolist())
"""
MOABB_TABLE = """
import autotransfer as at
ours = at.moabb_results("csv-run")
print("columns", list(ours.columns))
"""


class User:
    """An empty folder and a fresh environment; `run` is the installed command, `python` its interpreter."""

    def __init__(self, home: Path) -> None:
        self.home, self.env = home / "work", home / "env"
        self.home.mkdir(parents=True)
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.variables |= {"OMP_NUM_THREADS": "1", "MNE_DATA": str(home), "_MNE_FEW_TESTS": "1", "HOME": str(home)}

    def call(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(part) for part in command], cwd=self.home, env=self.variables, capture_output=True, text=True,
            timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done

    @property
    def command(self) -> Path:
        return self.env / "bin" / "autotransfer"

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.call(self.command, *arguments)

    def python(self, *parts: str) -> str:
        return self.call(self.env / "bin" / "python", "-W", "ignore", "-c", "\n".join([SIGNALS, *parts])).stdout

    @contextmanager
    def working(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The command at work; whatever is left of it ends with the block."""
        process = subprocess.Popen(
            [str(self.command), *arguments], cwd=self.home, env=self.variables, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def install(user: User) -> None:
    """The wheel, without an index, into an environment that has its dependencies and nothing else of ours."""
    source = user.home.parent / "source"
    source.mkdir()
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    wheels = user.home.parent / "wheels"
    user.call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation",
              "--wheel-dir", wheels, source)  # fmt: skip
    (wheel,) = wheels.glob("autotransfer-*.whl")
    user.call(sys.executable, "-m", "venv", "--without-pip", user.env)
    (packages,) = user.env.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # read, never installed into
    user.call(sys.executable, "-m", "pip", "--python", user.env / "bin" / "python", "install", "--quiet", "--no-deps",
              "--no-index", "--ignore-installed", wheel)  # fmt: skip
    shutil.rmtree(source)
    assert user.run("--version").stdout.startswith("autotransfer ")
    assert str(user.env) in user.python("import autotransfer; print(autotransfer.__file__)")


def csv_folder(user: User) -> None:
    user.python(CSV)
    told = user.run("inspect", "csv", *CUT).stdout
    assert "left" in told
    done = user.run("run", "csv", "--out", "csv-run", *CUT, *SMALL)
    assert "balanced accuracy" in done.stdout.lower()
    for name in ("report.html", "choice.json", "model/model.safetensors", "model/README.md"):
        assert (user.home / "csv-run" / name).exists(), name


def edf(user: User) -> None:
    user.python(RAW, EDF)
    user.run("run", "edf", "--out", "edf-run", "--window", "1", "--events", "T1=left,T2=right", *SMALL)
    assert (user.home / "edf-run" / "report.html").exists()


def bids(user: User) -> None:
    user.python(RAW, BIDS)
    user.run("run", "bids", "--out", "bids-run", "--window", "1", "--events", "T1=left,T2=right", *SMALL)
    chosen = json.loads((user.home / "bids-run" / "choice.json").read_text())
    assert set(chosen["nested_test_scores"]) == {"00", "01", "02", "03"}


def mne_epochs(user: User) -> None:
    assert "predicts" in user.python(EPOCHS)
    assert "p3" in user.run("inspect", "study-epo.fif").stdout


def sklearn_pipeline(user: User) -> None:
    assert len(re.findall(r"[\d.]+", user.python(PIPELINE))) == 4


def moabb(user: User) -> None:
    assert len(re.findall(r"[\d.]+", user.python(MOABB).partition("scores")[2])) == 4
    assert "samples" in user.python(MOABB_TABLE)


def predict_with_labels(user: User) -> None:
    done = user.run("predict", "csv-run", "csv-new", *CUT, "--out", "predicted.csv", "--scores", "scores.csv")
    assert "p4" in done.stderr
    assert "balanced accuracy" in done.stderr
    assert "p4" in (user.home / "scores.csv").read_text()
    assert len((user.home / "predicted.csv").read_text().splitlines()) > 12


def two_hours(user: User) -> None:
    budget = ["--time", "2h"] if "--time" in user.run("run", "--help").stdout else []
    told = user.run("run", "csv", *CUT, *budget, "--dry-run").stdout
    assert re.search(r"\d [MG]iB", told)
    assert not budget or re.search(r"\d+:\d\d", told)


class Task(NamedTuple):
    do: Callable[[User], None]
    needs: tuple[str, ...] = ()  # packages beyond our own dependencies


TASKS = {
    "install from the wheel": Task(install),
    "a folder of my own CSV files": Task(csv_folder),
    "EDF files": Task(edf, ("mne", "edfio")),
    "a BIDS folder": Task(bids, ("mne_bids", "edfio")),
    "MNE epochs": Task(mne_epochs, ("mne",)),
    "a scikit-learn pipeline": Task(sklearn_pipeline),
    "MOABB": Task(moabb, ("moabb",)),
    "predict with labels": Task(predict_with_labels),
    "a run within two hours": Task(two_hours),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        user, begun = User(Path(folder)), time.perf_counter()
        for name, task in TASKS.items():
            start = time.perf_counter()
            task.do(user)
            print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)
        print(f"{time.perf_counter() - begun:6.1f} s  in all")


if __name__ == "__main__":
    main()
