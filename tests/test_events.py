"""Events in a stream are counted by hand, and a live stream equals its replay."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.person.events import (
    Activation,
    EventDetector,
    EventScores,
    map_events,
    parse_debounce,
    score_events,
)
from autotransfer.person.stream.replay import RecordingSource, count_decoded_seconds, replay
from autotransfer.person.stream.run import Stream
from autotransfer.person.stream.sink import CsvSink
from autotransfer.recordings.cutting import Event
from autotransfer.recordings.signal import Signal
from autotransfer.recordings.sources import WholeRecording, read_whole
from faults import invoke
from test_person_stream import run as run
from test_session import REC

CLASSES = ["rest", "left", "right"]
RATE = 4.0


def says(text: str, sure: float = 0.9) -> np.ndarray:
    """A letter for each window, r, l or R for right -> (n, 3); a capital L is a left that is hardly sure."""
    rows = {"r": (sure, 0.05, 0.05), "l": (0.05, sure, 0.05), "R": (0.05, 0.05, sure), "L": (0.25, 0.45, 0.3)}
    return np.array([rows[letter] for letter in text])


def detected(text: str, **rule: Any) -> list[tuple[int, str]]:
    """Windows, a second apart, at which a class becomes active."""
    detector = EventDetector(CLASSES, rest="rest", **rule)
    found = [detector.feed(p, time) for time, p in enumerate(says(text))]
    return [(int(one.time), one.label) for one in found if one is not None]


# detection


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("rrllrrRRrr", {}, [(2, "left"), (6, "right")]),  # a gesture that is held is one activation
        ("rlRlr", {}, [(1, "left"), (2, "right"), (3, "left")]),
        ("rrLLrr", {}, []),  # not sure enough
        ("rrLLrr", {"threshold": 0.4}, [(2, "left")]),
        ("rlrlrrllrl", {"debounce": (2, 2)}, [(7, "left")]),
        ("rlrlrrllrl", {"debounce": (2, 3)}, [(3, "left"), (7, "left")]),  # 3: l-l; off at 5 (l, r, r); 7: l-l
        ("llrllrr", {"debounce": (2, 3)}, [(1, "left")]),  # one wrong window does not end it
        ("llrlrrrl", {"refractory": 3}, [(0, "left"), (7, "left")]),  # off at 2, goes on at 3, off at 4
        ("llrlrrrl", {}, [(0, "left"), (3, "left"), (7, "left")]),
        ("llRRRRr", {"refractory": 3}, [(0, "left"), (5, "right")]),  # off at 2, another class waits until 5
        ("llRrrRr", {"refractory": 3}, [(0, "left"), (5, "right")]),
    ],
)
def test_activations_by_hand(text: str, rule: dict[str, Any], expected: list[tuple[int, str]]) -> None:
    assert detected(text, **rule) == expected


def test_debounce_in_windows_and_seconds() -> None:
    assert parse_debounce("3/5", 0.1) == (3, 5)
    assert parse_debounce("0.4s", 0.1) == (5, 5)  # the fifth window ends 0.4 s after the first
    assert parse_debounce(".35 s", 0.1) == (5, 5)
    assert parse_debounce("0s", 0.1) == (1, 1)
    for wrong in ("", "3", "1/2", "5/3", "-1s", "1e9s", "9999s", "a/b"):
        with pytest.raises(UserError):
            parse_debounce(wrong, 0.1)


# scores


def activations(*given: tuple[float, str]) -> list[Activation]:
    return [Activation(time, label, 1.0) for time, label in given]


def test_scores_by_hand() -> None:
    events = [(10, 2, "left"), (20, 2, "right"), (30, 2, "left"), (40, 1, "left")]
    found = score_events(
        activations(
            (9.9, "left"),  # before its onset: false
            (10.5, "left"), (11.5, "left"),  # detected after 0.5 s; a second time: false
            (20.5, "left"),  # another class: false
            (22.8, "right"),  # 0.8 s after its end, within the tolerance: detected after 2.8 s
            (33.5, "left"),  # too late: false
        ),
        events, seconds=1800, tolerance=1,
    )  # fmt: skip
    assert (found.events, found.detected, found.false) == (4, 2, 4)
    assert found.delays == pytest.approx((0.5, 2.8))
    assert found.share_detected == 0.5
    assert found.false_per_hour == 8
    assert found.delay() == pytest.approx(1.65)
    both = found + score_events([], [(0, 1, "left")], seconds=1800)
    assert (both.events, both.detected, both.false_per_hour) == (5, 2, 4)
    nothing = EventScores()
    assert nothing.as_dict()["false_per_hour"] is nothing.share_detected is nothing.delay() is None


def test_events_as_classes_with_durations() -> None:
    events = [Event(5, 0, "T1"), Event(0, 2, "T2"), Event(9, 0, "T0"), Event(12, 0, "T1"), Event(13, 0, "noise")]
    found = map_events(events, {"T1": "left", "T2": "right", "T0": ""}, CLASSES, "rest", 20)
    assert found == (Event(0, 2, "right"), Event(5, 4, "left"), Event(12, 8, "left"))
    named = map_events([Event(0, 1, "left"), Event(2, 1, "rest"), Event(3, 1, "x")], None, CLASSES, "rest", 9)
    assert named == (Event(0, 1, "left"),)
    with pytest.raises(UserError, match="class 'up'"):
        map_events(events, {"T1": "up"}, CLASSES, "rest", 20)


# a stream and its replay


class Shares:
    """A session that says which share of a window's samples has the value 0, 1 and 2."""

    def __init__(self) -> None:
        signal = Signal(channels=("a",), sfreq=RATE)
        card = SimpleNamespace(sfreq=RATE, channels=["a"], n_times=4, seen={}, signal=signal)
        self.model, self.classes_ = SimpleNamespace(card=card), np.array(CLASSES)

    def predict_proba(self, window: np.ndarray) -> np.ndarray:
        return np.array([(window == k).mean() for k in range(3)])


