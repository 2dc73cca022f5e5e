"""Saved recordings load unchanged, and other files are refused in one line."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.demo_set import draw_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from autotransfer.errors import UserError
from autotransfer.recordings import (
    Raw,
    Recordings,
    load,
    read,
    read_npz,
    save_npz,
)
from real_data import NAMES, QUICK, real_file
from tiny import save_folder

pytestmark = pytest.mark.filterwarnings("ignore:the sampling rate is unknown")  # most files here say nothing of it

N, C, T = 9, 2, 8
X = np.random.default_rng(0).standard_normal((N, C, T)).astype("float32")
ARRAYS: dict[str, Any] = {"X": X, "y": np.tile([0, 1, 2], 3), "subject": np.repeat([0, 1, 2], 3)}


def written(path: Path, **changes: Any) -> Path:
    """An .npz of ARRAYS with changes; None leaves an array out."""
    arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
    np.savez(path, **arrays)
    return path


def refused(path: Path | str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def assert_same(a: Recordings, b: Recordings) -> None:
    assert torch.equal(a.X, b.X)
    assert a.y.tolist() == b.y.tolist()
    assert a.subject.tolist() == b.subject.tolist()
    assert (a.session is None) == (b.session is None)
    assert a.session is None or a.session.tolist() == b.session.tolist()
    for field in ("sfreq", "channels", "classes", "subjects", "name"):
        assert getattr(a, field) == getattr(b, field)


# --- round trips -------------------------------------------------------------------------------------------

LABELS = [
    ["left", "right", "naïve\n"],
    [5, 7, 9],
    [2.5, 1, float("inf")],
    ["mixed", 1, 2.5],
]


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("session", [None, [3] * 4 + [8] * 5])
def test_saved_recordings_load_unchanged(tmp_path: Path, labels: list[Any], session: list[int] | None) -> None:
    rec = Recordings(X, labels * 3, [labels[k // 3] for k in range(N)], session, 100, ["Cz", "µ"], name="a study")
    save_npz(tmp_path / "a.npz", rec)
    save_folder(tmp_path / "a", rec)
    for path in (tmp_path / "a.npz", tmp_path / "a"):
        assert_same(load(path), rec)
        assert_same(load(str(path)), rec)
        assert_same(Recordings.from_raw(read(path)), rec)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.npz"]  # no temporary file stays behind


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.npz")
    before = path.read_bytes()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UserError, match=r"cannot write .*No space left"):
        save_npz(path, Recordings(**ARRAYS))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not end in \.npz"):
        save_npz(tmp_path / "a.zip", Recordings(**ARRAYS))
    with pytest.raises(UserError, match=r"y\[0\] is frozenset\(\{0\}\); .* number or text"):
        Recordings(X, [frozenset([k]) for k in ARRAYS["y"].tolist()], ARRAYS["subject"])
    with pytest.raises(UserError, match="cannot write"):
        save_npz(tmp_path / "nowhere" / "a.npz", Recordings(**ARRAYS))
    assert os.listdir(tmp_path) == []


def test_a_users_npz(tmp_path: Path) -> None:
    path = written(tmp_path / "emg.v2.npz", y=np.tile(["p", "q", "r"], 3), group=np.arange(N), session=np.ones(N))
    rec = load(path)
    assert (rec.name, rec.classes, rec.sfreq) == ("emg.v2", ("p", "q", "r"), None)
    assert rec.session.tolist() == [0] * N
    np.savez_compressed(path, **ARRAYS)
    assert torch.equal(load(path).X, torch.tensor(X))


@pytest.mark.parametrize("text", ["unicode", "bytes", "one element"])
def test_meta(tmp_path: Path, text: str) -> None:
    words = json.dumps(
        {
            "sfreq": 50,
            "channels": ["a", "b"],
            "classes": ["é", "q", "r", "s"],
            "subjects": [7, 8, 9],
            "name": None,
            "more": {},
        },
        ensure_ascii=False,
    )
    meta = {"unicode": np.array(words), "bytes": np.array(words.encode()), "one element": np.array([words])}[text]
    rec = load(written(tmp_path / "a.npz", meta=meta))
    assert (rec.sfreq, rec.channels, rec.classes, rec.subjects) == (
        50.0,
        ("a", "b"),
        ("é", "q", "r"),
        (7, 8, 9),
    )
    assert rec.name == "a"


@pytest.mark.parametrize("shape", [(), (1,), (1, C, 1), (N, 1, 1), (C, T), (N, C, T)])
@pytest.mark.parametrize("as_folder", [False, True])
def test_scale_is_multiplied_in_blocks(
    tmp_path: Path, shape: tuple[int, ...], as_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotransfer.recordings.chunks.CHUNK_VALUES", 2 * C * T)
    rng = np.random.default_rng(1)
    counts, scale = rng.integers(-99, 99, (N, C, T), dtype=np.int16), rng.uniform(1, 2, shape)
    if as_folder:
        for name, array in {**ARRAYS, "X": counts, "scale": scale}.items():
            np.save(tmp_path / f"{name}.npy", array)
        rec = load(tmp_path)
    else:
        rec = load(written(tmp_path / "a.npz", X=counts, scale=scale))
    np.testing.assert_array_equal(rec.X.numpy(), (counts * scale).astype("float32"))


def folder_with(path: Path, **arrays: Any) -> Path:
    path.mkdir()
    for name, array in {**ARRAYS, **arrays}.items():
        np.save(path / f"{name}.npy", array)
    return path


def test_folder_keeps_float32_in_its_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "study")
    rec = load(folder)
    assert rec.name == "study"
    with (folder / "X.npy").open("r+b") as file:  # what changes in the file shows in X: it was not copied
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 42.0))
    assert rec.X[-1, -1, -1] == 42.0


def test_folder_converts_other_types_and_reads_either_meta(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "study", X=(100 * X).astype("int16"), meta=np.array('{"sfreq": 3}'))
    rec = load(folder)
    np.testing.assert_array_equal(rec.X.numpy(), (100 * X).astype("int16"))
    assert rec.sfreq == 3.0
    (folder / "meta.json").write_text('{"sfreq": 4}')
    assert load(folder).sfreq == 4.0
    (folder / "meta.json").write_bytes(b"\xff\xfe")
    refused(folder, "meta.json of .* cannot be read")


def test_raw_needs_no_labels_but_recordings_do(tmp_path: Path) -> None:
    path = written(tmp_path / "a.npz", y=None, subject=None)
    raw = read_npz(path)
    assert raw.y is None
    assert raw.subject is None
    np.testing.assert_array_equal(np.asarray(raw.X), X)
    refused(path, "'a' holds no y; to train")
    refused(written(tmp_path / "a.npz", subject=None), "'a' holds no subject; to train")
    assert isinstance(read("synthetic"), Raw)
    assert_same(Recordings.from_raw(read("synthetic")), load("synthetic"))


@pytest.mark.parametrize("meta", [{}, {"sfreq": 100, "channels": ["Cz", "µ"]}])
def test_channels_and_rate_may_be_arrays(tmp_path: Path, meta: dict[str, Any]) -> None:
    stated = {"channels": np.array(["Cz", "µ"]), "sfreq": np.array([100])}
    text = {"meta": np.array(json.dumps(meta))} if meta else {}
    written(tmp_path / "a.npz", **stated, **text)
    (tmp_path / "a").mkdir()
    for name, array in (ARRAYS | stated | text).items():
        np.save(tmp_path / "a" / f"{name}.npy", array)
    for path in (tmp_path / "a.npz", tmp_path / "a"):
        rec = load(path)
        assert (rec.channels, rec.sfreq, dict(rec.columns)) == (("Cz", "µ"), 100.0, {})
    encoded = load(written(tmp_path / "b.npz", channels=np.array([b"Cz", "µ".encode()])))
    assert encoded.channels == ("Cz", "µ")


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"X": None}, "holds no X"),
        ({"meta": np.array("[" * 100_000)}, "meta of .* is not JSON"),
        ({"meta": np.array("[1]")}, "meta of .* must be a JSON object"),
        ({"meta": np.array(["{}", "{}"])}, "meta of .* is not a short text"),
        ({"meta": np.array('{"sfreq": "50"}')}, "sfreq is '50'"),
        ({"meta": np.array('{"sfreq": 1' + "0" * 400 + "}")}, "sfreq is 1000"),
        ({"meta": np.array('{"channels": "ab"}')}, "channels is 'ab'"),
        ({"meta": np.array('{"classes": {"0": "a"}}')}, "names for y"),
        ({"meta": np.array('{"classes": ["a"]}')}, "y holds 1, which is neither one of the 1 names"),
        ({"meta": np.array('{"name": 3}')}, "name is 3; it must be a string"),
        ({"scale": np.ones(3)}, r"scale of .* does not fit X \(ValueError: .*\(3,\)"),
        ({"scale": np.array(np.nan)}, "X has NaN or infinite values in 9 of 9 windows"),
        ({"scale": np.array("2")}, r"scale of .* does not fit X \(TypeError"),
        ({"scale": np.array(1), "X": X.astype(complex)}, "X holds complex128 values"),
        ({"y": np.array([0, "a", None] * 3, dtype=object)}, "y of .* holds pickled Python objects"),
        ({"channels": np.array(["Cz"])}, "channels holds 1 names but X has 2 channels"),
        ({"channels": np.array(["Cz", "Pz"], dtype=object)}, "channels of .* holds pickled Python objects"),
        ({"sfreq": np.array("100")}, "sfreq is '100'"),
        ({"sfreq": np.arange(N)}, r"sfreq is \[0, 1"),
        ({"sfreq": np.array(100), "meta": np.array('{"sfreq": 50}')}, "sfreq of .* is 100.*, and meta says 50"),
    ],
)
def test_wrong_contents(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    refused(written(tmp_path / "a.npz", **changes), text)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    bomb = np.array([Bomb(trace)] * N, dtype=object)
    for name in ("X", "y", "subject", "session", "scale", "meta"):
        refused(written(tmp_path / "a.npz", **{name: bomb}), "pickled")
        folder = folder_with(tmp_path / name)
        np.save(folder / f"{name}.npy", bomb, allow_pickle=True)
        refused(folder, "pickled")
    for ending in ("npz", "pkl", "pickle", "npy", "pt"):
        (tmp_path / f"b.{ending}").write_bytes(pickle.dumps(Bomb(trace)))
        refused(tmp_path / f"b.{ending}", "is not an .npz file|its ending is unknown")
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()  # the bomb works


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    refused(tmp_path / "X.npy", "its ending is unknown")
    (tmp_path / "X.npy").rename(tmp_path / "X.npz")
    refused(tmp_path / "X.npz", r"is not an \.npz file.*np\.savez")
    for content in (b"", b"P", b"hello", b"\x00" * 100):
        (tmp_path / "a.npz").write_bytes(content)
        refused(tmp_path / "a.npz", r"is not an \.npz file")
    (tmp_path / "a.xlsx").write_text("1,2")
    refused(tmp_path / "a.xlsx", "its ending is unknown")
    refused(tmp_path / "missing.npz", r"there is no file .*missing\.npz")
    refused(tmp_path / "gestures", "no such file, folder or set")  # a path is never the name of a set
    refused("gesture", r"cannot load 'gesture'.*embedded set \('gestures', 'synthetic'\)")
    refused("a\0b.npz", "there is no file")
    refused("x" * 5000, "no such file")
    refused("x" * 5000 + ".edf", "there is no file")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"holds no X; save it with")


def npy(descr: str, shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        npy("'<f4'", "(100000000000, 8, 8)", b"1234"),
        npy("'<U0'", "(1000000000000000000,)"),
        npy("'<f4'", "(-1, -1, 1)", b"1234"),
        npy("'<f4'", "(1, 1, 1)", b"123"),
        npy("'nonsense'", "(1,)"),
        npy("(" * 5000, "(1,)"),
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00",
        b"nothing",
    ],
)
def test_wrong_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    folder = folder_with(tmp_path / "a")
    for name in ("X", "y"):
        path = written(tmp_path / "a.npz", **{name: None})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{name}.npy", content)
        refused(path, f"{name} of .* cannot be read")
        original = (folder / f"{name}.npy").read_bytes()
        (folder / f"{name}.npy").write_bytes(content)
        refused(folder, f"{name} of .* cannot be read")
        (folder / f"{name}.npy").write_bytes(original)


def zeros(path: Path, name: str, descr: str, shape: tuple[int, ...]) -> Path:
    """An .npz whose array `name` is zeros, a thousandth of their size on disk."""
    written(path, **{name: None})
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(f"{name}.npy", "w") as stream,
    ):
        stream.write(npy(repr(descr), repr(shape)))
        for _ in range(math.prod(shape) * np.dtype(descr).itemsize >> 20):
            stream.write(bytes(2**20))
    return path


@pytest.mark.parametrize(
    ("name", "descr", "shape", "text"),
    [
        ("X", "|i1", (N, 1, 2**20), r"X of .* too large for memory \(0.0472 GB needed, 0.0336 GB available\)"),
        ("y", "|i1", (1, 2**27), "y of .* too large for memory"),
        ("session", "|S16777216", (N,), r"session of .* too large for memory \(0.151 GB needed, 0.0336 GB"),
        ("meta", "<U33554432", (), "meta of .* is not a short text"),
    ],
)
def test_what_unpacks_to_more_than_memory_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, descr: str, shape: tuple[int, ...], text: str
) -> None:
    path = zeros(tmp_path / "a.npz", name, descr, shape)
    assert path.stat().st_size < 2**20
    monkeypatch.setattr("autotransfer.recordings.npz.available_memory", lambda: 2**25)
    monkeypatch.setattr("numpy.lib.format.read_array", lambda *_, **__: pytest.fail("unpacked"))
    refused(path, text)


# --- damage ------------------------------------------------------------------------------------------------


def damaged(path: Path, content: bytes) -> Recordings | None:
    """The recordings, or None where the file was refused; any other exception ends the test."""
    path.write_bytes(content)
    try:
        return load(path)
    except UserError as refusal:
        message = str(refusal)
    assert "\n" not in message
    return None


@pytest.fixture(scope="module", params=[False, True], ids=["stored", "deflated"])
def intact(request: pytest.FixtureRequest) -> bytes:
    buffer = io.BytesIO()
    save = np.savez_compressed if request.param else np.savez
    save(buffer, **ARRAYS, meta=np.array('{"sfreq": 50, "classes": ["p", "q", "r"]}'))
    return buffer.getvalue()


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_truncated_files_are_refused(intact: bytes, tmp_path: Path, step: int) -> None:
    assert damaged(tmp_path / "a.npz", intact) is not None
    for length in range(0, len(intact), step):
        assert damaged(tmp_path / "a.npz", intact[:length]) is None


@settings(max_examples=80, deadline=None)  # tests/fuzz.py has tried a million such files
@given(data=st.data())
def test_flipped_bits_never_change_the_signal(
    intact: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(intact)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    rec = damaged(tmp_path_factory.getbasetemp() / "flipped.npz", bytes(content))
    assert rec is None or torch.equal(rec.X, torch.tensor(X))


# --- sets and the registry ---------------------------------------------------------------------------------


def test_gestures() -> None:
    rec = load("gestures")
    assert (rec.name, rec.n_windows, rec.n_channels, rec.n_times) == ("gestures", 1200, 8, 200)
    assert (rec.sfreq, rec.n_classes, rec.n_subjects) == (200.0, 8, 10)
    counts = np.zeros((rec.n_subjects, rec.n_classes), int)
    np.add.at(counts, (rec.subject.numpy(), rec.y.numpy()), 1)
    assert (counts == 15).all()


def test_the_gestures_are_the_windows_that_the_rule_draws() -> None:
    rec, source = load("gestures"), load(real_file("emg_myo_readings"))
    assert source.session is not None
    rows = draw_rows(source.y.numpy(), source.subject.numpy(), source.session.numpy())
    assert torch.equal(rec.X, source.X[rows])
    assert [rec.classes[k] for k in rec.y] == [source.classes[k] for k in source.y[rows]]
    assert [rec.subjects[k] for k in rec.subject] == [source.subjects[k] for k in source.subject[rows]]


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in NAMES])
def test_real_recordings(name: str) -> None:
    file = real_file(name)
    rec = load(file)
    with np.load(file, allow_pickle=False) as stored:
        scale = stored["scale"] if "scale" in stored else np.float32(1)
        meta = json.loads(str(stored["meta"]))
        np.testing.assert_allclose(rec.X[::50].numpy(), stored["X"][::50] * scale, rtol=1e-6)
        assert [rec.classes[k] for k in rec.y] == [meta["classes"][k] for k in stored["y"]]
        people = [meta["subjects"][k] for k in stored["subject"]] if "subjects" in meta else stored["subject"].tolist()
        assert [rec.subjects[k] for k in rec.subject] == people
    assert rec.channels == tuple(meta["channels"])
    assert (rec.name, rec.sfreq) == (name, meta["sfreq"])
