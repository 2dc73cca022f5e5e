"""A stream is decoded as in batch prediction, and every lost window is reported."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.person.stream.cutter import Cutter, Gap
from autotransfer.person.stream.sink import open_sink
from autotransfer.person.stream.source import Chunk, open_source
from autotransfer.recordings.filters import CausalFilter
from autotransfer.recordings.timestamps import GapDetector
from ensembles import weighted
from faults import invoke
from test_session import OWN, REC, model

ROOT = Path(__file__).parent.parent
CHANNELS, TIMES, RATE = 3, 24, 24.0  # of the models of test_session


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a run leaves it: a mixture that adapts."""
    folder = tmp_path_factory.mktemp("run")
    weighted([model(standardize="online"), model(1, encoder="shallow")], [0.5, 0.7]).save(folder / "model")
    return folder


def person_file(path: Path, X: np.ndarray, *, subject: Any = None, **changes: Any) -> None:
    meta = {"sfreq": RATE, "channels": list(REC.channels)} | changes
    np.savez(path, X=X, meta=json.dumps(meta), **({} if subject is None else {"subject": subject}))


def table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def probabilities(found: pd.DataFrame) -> np.ndarray:
    return found[["p_left", "p_right"]].to_numpy()


def test_a_full_disk_leaves_no_empty_file(run: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no limits of processes")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            open_sink(str(tmp_path / "out.csv"), ["left", "right"], "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "out.csv").exists()


# which samples are missing


def stamps(n: int, sfreq: float = 200.0) -> np.ndarray:
    return 1000 + np.arange(n) / sfreq


def fed(pace: GapDetector, times: np.ndarray, size: int = 7) -> np.ndarray:
    return np.concatenate([pace.count_missing(times[start : start + size]) for start in range(0, len(times), size)])


