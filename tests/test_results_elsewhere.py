"""Results where people look: MOABB's table, TensorBoard's event files, the model's page for a hub, the live page."""

from __future__ import annotations

import http.client
import json
import re
import sqlite3
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.models.card import ModelCard
from autotransfer.models.model_page import model_page
from autotransfer.report.live import LivePage, rank, state_of
from autotransfer.report.moabb_results import COLUMNS
from autotransfer.runs.choice import read_choice
from autotransfer.runs.follower import RunFollower
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.lock import Lock
from autotransfer.runs.options import RunOptions
from autotransfer.runs.progress import JobNumbers, Pulse, Standing
from autotransfer.runs.results import trained
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct
from browser import Browser, find_chromium
from test_cli import assert_mistake, call
from tiny import tiny_file

EVIL = "<img src=x onerror=alert(1)>|`=1+1`"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("elsewhere")
    options = RunOptions(source=str(tiny_file(home, name=EVIL)), grid="uncensored", adaptation="none", epochs=3,
                         batch_size=16, seeds=2)  # fmt: skip
    run = Run.create(home / "run", options)
    with closing(run.ledger):
        conduct(run, lambda line: None, shown=False)
    return home / "run"


@pytest.fixture(autouse=True)
def short_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotransfer.report.live.LAST_LOOK", 1.0)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Run]:
    """A run with jobs of which none is trained."""
    options = RunOptions(source=str(tiny_file(tmp_path)), grid="uncensored", adaptation="none", epochs=3)
    run = Run.create(tmp_path / "run", options)
    run.add(run.entry("folds", setting, *fold, 0) for setting in options.settings() for fold in run.folds())
    yield run
    run.ledger.close()


# MOABB


@pytest.mark.filterwarnings("ignore:Creating a dataset without passing data")  # of h5py, to MOABB
def test_the_columns_are_those_of_moabb(tmp_path: Path) -> None:
    moabb = pytest.importorskip("moabb")
    from moabb.analysis.results import Results
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import CrossSubjectEvaluation
    from moabb.paradigms import LeftRightImagery

    del moabb
    stored = Results(CrossSubjectEvaluation, LeftRightImagery, hdf5_path=str(tmp_path))
    one = {"score": 0.5, "time": 1.0, "n_samples": 3, "n_samples_test": 2, "n_classes": 2, "subject": 1,
           "session": "0", "n_channels": 4, "dataset": FakeDataset()}  # fmt: skip
    from sklearn.dummy import DummyClassifier
    from sklearn.pipeline import make_pipeline

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


def test_moabbs_plots_and_statistics_take_it(finished: Path) -> None:
    pytest.importorskip("moabb")
    from moabb.analysis.meta_analysis import compute_dataset_statistics

    table = at.moabb_results(finished)
    found = compute_dataset_statistics(table)
    assert set(found.pipe1) <= set(table.pipeline)


