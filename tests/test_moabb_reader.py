"""MOABB's data sets, through its stand-in for tests: no download."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import load
from autotransfer.recordings.moabb_sets import PARADIGMS, raw_from_moabb
from faults import refused

pytest.importorskip("moabb", reason="pip install '.[moabb]'")
from moabb import paradigms
from moabb.datasets.fake import FakeDataset


def fake(kind: str = "imagery", events: tuple[str, ...] = ("left_hand", "right_hand", "feet"), **more: Any) -> Any:
    options = {"n_subjects": 3, "n_sessions": 2, "n_runs": 1, "n_events": 6, "duration": 30, "sfreq": 128} | more
    return FakeDataset(event_list=events, paradigm=kind, seed=0, **options)


def read_dataset(dataset: Any) -> at.Recordings:
    return at.Recordings.from_raw(raw_from_moabb(dataset))


def test_a_dataset_gives_what_its_paradigm_gives() -> None:
    rec = read_dataset(fake())
    X, y, about = paradigms.MotorImagery(n_classes=3, events=["left_hand", "right_hand", "feet"]).get_data(fake())
    np.testing.assert_allclose(rec.X.numpy(), X, rtol=1e-5, atol=1e-6)  # microvolts, as MOABB's own
    assert rec.X.std() > 1
    assert [rec.classes[k] for k in rec.y] == y.tolist()
    assert [rec.subjects[k] for k in rec.subject] == about["subject"].tolist()
    assert rec.session.tolist() == [int(session) for session in about["session"]]
    assert (rec.channels, rec.sfreq, rec.name) == (("C3", "Cz", "C4"), 128.0, "FakeDataset")


@pytest.mark.parametrize(
    ("kind", "events", "window"),
    [
        ("imagery", ("left_hand", "right_hand"), 3),
        ("p300", ("Target", "NonTarget"), 3),
        ("ssvep", ("13", "17"), 3),
        ("cvep", ("1.0", "0.0"), 3),
        ("rstate", ("open", "closed"), 40),
    ],
)
def test_the_paradigm_follows_from_the_data_set(kind: str, events: tuple[str, ...], window: int) -> None:
    dataset = fake(kind, events, n_sessions=1, duration=150, n_events=4, sfreq=100)
    rec = read_dataset(dataset)
    assert set(rec.classes) == set(events)
    assert round(rec.n_times / rec.sfreq) == window
    assert rec.sfreq == (128.0 if kind == "rstate" else 100.0)  # the adapter for rest resamples
    assert kind in PARADIGMS


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("BNCI2014001", "MOABB has no data set 'BNCI2014001'; did you mean BNCI2014_001"),
        ("utils", r"MOABB has no data set 'utils'"),
    ],
)
def test_mistakes(source: str, text: str) -> None:
    refused(lambda: load(f"moabb:{source}"), text)


def test_other_paradigms_are_refused() -> None:
    refused(lambda: read_dataset(fake("sleep")), "has the paradigm 'sleep', not one of imagery, p300")


def test_subjects_with_different_channels_are_refused() -> None:
    dataset = fake()
    generate, rates = dataset._get_single_subject_data, {2: 256}

    def other(subject: int) -> Any:
        dataset.sfreq = rates.get(subject, 128)
        return generate(subject)

    dataset._get_single_subject_data = other
    text = r"subject 2 of FakeDataset has a sampling rate of 256 Hz, subject 1 .* 128 Hz; resample"
    refused(lambda: read_dataset(dataset), text)


def test_a_failed_download_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(self: Any, subject: int) -> Any:
        raise ConnectionError("name resolution failed\nfor example.org")

    monkeypatch.setattr(FakeDataset, "_get_single_subject_data", no_network)
    text = r"MOABB cannot load FakeDataset, subject 1 \(ConnectionError: name resolution failed for example.org\)"
    refused(lambda: load("moabb:FakeDataset"), text)
