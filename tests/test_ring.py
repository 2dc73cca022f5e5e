"""Which channels form a ring: stated, recognised by names, refused, kept in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import load, save_npz
from tiny import save_folder

pytestmark = pytest.mark.filterwarnings("ignore:the sampling rate is unknown")  # most files here say nothing of it


def make(channels: list[str], **more: object) -> at.Recordings:
    X = np.random.default_rng(0).standard_normal((12, len(channels), 16))
    return at.Recordings(X, np.tile([0, 1], 6), np.repeat([0, 1, 2], 4), channels=channels, **more)


MYO = [f"myo{n}" for n in range(1, 9)]


@pytest.mark.parametrize(
    ("channels", "ring"),
    [
        (MYO, tuple(range(8))),
        ([f"Myo_{n}" for n in range(8)], tuple(range(8))),
        (MYO[::-1], tuple(range(7, -1, -1))),
        ([f"3DC {n}" for n in range(1, 11)], tuple(range(10))),
        (MYO[:7], None),
        ([f"myo{n}" for n in range(2, 10)], None),
        ([*MYO, "myo9"], None),
        ([*MYO[:7], "myo07"], None),  # the seventh twice, no eighth
        ([*MYO, "gyro"], None),
        ([f"emg{n}" for n in range(8)], None),
        ([f"3dc{n}" for n in range(8)], None),
    ],
)
def test_only_the_names_of_armbands_are_recognised(channels: list[str], ring: tuple[int, ...] | None) -> None:
    assert make(channels).ring == ring


def test_what_is_stated_counts() -> None:
    names = ["a", "b", "c", "d"]
    assert make(names).ring is None
    assert make(names, ring=True).ring == (0, 1, 2, 3)
    assert make(names, ring=["c", "a", "d"]).ring == (2, 0, 3)
    assert make(names, ring=np.array([3, 1])).ring == (3, 1)
    assert make(MYO, ring=False).ring is None
    assert make(MYO, ring=MYO[:4]).ring == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("ring", "message"),
    [
        (["a", "x"], r"ring has 'x', which is none of the 3 channels"),
        ([0, 3], r"ring has 3, which is none of the 3 channels"),
        ([0, -1], r"ring has -1, which is none"),
        ([0, True], r"ring has True, which is none"),
        ([0, 1, "a"], r"ring has the channel 0 twice"),
        ([0], r"fewer than 2 channels"),
        (7, r"ring is 7; give a list"),
        ("abc", r"ring is 'abc'; give a list"),
    ],
)
def test_anything_else_is_refused_in_one_line(ring: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make(["a", "b", "c"], ring=ring)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ring", [None, False, True, [2, 0, 1, 4]])
@pytest.mark.parametrize("channels", [MYO, [f"e{n}" for n in range(8)]])
def test_files_keep_it(ring: object, channels: list[str], tmp_path: Path) -> None:
    rec = make(channels, ring=ring)
    save_npz(tmp_path / "own.npz", rec)
    save_folder(tmp_path / "own", rec)
    assert load(tmp_path / "own.npz").ring == load(tmp_path / "own").ring == rec.ring
    assert at.Recordings.of(rec.raw()).ring == rec.ring


def test_meta_states_it(tmp_path: Path) -> None:
    rec = make([f"e{n}" for n in range(4)])

    def read(ring: object) -> at.Recordings:
        meta = json.dumps({"channels": list(rec.channels), "ring": ring})
        np.savez(tmp_path / "x.npz", X=rec.X, y=rec.y, subject=rec.subject, meta=meta)
        return load(tmp_path / "x.npz")

    assert read(True).ring == (0, 1, 2, 3)
    assert read(["e3", "e1"]).ring == (3, 1)
    assert read(None).ring is None
    for wrong in ("yes", 3, {"e0": 1}):
        with pytest.raises(UserError, match="ring"):
            read(wrong)