def recording(subject: str, seconds: int, *events: tuple[float, float, str]) -> WholeRecording:
    values = np.zeros((int(seconds * RATE), 1), np.float32)
    for onset, duration, name in events:
        values[int(onset * RATE) : int((onset + duration) * RATE)] = CLASSES.index(name)
    return WholeRecording(
        name=subject, subject=subject, values=values, times=np.arange(len(values)) / RATE,
        signal=Signal(channels=("a",), sfreq=RATE), events=tuple(Event(*one) for one in events),
    )  # fmt: skip


def test_a_replay_by_hand() -> None:
    own = recording("ann", 60, (10, 3, "left"), (20, 1, "right"), (30, 0.5, "left"), (40, 2, "right"))
    own = WholeRecording(**vars(own) | {"events": (*own.events[:3], Event(50, 2, "left"))})  # 40 s: nobody asked
    report = replay([own], Shares, rest="rest", threshold=0.7, hop=0.25)  # type: ignore[arg-type]
    # The third of four samples at 0.5 s is the first with 0.75 of a window; half a second never reaches that.
    assert [(one.time, one.label) for one in report.activations["ann"][0]] == [
        (10.5, "left"), (20.5, "right"), (40.5, "right"),
    ]  # fmt: skip
    scores = report.scores["ann"]
    assert (scores.events, scores.detected, scores.false, scores.delays) == (4, 2, 1, (0.5, 0.5))
    assert scores.seconds == 60
    slow = replay([own], Shares, rest="rest", threshold=0.7, hop=0.25, debounce="0.75s")  # type: ignore[arg-type]
    assert slow.scores["ann"].delays == (1.25,), "a second of right has three such windows only"
    told = json.loads(report.json())
    assert told["all"]["false_activations"] == 1
    assert told["subjects"]["ann"]["activations"] == [
        [[10.5, "left", 0.75], [20.5, "right", 0.75], [40.5, "right", 0.75]]
    ]
    assert any(line.split() == ["ann", "0.0167", "4", "0.50", "1", "60.00", "0.50"] for line in report.lines())
    with pytest.raises(UserError, match="the recordings have left, right"):
        replay([own], Shares, events={"up": "right"})  # type: ignore[arg-type]


def test_live_equals_replay_with_a_gap_and_lost_values() -> None:
    own = recording("ann", 100, (10, 6, "left"), (20, 3, "right"), (30, 9, "left"), (60, 9, "right"))
    kept = np.ones(len(own.times), bool)
    kept[[45, 130, 131, 255]] = False
    own.values[260] = np.nan
    own = WholeRecording(**vars(own) | {"values": own.values[kept], "times": own.times[kept]})
    rule: dict[str, Any] = {"rest": "rest", "threshold": 0.6, "refractory": 0.5}
    text = io.StringIO()
    live = Stream(
        Shares(), RecordingSource(own), hop=0.25, detector=EventDetector(CLASSES, debounce=(2, 3), **rule)  # type: ignore[arg-type]
    )  # fmt: skip
    summary = live.run(CsvSink(text, CLASSES, events=True))
    rows = [row for row in csv.DictReader(io.StringIO(text.getvalue())) if row["event"]]
    found = replay([own], Shares, hop=0.25, debounce="2/3", **rule)  # type: ignore[arg-type]
    replayed = found.activations["ann"][0]
    assert [(float(row["time"]), row["event"]) for row in rows] == [(one.time, one.label) for one in replayed]
    assert summary.activations == len(replayed) >= 4
    assert summary.missed > 0


