"""Results as MOABB's table, TensorBoard's event files and the model's page for a hub."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.models.card import CandidateCard, ModelCard
from autotransfer.models.model_page import model_page
from autotransfer.recordings.signal import Signal
from autotransfer.report.moabb_results import COLUMNS
from autotransfer.runs.choice import read_choice
from autotransfer.runs.results import read_fits
from autotransfer.search.procedure import perform_plan
from test_cli import call
from tiny import create_run, described, tiny_file

EVIL = "<img src=x onerror=alert(1)>|`=1+1`"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("elsewhere")
    options = described(source=str(tiny_file(home, name=EVIL)), grid="uncensored", adaptation="none", max_epochs=3,
                         batch_size=16, seeds=2)  # fmt: skip
    run = create_run(home / "run", options)
    with closing(run.database):
        perform_plan(run, lambda line: None, progress=False)
    return home / "run"


# MOABB


@pytest.mark.filterwarnings("ignore:Creating a dataset without passing data")  # of h5py, to MOABB
@pytest.mark.slow
def test_the_columns_are_those_of_moabb(tmp_path: Path) -> None:
    pytest.importorskip("moabb")
    from moabb.analysis.results import Results
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery
    from sklearn.dummy import DummyClassifier
    from sklearn.pipeline import make_pipeline

    stored = Results(CrossSubjectEvaluation, LeftRightImagery, hdf5_path=str(tmp_path))
    one = {"score": 0.5, "time": 1.0, "n_samples": 3, "n_samples_test": 2, "n_classes": 2, "subject": 1,
           "session": "0", "n_channels": 4, "dataset": FakeDataset()}  # fmt: skip
    pipeline = make_pipeline(DummyClassifier())
    stored.add({"dummy": [one]}, {"dummy": pipeline}, pipeline)
    theirs = [name for name in stored.to_dataframe().columns if "carbon" not in name]
    assert theirs == COLUMNS


def test_scores_come_as_moabbs_results(finished: Path) -> None:
    table, choice = at.moabb_results(finished), read_choice(finished)
    assert list(table.columns) == COLUMNS
    delivered = table[table.pipeline == "AutoTransfer"].set_index("subject")
    assert delivered.score.to_dict() == choice.estimate
    results = pd.read_csv(finished / "results.csv", dtype={"test_subject": str})
    for name, own in table[table.pipeline != "AutoTransfer"].groupby("pipeline"):
        expected = results[results.setting == name].groupby("test_subject").test_score.mean()
        pd.testing.assert_series_equal(own.set_index("subject").score.sort_index(), expected, check_names=False)
    assert set(table.pipeline) == {"AutoTransfer", *(one.name for one in choice.shortlist)}
    assert set(table.samples) == {24.0}, "two of four people train, twelve trials each"
    assert set(table.samples_test) == {12.0}
    assert set(table.dataset) == {EVIL}


# TensorBoard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loader.EventAccumulator(str(folder)).Reload()
    return {name: [(one.step, one.value) for one in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_every_training_has_its_curves_and_scores(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from autotransfer.report.tensorboard import EventFiles, folder_name

    files = EventFiles(finished, tmp_path / "tb")
    seen = read_fits(finished).fits
    assert files.update() == len(seen) == len(pd.read_csv(finished / "results.csv"))
    assert len({folder_name(one) for one in seen}) == len(seen)
    for one in seen[:3]:
        found = scalars(tmp_path / "tb" / folder_name(one))
        for name, values in one.record.history.items():
            known = [(epoch, value) for epoch, value in enumerate(values, 1) if np.isfinite(value)]
            np.testing.assert_allclose(found.get(name, []), known, rtol=1e-6)
        np.testing.assert_allclose(found["score/test"][0][1], one.record.test_score, rtol=1e-6)
    before = len(list((tmp_path / "tb").glob("*/*/*")))
    EventFiles(finished, tmp_path / "tb").update()  # once more: nothing is there twice
    assert len(list((tmp_path / "tb").glob("*/*/*"))) == before


def test_a_run_writes_event_files_as_it_goes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    source = tiny_file(tmp_path, n_subjects=3, per_class=4)
    wanted = ("--grid", "uncensored", "--adaptation", "none", "--epochs", 2, "--seeds", 1, "--rule", "published")
    done = call("run", source, "--out", tmp_path / "run", *wanted, "--tensorboard", tmp_path / "tb", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "tb").glob("*/*"))) == len(pd.read_csv(tmp_path / "run" / "results.csv"))


# The model's page


def front_matter(text: str) -> dict[str, object]:
    yaml = pytest.importorskip("yaml")
    _, head, _ = text.split("---\n", 2)
    return yaml.safe_load(head)


def test_a_model_has_a_page_for_a_hub(finished: Path) -> None:
    text = (finished / "model" / "README.md").read_text()
    head, choice = front_matter(text), read_choice(finished)
    assert head["library_name"] == "autotransfer"
    body = text.split("---\n", 2)[2]
    assert "<img" not in body
    assert choice.headline in body.replace("\\", "")
    assert "left, right" in body


def test_hostile_names_stay_names_in_the_page() -> None:
    card = ModelCard(
        name='a"\n---\nlicense: mit\x1b[31m # [x](http://y)', candidates=[CandidateCard({}, 1)], weights=[1.0],
        n_times=8, signal=Signal(channels=("C3",), sfreq=8.0), classes=["a|b", "\n# big"], subjects=3,
        scores={"validation_score": 0.9},
    )  # fmt: skip
    text = model_page(card)
    head = front_matter(text)
    assert "license" not in head
    assert "0.9" not in text, "a score by which training was stopped is none of people left out"
    assert "\x1b" not in text
    assert not re.search(r"^# big", text, re.MULTILINE)
    assert "](http" not in text
