"""No decoded window spans lost samples, and sessions in any order equal plain ones."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.errors import UserError
from autotransfer.person.stream import source as sources
from autotransfer.person.stream.run import Stream
from autotransfer.person.stream.sink import CsvSink
from autotransfer.person.stream.source import Chunk
from autotransfer.recordings.signal import Signal
from ensembles import weighted
from test_entry_points import known
from test_session import OWN, REC, model

RATE, NAMES = 200.0, ("a", "b", "c")
NO_TIMES = [np.nan, np.inf, -np.inf, 1e300, -1e13]


class Script:
    """A source that hands over what it was told, with channels in an order of its own."""

    name, is_live, stored_times = "script", False, None

    def __init__(self, chunks: list[Chunk], sfreq: float | None = RATE, channels: tuple[str, ...] = NAMES) -> None:
        self.given, self.signal = chunks, Signal(channels=channels, sfreq=sfreq)
        self.renamed = False  # at the end, as `LslSource` refuses a stream that comes back with other names

    def chunks(self) -> Iterator[Chunk | None]:
        for chunk in self.given:
            yield chunk
            yield None
        if self.renamed:
            raise UserError("script came back with other channels or another rate; start again")

    def close(self) -> None:
        pass


class Recorder:
    """In place of a session: remembers the windows that it is asked to decode."""

    def __init__(self, n_times: int, sfreq: float | None = RATE) -> None:
        signal = Signal(channels=NAMES, sfreq=sfreq)
        card = SimpleNamespace(channels=NAMES, n_times=n_times, sfreq=sfreq, signal=signal, scale=None)
        self.model = SimpleNamespace(card=card)
        self.classes_ = np.array(["left", "right"])
        self.windows: list[np.ndarray] = []

    def predict_proba(self, window: np.ndarray) -> np.ndarray:
        self.windows.append(window)
        return np.array([0.5, 0.5])


class Streams(RuleBasedStateMachine):
    """The oracle is a list of slots for each recording, one for every tick of the clock: the sample that came, or None.
    A window is decoded where all its slots hold samples."""

    n_faults = 0  # of all histories

    @initialize(
        n_times=st.integers(8, 20), hop=st.integers(1, 30), size=st.integers(1, 40), jitter=st.sampled_from([0, 0.1]),
        order=st.permutations(range(3)),
    )  # fmt: skip
    def begin(self, n_times: int, hop: int, size: int, jitter: float, order: list[int]) -> None:
        self.n_times, self.hop, self.size, self.jitter, self.order = n_times, hop, size, jitter, order
        self.draw = np.random.default_rng(0)
        self.clock, self.number = 1000.0, 0
        self.slots: list[list[int | None]] = [[]]
        self.rows: list[tuple[float, int, float]] = []  # stamp, number, what is added to the value
        self.unstamped, self.renamed = 0, False
        self.stamped = False  # whether the clock is known: nobody misses what came before it

    def _sample(self, stamp: float | None = None, spoilt: float = 0.0) -> None:
        """One tick: a sample with its right stamp or this one; spoilt: NaN or infinite where it is no number."""
        right = self.clock + self.jitter * self.draw.uniform(0, 1) / RATE
        self.rows.append((right if stamp is None else stamp, self.number, spoilt))
        self.slots[-1].append(None if stamp is not None or spoilt else self.number)
        self.unstamped += stamp is not None
        self.stamped |= stamp is None
        self.clock += 1 / RATE
        self.number += 1

    @rule(n=st.integers(1, 60))
    def samples(self, n: int) -> None:
        for _ in range(n):
            self._sample()

    @rule(n=st.integers(1, 200))
    def lost(self, n: int) -> None:
        Streams.n_faults += 1
        self.slots[-1] += [None] * (n if self.stamped else 0)
        self.clock += n / RATE
        self.number += n
        self._sample()

    @rule(n=st.integers(1, 5), value=st.sampled_from([np.nan, np.inf, -np.inf]))
    def no_numbers(self, n: int, value: float) -> None:
        Streams.n_faults += 1
        for _ in range(n):
            self._sample(spoilt=value)

    @rule(n=st.integers(1, 5), stamp=st.sampled_from(NO_TIMES))
    def no_times(self, n: int, stamp: float) -> None:
        Streams.n_faults += 1
        for _ in range(n):
            self._sample(stamp)

    @rule(n=st.integers(1, 150), bad=st.integers(1, 3), stamp=st.sampled_from(NO_TIMES))
    def lost_behind_bad_stamps(self, n: int, bad: int, stamp: float) -> None:
        self.no_times(bad, stamp)
        self.lost(n)

    @precondition(lambda self: self.stamped)
    @rule(seconds=st.integers(1, 1000))
    def back(self, seconds: int) -> None:
        """Far enough that it cannot be jitter. The stamp after it is right, and numbers."""
        Streams.n_faults += 1
        self.clock -= len(self.slots[-1]) / RATE + seconds
        self.slots.append([])
        self._sample()

    @rule()
    def other_channels(self) -> None:
        self.renamed = True

    def teardown(self) -> None:
        if not hasattr(self, "rows") or not self.rows:
            return
        times, numbers, spoilt = (np.array(column) for column in zip(*self.rows, strict=True))
        # Each channel tells which sample it is, and which channel.
        values = (numbers + spoilt)[:, None] + 0.25 * np.arange(3)
        values = values[:, self.order].astype(np.float32)
        chunks = [
            Chunk(times[start : start + self.size], values[start : start + self.size])
            for start in range(0, len(times), self.size)
        ]
        source = Script(chunks, channels=tuple(NAMES[place] for place in self.order))
        source.renamed = self.renamed
        session, file = Recorder(self.n_times), io.StringIO()
        stream = Stream(session, source, hop=self.hop / RATE)  # type: ignore[arg-type]  # what it needs of a session
        try:
            stream.run(CsvSink(file, ["left", "right"]))
            ended = True
        except UserError:
            ended = False
        assert ended != self.renamed
        wanted = [
            slots[start : start + self.n_times]
            for slots in self.slots
            for start in range(0, len(slots) - self.n_times + 1, self.hop)
            if None not in slots[start : start + self.n_times]
        ]
        found = [window[0].astype(int).tolist() for window in session.windows]
        for window in session.windows:
            assert (np.diff(window, axis=1) == 1).all(), "a decoded window spans lost samples"
            assert (np.diff(window, axis=0) == 0.25).all(), "channels changed places"
        # Where the source failed, what waits for jitter to be known may not have been decoded yet.
        assert found == (wanted if ended else wanted[: len(found)])
        assert len(file.getvalue().splitlines()) == 1 + len(found), "the file has what was decoded"
        assert stream.summary.untimed == self.unstamped
        if ended:
            assert stream.summary.restarts == len(self.slots) - 1


MODELS = [
    known(standardize="online"),
    weighted([known(align="online"), known(seed=2, encoder="shallow")], [0.5, 0.7]),
]


@cache
def plain(which: int, adapt: bool) -> at.Session:
    """One that is never saved; opening one takes a while."""
    return at.Session(MODELS[which], adapt=adapt)


class Sessions(RuleBasedStateMachine):
    """A session that is saved, loaded, asked and refused windows equals one to which only the rest happened.

    A file of a session holds no windows, so that labels and questions about windows end with a load.
    """

    n_faults = 0  # refused windows and loads of all histories

    @initialize(which=st.integers(0, 1), adapt=st.booleans())
    def begin(self, which: int, adapt: bool) -> None:
        self.which, self.adapt = which, adapt
        self.session = at.Session(MODELS[which], adapt=adapt)
        self.is_loaded = False
        self.happened: list[tuple[str, tuple[Any, ...]]] = []  # methods that count, with what they were given
        self.said: list[Any] = []

    def _do(self, name: str, *given: Any) -> None:
        self.said.append(getattr(self.session, name)(*given))
        self.happened.append((name, given))

    @rule(n=st.integers(1, 4), start=st.integers(0, 30))
    def feed(self, n: int, start: int) -> None:
        self._do("predict_proba", OWN[start].numpy() if n == 1 else OWN[start : start + n].numpy())

    @precondition(lambda self: not self.is_loaded)
    @rule(start=st.integers(0, 30), y=st.integers(0, 1))
    def label(self, start: int, y: int) -> None:
        self._do("label", OWN[start].numpy(), self.session.classes_[y])

    @precondition(lambda self: not self.is_loaded)
    @rule(start=st.integers(0, 30))
    def ask(self, start: int) -> None:
        self._do("expected_gain", OWN[start].numpy())

    @rule(value=st.sampled_from([np.nan, np.inf, 1e30]))
    def refuse(self, value: float) -> None:
        Sessions.n_faults += 1
        window = OWN[0].numpy().copy()
        window[1, 3] = value
        with pytest.raises(UserError):
            self.session.predict_proba(window)
        with pytest.raises(UserError):
            self.session.label(window, self.session.classes_[0])
        with pytest.raises(UserError):
            self.session.predict_proba(np.ma.masked_greater(OWN[0].numpy(), 0))

    @rule()
    def reset(self) -> None:
        self.session.reset()
        self.is_loaded = False
        self.happened, self.said = [], []

    @rule()
    def save_and_load(self) -> None:
        Sessions.n_faults += 1
        with tempfile.TemporaryDirectory() as folder:
            self.session.save(Path(folder) / "ann.session")
            self.session = at.Session.load(Path(folder) / "ann.session", MODELS[self.which])
        self.is_loaded = True
        assert self.session.adapts == self.adapt

    def teardown(self) -> None:
        if not getattr(self, "said", None):
            return
        other = plain(self.which, self.adapt)
        other.reset()
        for (name, given), said in zip(self.happened, self.said, strict=True):
            again = getattr(other, name)(*given)
            if said is not None:
                np.testing.assert_allclose(said, again, rtol=0, atol=1e-5)
        assert (self.session.n_windows, self.session.n_labels) == (other.n_windows, other.n_labels)


QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("histories", [40, pytest.param(300, marks=pytest.mark.faults)])
def test_no_decoded_window_spans_lost_samples(histories: int, campaign: Callable[..., None]) -> None:
    Streams.n_faults = 0
    run_state_machine_as_test(Streams, settings=settings(max_examples=histories, stateful_step_count=12, **QUICK))
    campaign("streams", Streams.n_faults)


@pytest.mark.parametrize("histories", [40, pytest.param(120, marks=pytest.mark.faults)])
def test_a_session_in_any_order_equals_a_plain_one(histories: int, campaign: Callable[..., None]) -> None:
    Sessions.n_faults = 0
    run_state_machine_as_test(Sessions, settings=settings(max_examples=histories, stateful_step_count=8, **QUICK))
    campaign("sessions", Sessions.n_faults)


# one by one


def test_the_command_keeps_what_was_decoded_and_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that comes back with other channels ends in one line, after rows and a session that can be used."""
    model(standardize="online").save(tmp_path / "run" / "model")
    values = np.concatenate(list(OWN.numpy()), 1).T
    times = np.arange(len(values)) / 24.0
    times[100] = np.inf
    script = Script([Chunk(times, values)], sfreq=24.0, channels=tuple(REC.channels))
    script.renamed = True
    monkeypatch.setattr(sources, "open_source", lambda text, *_: script)
    given = ["--source", "lsl:ann", "--out", str(tmp_path / "a.csv"), "--session", str(tmp_path / "s")]
    result = CliRunner().invoke(app, ["stream", str(tmp_path / "run"), *given])
    assert isinstance(result.exception, UserError), "the command line makes a line of it"
    rows = len((tmp_path / "a.csv").read_text().splitlines()) - 1
    assert rows > 70
    assert at.Session.load(tmp_path / "s", tmp_path / "run").n_windows == rows
    assert json.dumps(result.stderr).count("windows decoded") == 1