def test_the_command_writes_it_and_refuses_what_is_not_finished(finished: Path, begun: Run, tmp_path: Path) -> None:
    done = call("report", finished, "--moabb", tmp_path / "moabb.csv")
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "moabb.csv")) == len(at.moabb_results(finished))
    assert_mistake(call("report", begun.folder, "--moabb", tmp_path / "no.csv"), "is not finished")
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.parametrize("asked", [["--person", "0"], ["--methods"]])
def test_what_is_only_printed_is_read_from_an_archive(
    finished: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    opened: list[str] = []
    connect = sqlite3.connect

    def connected(place: object, *given: Any, **options: Any) -> sqlite3.Connection:
        opened.append(str(place))
        return connect(str(place), *given, **options)

    monkeypatch.setattr(sqlite3, "connect", connected)
    monkeypatch.setattr("autotransfer.runs.ledger.writable", lambda folder: False)
    done = CliRunner().invoke(app, ["report", str(finished), *asked])
    assert done.exit_code == 0, done.exception
    assert opened
    # With a log beside it, which another test may have open, a ledger is read together with that.
    assert all(place.endswith(("?immutable=1", "?mode=ro")) for place in opened), opened


# TensorBoard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = loader.EventAccumulator(str(folder)).Reload()
    return {name: [(one.step, one.value) for one in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_every_training_has_its_curves_and_scores(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from autotransfer.report.tensorboard import EventFiles, folder_name

    files = EventFiles(finished, tmp_path / "tb")
    seen = RunFollower(finished).look().trainings
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


def test_names_cannot_leave_the_folder(finished: Path) -> None:
    from autotransfer.report.tensorboard import folder_name

    (one, *_) = RunFollower(finished).look().trainings
    hostile = type(one)(**{**one.__dict__, "name": "../../etc/x", "test_subject": "..\\../..\x00/passwd"})
    place = folder_name(hostile)
    assert re.fullmatch(r"[A-Za-z0-9._=+-]+/[A-Za-z0-9._=+-]+", place)
    assert not {".", ".."} & set(place.split("/"))


def test_a_run_writes_event_files_as_it_goes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    source = tiny_file(tmp_path, n_subjects=3, per_class=4)
    wanted = ("--grid", "uncensored", "--preprocessing", "none", "--epochs", 2, "--seeds", 1, "--rule", "published")
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
    assert head["metrics"] == ["balanced_accuracy"]
    ((result,),) = (one["results"] for one in head["model-index"])
    assert result["dataset"]["name"] == EVIL
    (metric,) = result["metrics"]
    assert metric["value"] == pytest.approx(np.mean(list(choice.estimate.values())), abs=1e-4)
    body = text.split("---\n", 2)[2]
    assert "<img" not in body
    assert choice.verdict in body.replace("\\", "")
    assert "left, right" in body


def test_hostile_names_stay_names_in_the_page() -> None:
    card = ModelCard(
        name='a"\n---\nlicense: mit\x1b[31m # [x](http://y)', kind="single", members=1, setting={}, n_times=8,
        channels=["C3"], sfreq=8.0, classes=["a|b", "\n# big"], subjects=3, scores={"validation_score": 0.9},
    )  # fmt: skip
    text = model_page(card)
    head = front_matter(text)
    assert "license" not in head
    assert "model-index" not in head, "a score by which training was stopped is none of people left out"
    assert "\x1b" not in text
    assert not re.search(r"^# big", text, re.MULTILINE)
    assert "](http" not in text


# The live page


def ask(url: str, what: str = "", *, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlparse(url)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)) as line:
        line.request(method, parts.path + what, headers=headers)
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_a_browser_that_goes_away_is_nothing_to_tell(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LivePage(finished) as live:
        for error in (ConnectionResetError(104, "reset by peer"), BrokenPipeError(32, "pipe"), RuntimeError("ours")):
            try:
                raise error
            except Exception:
                live.server.handle_error(None, ("127.0.0.1", 1))  # type: ignore[arg-type]  # no request is looked at
    said = capsys.readouterr().err
    assert said.count("Traceback") == 1
    assert "RuntimeError: ours" in said


def test_it_is_served_to_this_machine_and_to_those_who_know_the_address(finished: Path) -> None:
    with LivePage(finished) as live:
        port = live.server.server_address[1]
        assert live.server.server_address[0] == "127.0.0.1"
        status, headers, body = ask(live.url)
        assert status == 200
        assert b"<script nonce=" in body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        nonce = re.search(r"nonce-([^']+)", headers["Content-Security-Policy"])[1]
        assert f'nonce="{nonce}"'.encode() in body
        assert ask(live.url, Host=f"localhost:{port}")[0] == 200
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "127.0.0.1:80:80"):
            assert ask(live.url, "state", Host=host)[0] == 403, host
        for path in ("/", "/state", f"/{live.key}x/state", f"/{live.key}/../ledger.sqlite", f"/{live.key}/state/x"):
            assert ask(f"http://127.0.0.1:{port}", path)[0] == 404, path
        assert ask(live.url, method="POST")[0] == 501
        assert ask(live.url, method="HEAD")[2] == b""
    with pytest.raises(OSError, match=r"refused|reset"):
        ask(live.url)


def test_no_resource_is_named_that_is_not_in_the_page(finished: Path) -> None:
    with LivePage(finished) as live:
        body = ask(live.url)[2].decode()
    assert not re.findall(r"""(?:src|href)=["'](?!data:,|#)""", body)
    assert "http://" not in body.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in body
    assert "innerHTML" not in body


def test_the_state_is_that_of_status_and_the_ranking_that_of_the_choice(finished: Path) -> None:
    seen, choice = RunFollower(finished).look(), read_choice(finished)
    state = state_of(seen)
    assert state["share"] == 1
    assert state["state"] == "finished"
    assert state["jobs"] in call("status", finished).stdout
    assert state["chance"] == 0.5
    assert any(choice.chosen.name in line for line in state["answer"])
    means = {row["name"]: row["mean"] for row in state["ranking"]}
    assert set(means) == {one.name for one in choice.shortlist}
    assert list(means.values()) == sorted(means.values(), reverse=True)
    results = pd.read_csv(finished / "results.csv")
    for name, mean in means.items():
        own = results[results.setting == name]
        by_person = pd.concat([
            own[["validation_subject", "validation_score"]].set_axis(["who", "score"], axis=1),
            own[["test_subject", "swapped_validation_score"]].set_axis(["who", "score"], axis=1),
        ]).groupby("who").score.mean()  # fmt: skip
        assert mean == pytest.approx(by_person.mean(), abs=1e-9)
    for curve in state["curves"]:
        assert [point[0] for point in curve["points"]] == [1, 2, 3]
    with LivePage(finished) as live:
        assert json.loads(ask(live.url, "state")[2])["name"] == EVIL
        assert b"<img" not in ask(live.url, "state")[2]


def test_a_run_at_work_shows_what_is_in_work_and_nothing_of_a_population_that_is_over(begun: Run) -> None:
    entries = begun.ledger.entries()
    keys = [entry.key for entry in entries]
    begun.ledger.add_populations([keys[:2], keys[2:]])
    begun.ledger.begin(keys[:2])
    setting = entries[0].setting
    begun.ledger.remember(pulse=Pulse(1, time.time() + 60, 2, 4, 100.0, {setting.key: [0.5, 0.75]}, 1))
    with Lock(begun.folder):
        state = state_of(RunFollower(begun.folder).look())
        assert state["share"] == pytest.approx(4 / (3 * len(keys)))
        assert state["left"] == "1:40"
        name = begun.options.name_of(setting)
        assert state["curves"] == [{"name": name, "running": True, "points": [[1, 0.5], [2, 0.75]]}]
        begun.ledger.end_population(1)
        state = state_of(RunFollower(begun.folder).look())
        assert (state["share"], state["left"], state["curves"]) == (0, None, [])
    assert "interrupted" in state_of(RunFollower(begun.folder).look())["state"]


def test_a_training_process_notes_its_pulse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotransfer.runs.executor.CHECKPOINT_EVERY", 0.0)
    options = RunOptions(
        source=str(tiny_file(tmp_path, n_subjects=3, per_class=4)), grid="uncensored", adaptation="none", epochs=3,
        rule="published", batch_size=8,
    )  # fmt: skip
    run = Run.create(tmp_path / "run", options)
    with closing(run.ledger):
        conduct(run, lambda line: None, shown=False)
        pulse = run.ledger.recall("pulse", Pulse)
    assert pulse is not None
    assert pulse.epoch >= 2
    assert all(len(curve) == pulse.epoch for curve in pulse.curves.values())


def test_what_is_finished_is_read_once(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = RunFollower(finished)
    first = follower.look()
    asked: list[str] = []
    real = Ledger.records

    def records(self: Ledger, keys: object) -> object:
        asked.extend(wanted := list(keys))
        return real(self, wanted)

    monkeypatch.setattr(Ledger, "records", records)
    assert follower.look().standing == first.standing
    assert asked == []


def test_a_failed_training_counts_as_nothing_and_test_scores_do_not_rank(finished: Path) -> None:
    with closing(Ledger(finished / "ledger.sqlite", read_only=True)) as ledger:
        entries = ledger.entries()
        options = RunOptions.from_dict(ledger.recall("options", dict))
    found = trained(entries, ("a", "b", "c", "d"), options.name_of)
    worse = [
        type(one)(**{**one.__dict__, "record": type(one.record)(**{**one.record.__dict__, "test_score": 0.0})})
        for one in found
    ]
    assert rank(worse) == rank(found)
    failed = [
        type(one)(**{**one.__dict__, "record": type(one.record)(**{**one.record.__dict__, "failure": "lost"})})
        for one in found
    ]
    assert all(row["mean"] == 0 for row in rank(failed))


def test_a_damaged_run_is_said_in_the_page(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"SQLite" + struct.pack("<Q", 0) * 100)
    with LivePage(tmp_path) as live:
        assert "problem" in json.loads(ask(live.url, "state")[2])


def test_an_open_page_sees_the_end(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotransfer.report.live.LAST_LOOK", 60.0)  # on a busy machine an answer may take seconds
    live = LivePage(finished)
    live.__enter__()
    ask(live.url, "state")
    seen: list[int] = []
    again = threading.Timer(0.5, lambda: seen.append(ask(live.url, "state")[0]))
    again.start()
    live.__exit__(None, None, None)
    again.join()
    assert seen == [200]


def test_standing_says_what_status_said(finished: Path) -> None:
    with closing(Ledger(finished / "ledger.sqlite", read_only=True)) as ledger:
        standing = Standing.of(finished, ledger, [JobNumbers.of(entry) for entry in ledger.entries()])
    assert standing.lines()[0] == f"{finished}: finished"
    assert standing.share == 1


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium here")
def test_a_browser_draws_it_and_asks_nobody_else(finished: Path) -> None:
    browser = Browser()
    try:
        with LivePage(finished) as live:
            for width, phone in ((1280, False), (390, True)):
                browser.visit(live.url, width=width, height=844, phone=phone)
                browser.wait_for("document.querySelectorAll('#ranking tr').length > 0")
                assert browser.evaluate("document.getElementById('name').textContent") == EVIL
                assert browser.evaluate("document.querySelectorAll('img').length") == 0
                assert browser.evaluate("document.querySelectorAll('#curves path').length") > 0
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                others = [one for one in browser.problems if not one.startswith(f"request: {live.url}")]
                assert others == []
    finally:
        browser.close()


@pytest.mark.slow
def test_the_command_serves_it_until_it_is_stopped(begun: Run, tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    assert_mistake(call("report", tmp_path / "nothing", "--watch"), "there is no folder")
    command = [sys.executable, "-m", "autotransfer", "report", str(begun.folder), "--watch"]

    def heed_interrupts() -> None:  # whoever started the tests may ignore them
        signal.signal(signal.SIGINT, signal.default_int_handler)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=heed_interrupts, **pipes) as process:
        try:
            url = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())[0]
            assert json.load(urllib.request.urlopen(f"{url}state", timeout=60))["complete"] is False
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_tensorboard_is_missed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from autotransfer.report.tensorboard import import_summary_writer

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match=r"needs tensorboard.*pip install tensorboard"):
        import_summary_writer()
