"""The proof on tiny recordings: its tables, its control, and that it continues after being stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.proof import main

from autotransfer.training.trainer import Trainer
from tiny import tiny_file

QUICK = ["--seeds", "2", "--epochs", "2", "--device", "cpu", "--lr", "0.01", "--batch-size", "16"]


pytestmark = pytest.mark.slow  # a whole run and its control


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data file and folder of a proof with its control."""
    folder = tmp_path_factory.mktemp("proof")
    data = tiny_file(folder)
    for control in ([], ["--shuffled"]):
        assert main([str(data), "--out", str(folder / "out"), *QUICK, *control]) == 0
    return data, folder / "out"


def test_every_table_has_the_set_and_the_control(proven: tuple[Path, Path]) -> None:
    for name in ("results", "scores", "leakage"):
        table = pd.read_csv(proven[1] / f"{name}.csv", keep_default_na=False)
        assert list(table.columns[:2]) == ["dataset", "control"]
        assert set(table["dataset"]) == {"tiny"}
        assert set(table["control"]) == {False, True}


def test_scores_are_those_of_the_run(proven: tuple[Path, Path]) -> None:
    scores = pd.read_csv(proven[1] / "scores.csv")
    results = pd.read_csv(proven[1] / "results.csv", keep_default_na=False)
    assert {"none", "choosing", "equal", "nested", "mmd", "adversary", "without_eegnet"} <= set(scores["pipeline"])
    baseline = scores[(scores["pipeline"] == "none") & ~scores["control"]].set_index("subject")["score"]
    plain = results[results["baseline"] & (results["control"].astype(str) == "False")]
    assert len(plain) == 4 * 2  # subjects × seeds
    expected = plain.groupby("test_subject")["test_score"].mean()
    assert baseline.to_dict() == pytest.approx(expected.to_dict(), abs=1e-5)


def test_the_control_shuffles_every_censor_and_leaves_the_baseline(proven: tuple[Path, Path]) -> None:
    results = pd.read_csv(proven[1] / "results.csv", keep_default_na=False)
    control = results[results["control"].astype(str) == "True"]
    censored = control[control["method"] != "none"]
    assert len(censored)
    assert censored["setting"].str.endswith("shuffled").all()
    true = results[(results["control"].astype(str) == "False") & (results["method"] == "none")]
    baseline = control[control["method"] == "none"]
    assert baseline["test_score"].tolist() == true["test_score"].tolist()


def test_twins_are_named_as_settings_of_the_run(proven: tuple[Path, Path]) -> None:
    results = pd.read_csv(proven[1] / "results.csv", keep_default_na=False)
    mmd = results[(results["control"].astype(str) == "False") & (results["method"] == "mmd")]
    assert set(mmd["uncensored"]) == {"baseline with batches balanced", "baseline with batches people"}
    assert set(mmd["uncensored"]) <= set(results["setting"])
    control = results[results["control"].astype(str) == "True"]
    assert set(mmd["shuffled"]) <= set(control["setting"])
    assert set(results["checkpoint"]) == {"best"}


def test_stopped_and_repeated_gives_the_same_table(
    proven: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, whole = proven
    command = [str(data), "--out", str(tmp_path), *QUICK]

    epochs = iter(range(3))
    real = Trainer.train_epoch

    def stopped(population: Trainer) -> None:
        if next(epochs, None) is None:
            raise KeyboardInterrupt
        real(population)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            main(command)
    assert not (tmp_path / "scores.csv").exists()
    assert main(command) == 0
    expected = pd.read_csv(whole / "scores.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "scores.csv"), expected[~expected["control"]])


def test_other_options_for_the_same_folder_are_refused(
    proven: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = proven
    assert main([str(data), "--out", str(out), *QUICK, "--seeds", "5"]) == 2
    assert "was begun with seeds 2, not 5" in capsys.readouterr().err


@pytest.mark.slow
def test_it_needs_no_package_that_a_bare_machine_lacks(proven: tuple[Path, Path], tmp_path: Path) -> None:
    absent = ("optuna", "plotly", "typer", "sqlalchemy", "mne", "matplotlib", "pyriemann", "skorch", "skada")
    code = f"""
import sys
for name in {absent!r}:
    sys.modules[name] = None  # importing it now fails
from benchmarks.proof import main
sys.exit(main({[str(proven[0]), "--out", str(tmp_path), *QUICK, "--seeds", "1", "--epochs", "1"]!r}))
"""
    root = Path(__file__).parent.parent
    process = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "scores.csv").exists()
