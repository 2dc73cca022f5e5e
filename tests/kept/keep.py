"""Keep small files of the version that is installed: python tests/kept/keep.py. Run once, before a release.

It writes tests/kept/VERSION.tar.xz, which tests/test_kept.py opens from then on with every later version. It uses
commands and public names alone, so that an older checkout can run it too: PYTHONPATH=OLD/src.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

import autotransfer as at

SHORT = ["--epochs", "2", "--seeds", "1", "--batch-size", "16", "--device", "cpu", "--grid", "uncensored"]
# The report is written anew by the test, and the backup of a ledger is a copy of it.
NOT_KEPT = ("report.html", "ledger.backup.sqlite", "lock", "README.md")


def autotransfer(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "autotransfer", *arguments], check=True)


def make() -> None:
    """Recordings, a run with its average, a model of one setting, a calibrated one, a session; what they predict."""
    rec = at.synthetic(
        n_subjects=5, trials_per_class=4, n_channels=2, n_times=16, sfreq=16.0, subject_shift=0.5, noise=1.0
    )
    X, y, person = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    for name, rows in (("study", person < 4), ("new", person == 4)):
        np.savez(name, X=X[rows], y=y[rows], subject=person[rows], meta='{"sfreq": 16, "name": "kept"}')
    autotransfer("run", "study.npz", "--out", "run", "--preprocessing", "online", *SHORT)
    autotransfer("run", "study.npz", "--out", "published", "--rule", "published", *SHORT)
    autotransfer("calibrate", "run", "new.npz", "--out", "calibrated")
    Path("published/model").rename("one")
    X = X[person == 4]
    probabilities = {name: at.load_model(name).predict_proba(X) for name in ("run", "one", "calibrated")}
    session = at.Session("run")
    session.predict_proba(X[:4])
    session.save("person.session")
    probabilities["session"] = session.predict_proba(X[4:])
    np.savez("probabilities.npz", **probabilities)


def main() -> None:
    archive = Path(__file__).parent / f"{at.__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "here"], check=True, cwd=folder)
        with tarfile.open(archive, "w:xz", preset=9) as out:
            for path in sorted(Path(folder).rglob("*")):
                name = path.relative_to(folder)
                if path.is_file() and name.parts[0] != "published" and path.name not in NOT_KEPT:
                    info = out.gettarinfo(path, str(name))
                    info.uid = info.gid = info.mtime = 0
                    info.uname = info.gname = ""
                    with path.open("rb") as file:
                        out.addfile(info, file)
    print(f"{archive}: {archive.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        make()
    else:
        main()