def test_the_time_of_windows_that_overlap_or_are_apart_is_counted_once() -> None:
    assert count_decoded_seconds([1.0, 1.5, 2.0, 2.5], 1.0) == 2.5
    assert count_decoded_seconds([1.0, 2.0, 7.0, 8.0], 1.0) == 4.0  # two windows, a pause, two windows
    assert count_decoded_seconds([1.0, 1.5, 1.0], 1.0) == 2.5  # time goes back: another recording
    assert count_decoded_seconds([], 1.0) == 0


# files and the command


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of tables, a subject each, with a column of labels."""
    folder = tmp_path_factory.mktemp("study")
    for person in (1, 3):
        X, y = REC.X[REC.subject == person].numpy(), REC.y[REC.subject == person].numpy()
        values = np.concatenate(list(X[np.argsort(np.arange(len(y)) // 5 % 2 * 2 + y, kind="stable")]), 1).T
        names = np.repeat(np.array(["left", "", "right", "pause"])[np.arange(len(y)) // 5 % 4], X.shape[2])
        rows = [["time", *REC.channels, "label"]]
        rows += [[f"{k / REC.sfreq:.6f}", *v, name] for k, (v, name) in enumerate(zip(values, names, strict=True))]
        with (folder / f"p{person}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def test_the_command_replays_what_it_would_stream(run: Path, study: Path, tmp_path: Path) -> None:
    rule = ("--threshold", 0.55, "--debounce", "2/3", "--hop", 0.5)
    events = ("--pattern", "{subject}.csv", "--events", "left=left,right=right,pause=")
    result = invoke("stream", run, "--replay", study, *events, *rule, "--out", tmp_path / "out.json")
    assert result.exit_code == 0
    told = json.loads((tmp_path / "out.json").read_text())
    assert sorted(told["subjects"]) == ["p1", "p3"]
    assert told["all"]["events"] == 8
    whole = read_whole(str(study), at.recordings.Cutting(pattern="{subject}.csv"))[1]
    meta = json.dumps({"sfreq": REC.sfreq, "channels": list(REC.channels)})
    np.savez(tmp_path / "p3.npz", X=whole.values.T[None], meta=meta)
    streamed = invoke("stream", run, "--source", tmp_path / "p3.npz", *rule)
    rows = [row for row in csv.DictReader(io.StringIO(streamed.stdout)) if row["event"]]
    assert [(float(row["time"]), row["event"]) for row in rows] == [
        (pytest.approx(time, abs=1e-5), label) for time, label, _ in told["subjects"]["p3"]["activations"][0]
    ]
    assert len(rows) > 1
    assert "threshold" in result.stdout


def test_a_detector_refuses_what_is_no_probability_and_begins_anew_where_time_goes_back() -> None:
    for classes in ([], ["a", "a"], "abc", None, 3):
        with pytest.raises(UserError, match="classes are"):
            EventDetector(classes)
    assert EventDetector([1, "1"], rest="1").rest == 1, "the class itself, not one that is written alike"
    detector = EventDetector(["rest", "left", "right"], rest="rest", refractory=2.0)
    for no_numbers in ("x", [[1], [1, 2]]):
        with pytest.raises(UserError, match="give an array of numbers"):
            detector.feed(no_numbers, 1.0)  # type: ignore[arg-type]
    for wrong in ([0.5, 0.5], [0.0, 90.0, 0.0], [0.0, math.nan, 1.0], [[0.0, 1.0, 0.0]]):
        with pytest.raises(UserError, match="probabilities of a window"):
            detector.feed(np.array(wrong), 1.0)
    with pytest.raises(UserError, match="time of a window"):
        detector.feed(np.array([0.0, 1.0, 0.0]), math.nan)
    assert detector.feed(np.array([0.0, 1.0, 0.0]), 10.0) is not None
    assert detector.feed(np.array([1.0, 0.0, 0.0]), 11.0) is None
    assert detector.feed(np.array([0.0, 0.0, 1.0]), 1.0) is not None, "another recording"


def test_numbers_are_no_formulas_and_names_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names, text = ["-1", "=1", "\x1b[2J"], io.StringIO()
    for file in (text, sys.stdout):
        sink = CsvSink(file, names, events=True)
        for label in names:
            sink.send(1.0, 0, np.array([1.0, 0, 0]), Activation(1.0, label, 0.5))
    rows = list(csv.reader(io.StringIO(text.getvalue())))
    assert rows[0][4:] == ["p_-1", "p_=1", "p_\x1b[2J"]
    assert [row[2:4] for row in rows[1:]] == [["-1", "-1"], ["-1", "'=1"], ["-1", "\x1b[2J"]]
    assert "\x1b" not in capsys.readouterr().out