@pytest.mark.parametrize("kind", ["each", "chunks", "drift", "slow drift back"])
def test_jitter_and_drift_are_no_losses_but_a_burst_is(kind: str) -> None:
    draw, times = np.random.default_rng(0), stamps(20_000)
    if kind == "each":
        times = times + draw.uniform(0, 0.004, len(times))
    elif kind == "chunks":
        times = times + np.repeat(draw.uniform(0, 0.02, len(times) // 10), 10)
    else:
        times = 1000 + (times - 1000) * (1 + (1e-4 if kind == "drift" else -1e-4))
    pace = GapDetector(200.0)
    pace.learn(times[:200])
    assert fed(pace, times).sum() == 0
    kept = np.ones(len(times), bool)
    kept[5000:5020] = False
    pace = GapDetector(200.0)
    pace.learn(times[:200])
    found = fed(pace, times[kept])
    assert found[found > 0].tolist() == [pytest.approx(20, abs=4)]


# windows


def cut(cutter: Cutter, times: np.ndarray, values: np.ndarray, size: int) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(times), size):
        found += cutter.feed(Chunk(times[start : start + size], values[start : start + size]))
    return found + list(cutter.finish())


def cutter(n_times: int, hop: int, channels: int = 2) -> Cutter:
    return Cutter(n_times, hop, 200.0, CausalFilter(None, 200.0, channels))


def test_a_long_silence_costs_no_memory_and_is_counted() -> None:
    own = cutter(20, 10)
    times = np.concatenate([stamps(100), stamps(100) + 3600])
    events = cut(own, times, np.zeros((200, 2), np.float32), 10)
    (gap,) = [event for event in events if isinstance(event, Gap)]
    assert gap.samples == 3600 * 200 - 100
    assert gap.windows == pytest.approx(gap.samples / 10, abs=2)
    assert own.values.shape[1] <= 30


# files


def test_windows_of_a_file_are_decoded_as_in_one_call(run: Path, tmp_path: Path) -> None:
    person_file(tmp_path / "ann.npz", OWN.numpy())
    result = invoke("stream", run, "--source", tmp_path / "ann.npz", "--out", tmp_path / "out.csv")
    found, together = table(tmp_path / "out.csv"), at.load_model(run).predict_proba(OWN)
    assert len(found) == len(OWN) == 40
    np.testing.assert_allclose(probabilities(found), together, atol=2e-5)
    assert found["prediction"].tolist() == [["left", "right"][k] for k in together.argmax(1)]
    assert "40 windows decoded, 0 missed" in result.stderr


@pytest.mark.parametrize(("seconds", "windows"), [(6, 6), (6.9, 6), (7, 7), (0.5, 0), (100, 40)])
def test_seconds_end_after_the_last_window_within_them(run: Path, tmp_path: Path, seconds: float, windows: int) -> None:
    person_file(tmp_path / "ann.npz", OWN.numpy())
    person_file(tmp_path / "long.npz", np.concatenate(list(OWN.numpy()), 1)[None])
    for name in ("ann", "long"):
        told = invoke("stream", run, "--source", tmp_path / f"{name}.npz", "--hop", 1, "--seconds", seconds)
        found = pd.read_csv(io.StringIO(told.stdout))
        assert found["window"].tolist() == list(range(windows))
        assert (found["time"] < seconds).all()


def test_a_session_continues(run: Path, tmp_path: Path) -> None:
    for name, rows in (("first", slice(0, 25)), ("second", slice(25, 40))):
        person_file(tmp_path / f"{name}.npz", OWN.numpy()[rows])
        invoke("stream", run, "--source", tmp_path / f"{name}.npz", "--out", tmp_path / f"{name}.csv",
                "--session", tmp_path / "ann.session")  # fmt: skip
    found = np.concatenate([probabilities(table(tmp_path / f"{name}.csv")) for name in ("first", "second")])
    np.testing.assert_allclose(found, at.load_model(run).predict_proba(OWN), atol=2e-5)
    assert at.Session.load(tmp_path / "ann.session", run).n_windows == 40


@pytest.mark.parametrize(
    "options", ["hop 0", "hop nan", "hop inf", "session nowhere/ann.session", "seconds -1", "out o.txt", "filter 1-13"]
)
def test_impossible_options_of_a_stream_are_refused(run: Path, tmp_path: Path, options: str) -> None:
    person_file(tmp_path / "x.npz", OWN.numpy())
    with pytest.raises(UserError):
        invoke("stream", run, "--source", tmp_path / "x.npz", *f"--{options}".split())


@pytest.mark.parametrize("changes", [{"sfreq": 48.0}, {"channels": ["ch0", "ch1"]}, {"subject": np.arange(40) % 2}])
def test_files_that_do_not_fit_a_stream_are_refused(run: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    person_file(tmp_path / "x.npz", OWN.numpy()[:, : len(changes.get("channels", REC.channels))], **changes)
    with pytest.raises(UserError):
        invoke("stream", run, "--source", tmp_path / "x.npz")


# the Lab Streaming Layer, on this machine alone

CONFIG = """[multicast]
ResolveScope = machine
[lab]
KnownPeers = {{127.0.0.1}}
SessionID = autotransfer-{session}
[ports]
IPv6 = disable
[log]
level = -3
"""
needs_lsl = pytest.mark.skipif(find_spec("mne_lsl") is None, reason="needs the extra: pip install '.[lsl]'")
Env = dict[str, str]


@pytest.fixture
def loopback(tmp_path: Path) -> Env:
    """The environment of processes that hear only each other."""
    config = tmp_path / "lsl.cfg"
    config.write_text(CONFIG.format(session=f"{os.getpid()}-{tmp_path.name}"))
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return os.environ | {"LSLAPICFG": str(config), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def start(env: Env, *given: object) -> subprocess.Popen[str]:
    words = [sys.executable, *map(str, given)]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], seconds: float = 300) -> tuple[str, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"{process.args} did not end: {out} {err}")
    return out, err


def interrupted(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, which is how streams end; what it said."""
    time.sleep(0.5)  # what was sent is on its way
    process.send_signal(signal.SIGINT)
    _, err = ended(process)
    assert process.returncode == 0, err
    return err


def streamed(env: Env, run: Path, *options: object) -> subprocess.Popen[str]:
    return start(env, "-m", "autotransfer", "stream", run, "--source", "lsl:ann", *options)


LISTENER = """
import sys, time
from mne_lsl.lsl import StreamInlet, resolve_streams
(info,) = resolve_streams(timeout=120, name="decoded")
inlet = StreamInlet(info)
inlet.open_stream(timeout=60)
print(inlet.get_sinfo().get_channel_names(), inlet.get_sinfo().sfreq, flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    values, times = inlet.pull_chunk(timeout=0.2)
    for t, v in zip(times, values):
        print(t, *v, flush=True)
"""


@pytest.mark.slow
@needs_lsl
def test_a_stream_is_decoded_like_the_recording_and_sent_on(run: Path, tmp_path: Path, loopback: Env) -> None:
    together = at.load_model(run).predict_proba(OWN)
    assert np.abs(together[:-1] - together[-1]).max(1).min() > 1e-4, "the last answer is told from those before"
    person_file(tmp_path / "ann.npz", OWN.numpy())
    replay = start(loopback, "-m", "benchmarks.replay", tmp_path / "ann.npz", "ann", "--speed", 20, "--chunk", 5)
    listener = start(loopback, "-c", LISTENER)
    process = streamed(loopback, run, "--out", "lsl:decoded", "--hop", 1, "--session", tmp_path / "ann.session")
    assert listener.stdout.readline() == "['left', 'right', 'class'] 0.0\n"
    rows: list[list[float]] = []
    for line in listener.stdout:  # until the last answer has come, or the listener gives up
        rows.append([float(word) for word in line.split()])
        if np.allclose(rows[-1][1:3], together[-1], rtol=0, atol=2e-5):
            break
    listener.kill()
    listener.communicate()
    ended(replay)
    err = interrupted(process)
    assert "40 windows decoded, 0 missed" in err.splitlines()[-1], err
    assert "Traceback" not in err
    assert at.Session.load(tmp_path / "ann.session", run).n_windows == 40
    sent = np.array(rows)
    assert len(sent) >= 10, "the listener may have come a little later"
    np.testing.assert_allclose(sent[:, 1:3], together[-len(sent) :], atol=2e-5)
    np.testing.assert_array_equal(sent[:, 3], together[-len(sent) :].argmax(1))


@pytest.mark.slow
@needs_lsl
def test_lost_samples_jitter_and_a_stream_that_comes_back(run: Path, tmp_path: Path, loopback: Env) -> None:
    person_file(tmp_path / "ann.npz", OWN.numpy())
    replay = start(loopback, "-m", "benchmarks.replay", tmp_path / "ann.npz", "ann", "--speed", 20, "--chunk", 4,
                   "--jitter", 0.01, "--drop", 6, "--stop", 480, "--pause", 2.5, "--seed", 3)  # fmt: skip
    process = streamed(loopback, run, "--out", tmp_path / "out.csv", "--hop", 0.5)
    done = json.loads(ended(replay)[0].splitlines()[-1])
    err = interrupted(process)
    assert done["dropped"] > 0
    assert "waiting for the stream 'ann'" in err
    assert "is back after" in err
    found = table(tmp_path / "out.csv")
    usable = np.ones(done["samples"], bool)
    for first, last in done["bursts"]:
        usable[first:last] = False
    # Stamps of this replay run on through the pause: nothing but what was dropped is missing.
    whole = [k for k, s in enumerate(range(0, 960 - TIMES + 1, 12)) if usable[s : s + TIMES].all()]
    signal = np.concatenate(list(OWN.numpy()), 1)
    windows = np.stack([signal[:, 12 * k : 12 * k + TIMES] for k in whole])
    assert found["window"].tolist() == whole, err
    np.testing.assert_allclose(probabilities(found), at.load_model(run).predict_proba(windows), atol=2e-5)
    assert f"{len(whole)} windows decoded" in err
    assert f"{done['dropped']} samples lost in {len(done['bursts'])} gap" in err


def test_a_missing_extra_names_the_package(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mne_lsl.lsl", None)
    monkeypatch.setitem(sys.modules, "mne_lsl", None)
    monkeypatch.setitem(sys.modules, "pyxdf", None)
    (tmp_path / "x.xdf").write_bytes(b"")
    for source in ("lsl:ann", str(tmp_path / "x.xdf")):
        with pytest.raises(UserError, match=r"pip install (mne-lsl|pyxdf)"):
            open_source(source)
