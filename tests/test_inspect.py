"""What looks wrong in recordings is said before any work; what is right is not complained about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotransfer as at
from autotransfer.recordings import Raw, save_npz
from autotransfer.recordings.concerns import concerns
from autotransfer.recordings.overview import overview, sparklines
from autotransfer.report.preview import page
from faults import call
from real_data import NAMES, real_file
from tiny import tiny, tiny_file

PEOPLE, PER = 6, 24


def raw(**changes: Any) -> Raw:
    """Six people with twelve trials of two classes each, in two sessions, in which both occur."""
    draw = np.random.default_rng(0)
    n = PEOPLE * PER
    parts: dict[str, Any] = {
        "X": draw.standard_normal((n, 3, 32)), "y": np.tile([0, 1], n // 2),
        "subject": np.repeat(np.arange(PEOPLE), PER),
        "session": np.tile(np.repeat([1, 2], PER // 2), PEOPLE), "classes": ("rest", "move"), "sfreq": 32,
        "channels": ("a", "b", "c"), "name": "study",
    }  # fmt: skip
    return Raw(**parts | changes)


def said(text: str, **changes: Any) -> str:
    """The one concern about recordings with these changes."""
    found = concerns(raw(**changes))
    assert len(found) == 1, found
    assert re.search(text, found[0]), found[0]
    assert "\n" not in found[0]
    return found[0]


def test_nothing_is_said_of_what_is_right() -> None:
    assert concerns(raw()) == []
    assert concerns(raw(y=None)) == []
    assert concerns(raw(subject=None, y=None, session=None)) == []
    assert concerns(tiny().raw()) == []
    uneven = np.random.default_rng(1).permutation(np.repeat([0, 1], [100, 44]))
    assert concerns(raw(y=uneven)) == [], "by chance people differ a little"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_said_of_real_recordings(name: str) -> None:
    assert concerns(at.load(real_file(name)).raw()) == []


def test_classes_that_people_tell() -> None:
    mostly = np.where(np.arange(PEOPLE * PER) % PER < 20, raw().subject // 3, 1 - raw().subject // 3)  # type: ignore[operator]
    said(r"who a trial is from tells the class of 83% of the trials, where 5\d% would be chance", y=mostly)


def test_classes_that_sessions_tell() -> None:
    said("the session of a trial tells the class of 100% of the trials", y=np.asarray(raw().session) - 1)
    hours = np.arange(PEOPLE * PER) // 2  # of two trials each, one of either class
    assert concerns(raw(session=hours)) == []
    few = np.random.default_rng(0).permutation(hours)
    assert concerns(raw(session=few)) == [], "sessions of two trials tell much by chance"


def test_a_class_that_training_people_lack() -> None:
    y = np.asarray(raw().y).copy()
    y[[0, 5, 30]] = 2
    said("class 'odd' occurs in 2 of 6 people only .*0, 1", y=y, classes=("rest", "move", "odd"))


def test_people_of_one_class_and_of_one_trial() -> None:
    y = np.asarray(raw().y).copy()
    y[:PER] = 0
    said("1 subject with trials of one class .*'0'.* cannot be scored", y=y)
    keep = np.r_[0, PER : PEOPLE * PER]
    parts = {name: np.asarray(getattr(raw(), name))[keep] for name in ("X", "y", "subject", "session")}
    said("1 subject with trials of one class", **parts)


def test_subjects_that_are_trials(tmp_path: Path) -> None:
    found = concerns(raw(subject=np.arange(PEOPLE * PER), session=None))
    assert "every trial has a subject of its own" in found[0]
    source = tmp_path / "own.npz"
    np.savez(source, X=raw().X, y=raw().y, subject=np.arange(PEOPLE * PER))
    result = call("run", source, "--out", tmp_path / "run")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "every trial has a subject of its own" in result.err
    assert not (tmp_path / "run").exists()


def test_channels_that_are_last() -> None:
    X = np.random.default_rng(0).standard_normal((PEOPLE * PER, 32, 8))
    said(r"X has 32 channels of 8 samples.*X\.transpose\(0, 2, 1\)", X=X, channels=None)
    named = [f"E{n}" for n in range(32)]
    assert concerns(raw(X=X, channels=named)) == [], "whoever names 32 channels has them"


@pytest.mark.parametrize(
    ("factor", "told"), [(1e6, "1,000,000"), (1e-6, "1/1,000,000"), (1e3, "1,000"), (1 / 0.005, "200")]
)
def test_units_that_differ_between_people(factor: float, told: str) -> None:
    X = np.asarray(raw().X).copy()
    X[2 * PER : 3 * PER] *= factor
    said(f"the signals of 2 vary by .*a factor of about {told}: .*same unit", X=X)
    assert concerns(raw(X=np.asarray(raw().X) * factor)) == [], "any unit is right if it is everybody's"


def test_channels_that_never_change_and_lost_values() -> None:
    X = np.asarray(raw().X).copy()
    X[:PER, 1] = 5
    said("channel 'b' never changes in '0'", X=X)
    X[:, 1] = 5
    said("channel 'b' never changes in everybody", X=X)
    X = np.asarray(raw().X).copy()
    X[7, 2, 3] = np.nan
    said("NaN or infinite values in 1 of 144 trials .*'c'", X=X)


def test_a_run_warns_before_it_starts(tmp_path: Path) -> None:
    rec = tiny()
    X = rec.X.numpy().copy()
    X[rec.subject.numpy() == 1] *= 1e6
    save_npz(tmp_path / "units.npz", at.Recordings(X, rec.y, rec.subject, sfreq=16))
    result = call("run", tmp_path / "units.npz", "--out", tmp_path / "run", "--dry-run")
    assert result.code == 0
    assert "the signals of 1 vary by" in result.out
    from autotransfer.runs.options import RunOptions
    from autotransfer.runs.run import Run

    with pytest.warns(UserWarning, match="the signals of 1 vary by"):
        Run.create(tmp_path / "run", RunOptions(source=str(tmp_path / "units.npz"))).ledger.close()


def test_a_model_warns_of_another_unit() -> None:
    from autotransfer.runs.predictions import predictions

    rec = tiny()
    X, y, s = rec.X.numpy(), rec.y.numpy(), rec.subject.numpy()
    model = at.CensoredClassifier(max_epochs=1, device="cpu").fit(X, y, subjects=s).model_
    assert model.parts[0].card.scale == pytest.approx(np.median(np.sqrt(X.var(-1).mean(0))), rel=1e-4)
    assert len(predictions(model, Raw(X=X))) == len(X)
    with pytest.warns(UserWarning, match=r"a factor of about 1,000,000: give them in the same unit"):
        predictions(model, Raw(X=1e6 * X))


# --- what inspect shows ----------------------------------------------------------------------------------------------


def test_the_overview_counts() -> None:
    found = overview(raw(subjects=("ann", "bob", "cy", "dee", "eve", "<b>")))
    assert found.people == ("ann", "bob", "cy", "dee", "eve", "<b>")
    assert found.classes == ("rest", "move")
    assert found.counts.tolist() == [[12, 12]] * 6
    assert found.sessions == (2,) * 6
    assert [picture.label for picture in found.pictures] == ["rest", "move"]
    assert all(picture.window.shape == (3, 32) for picture in found.pictures)
    text = "\n".join(found.lines())
    for part in (
        "144 of 32 samples (1 s at 32 Hz)",
        "a, b, c",
        "rest 72, move 72",
        "2 per person",
        "nothing looks wrong",
    ):
        assert part in text


def test_the_overview_of_what_has_no_labels() -> None:
    found = overview(Raw(X=raw().X, hints={"y": "give events"}))
    text = "\n".join(found.lines())
    assert "no classes are known; to train, give events" in text
    assert "no people are known" in text
    assert len(found.pictures) == 1
    few = overview(raw(subject=np.repeat([0, 1], 72)))
    assert any("at least 3 are needed" in line for line in few.concerns)


def test_sparklines_share_a_scale() -> None:
    low, high = sparklines([np.zeros(120), np.ones(120)], 60)
    assert (low, high) == ("▁" * 60, "█" * 60)
    peak = np.zeros(600)
    peak[305] = 1
    assert sparklines([peak], 60)[0].count("█") == 1, "what is short is not averaged away"
    assert sparklines([np.full(10, np.nan)], 5) == ["?" * 5]


def test_the_page_is_escaped_and_self_contained() -> None:
    names = ("<script>alert(1)</script>", "b'\"", "&c")
    html = page(overview(raw(channels=names, classes=("<i>", "move"), subjects=("<b>", *"abcde"), name="</title>x")))
    for text in ("<script>", "<i>", "<th><b>", "</title>x"):
        assert text not in html
    assert html.count("<polyline") == 2 * 3
    assert not re.findall(r"(?:src|href)=|url\(|https?:", html)
    X = np.asarray(raw().X).copy()
    X[:, 0, 4] = np.nan
    assert "nan" not in page(overview(raw(X=X))).split("<svg", 1)[1].lower()


def test_inspect(tmp_path: Path) -> None:
    source, target = tiny_file(tmp_path), tmp_path / "page.html"
    result = call("inspect", source, "--html", target)
    assert result.code == 0, result.err
    assert "left 24, right 24" in result.out
    assert "</html>" in target.read_text()
    wrong = call("inspect", tmp_path / "no.edf", "--window", 1)
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)


def test_a_run_cuts_again_when_it_is_resumed(tmp_path: Path) -> None:
    from autotransfer.runs.options import RunOptions
    from autotransfer.runs.run import Run
    from test_formats import PATTERN, csv_folder

    folder = csv_folder(tmp_path / "study")
    draw = np.random.default_rng(0)
    for path in folder.rglob("*.csv"):
        np.savetxt(path, draw.standard_normal((400, 2)), delimiter=",", header="a,b", comments="")
    options = RunOptions(source=str(folder), pattern=PATTERN, window=1.0, hop=0.5, sfreq=100.0)
    run = Run.create(tmp_path / "run", options)
    shape = tuple(run.recordings.X.shape)
    run.ledger.close()
    assert shape == (84, 2, 100)
    again = Run.open(tmp_path / "run")
    assert tuple(again.recordings.X.shape) == shape
    again.ledger.close()
    result = call("inspect", folder, "--pattern", PATTERN, "--window", 1, "--sfreq", 100)
    assert "fist 24, open 24" in result.out, result.err
