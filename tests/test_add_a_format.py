"""A format of windows and one of continuous recordings are registered here, loaded and inspected."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.recordings import READERS, Raw
from autotransfer.recordings.continuous import FORMATS, Format, list_endings
from autotransfer.recordings.cutting import Continuous, Cutting, Event
from autotransfer.recordings.optional import reading
from autotransfer.recordings.sources import read_whole

RATE = 50
DOCS = Path(__file__).parents[1] / "docs"

# Windows that are cut already: a line of JSON for each


def read_lines(path: str) -> Raw:
    with reading(Path(path), "lines"):
        windows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        return Raw(
            X=np.array([window["x"] for window in windows], np.float32),
            y=[window["class"] for window in windows],
            subject=[window["who"] for window in windows],
            sfreq=RATE,
            name=Path(path).stem,
        )


# Continuous recordings: a line of JSON with channels and events, then samples as whole numbers


def open_counts(path: Path, cutting: Cutting, options: dict[str, str]) -> Continuous:
    with path.open("rb") as stream:
        header, counts = json.loads(stream.readline()), np.frombuffer(stream.read(), "<i2")
    samples = counts.reshape(-1, len(header["channels"])) * float(options.get("gain", 1))
    return Continuous(
        read=lambda start, stop: samples[start:stop].T,
        n_times=len(samples),
        channels=tuple(header["channels"]),
        sfreq=RATE,
        events=[Event(*event) for event in header["events"]],
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, ".jsonl", read_lines)
    monkeypatch.setitem(FORMATS, ".counts", Format(open_counts, options=("gain",)))


def write_lines(path: Path) -> NDArray[np.float64]:
    X = np.random.default_rng(0).standard_normal((12, 2, 20)).round(3)
    lines = [{"x": X[n].tolist(), "class": "ab"[n % 2], "who": f"p{n // 4}"} for n in range(12)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return X


def write_counts(folder: Path) -> NDArray[np.int16]:
    """Three subjects, each with two events of a second. Returns the samples (subjects, samples, channels)."""
    folder.mkdir()
    samples = np.random.default_rng(0).integers(-99, 99, (3, 6 * RATE, 2)).astype("<i2")
    header = {"channels": ["flexor", "extensor"], "events": [[1.0, 1.0, "fist"], [3.0, 1.0, "open"]]}
    for n, of_person in enumerate(samples):
        (folder / f"p{n}.counts").write_bytes(json.dumps(header).encode() + b"\n" + of_person.tobytes())
    return samples


def inspected(*arguments: object) -> str:
    """What `autotransfer inspect` prints, or the line with which it refuses."""
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, at.UserError), result.exception
    return str(result.exception) if result.exception else result.output


def test_windows_load_and_are_inspected(tmp_path: Path) -> None:
    file = tmp_path / "study.jsonl"
    X = write_lines(file)
    rec = at.load(file)
    np.testing.assert_array_equal(rec.X.numpy(), X.astype(np.float32))
    assert (rec.name, rec.subjects, rec.classes, rec.sfreq) == ("study", ("p0", "p1", "p2"), ("a", "b"), RATE)
    told = inspected(file)
    assert all(text in told for text in ("12 of 20 samples", "50 Hz", "p0", "p2"))
    file.write_text("{")
    assert "lines of " in inspected(file)


def test_continuous_recordings_load_and_are_inspected(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    samples = write_counts(folder)
    rec = at.load(f"{folder}?gain=2", window=1.0, events="fist,open")
    assert (rec.n_windows, rec.subjects, rec.classes) == (6, ("p0", "p1", "p2"), ("fist", "open"))
    assert (rec.channels, rec.sfreq) == (("flexor", "extensor"), RATE)
    np.testing.assert_array_equal(rec.X[3].numpy(), 2 * samples[1, 3 * RATE : 4 * RATE].T)
    assert [whole.subject for whole in read_whole(str(folder))] == ["p0", "p1", "p2"]
    assert "--window 1 --events fist,open" in inspected(folder), "the events of the files, and what to type"
    told = inspected(folder, "--window", 1, "--events", "fist,open")
    assert all(text in told for text in ("6 of 50 samples", "flexor", "fist", "p0"))
    assert "3 of 100 samples" in inspected(folder / "p0.counts", "--window", 2)
    assert "choose from gain" in inspected(f"{folder}?gian=2")


def test_every_format_is_in_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what this file registers
    text = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    missing = [end for end in (*READERS, *list_endings()) if end not in text]
    assert not missing, f"give {missing} a row in docs/reference/files.md"
