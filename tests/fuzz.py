"""Hostile input by the thousand: damaged files and senseless JSON give a result or one line, and nothing else.

`python tests/fuzz.py N [SEED [TARGET ...]]` runs N cases over all targets or some, and prints what was found;
tests/test_fuzz.py runs a few.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import save
from scipy.io import savemat

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.models.assembly import assemble
from autotransfer.models.binding import digest_of
from autotransfer.models.card import DIGEST
from autotransfer.models.loading import load_model
from autotransfer.models.mixture import Mixture
from autotransfer.models.saving import write_model
from autotransfer.recordings import Raw, continuous, load, read
from autotransfer.recordings.npy import readable
from autotransfer.recordings.npz import save_folder, save_npz
from autotransfer.runs.options import RunOptions
from autotransfer.runs.predictions import predictions
from fuzz_runs import RunTargets, unchanged_outside
from mutations import NASTY, damaged, name, twisted
from test_formats import mne_raw, xdf_file
from test_schema import KINDS, changed
from tiny import tiny

# Shares of the cases. Files of fif, mat and bids are read in a child process, which takes a second or more.
SOME = {
    "npz": 600, "folder": 100, "fif": 1, "mat": 1, "bids": 1, "csv": 60, "columns": 400, "xdf": 100, "names": 200,
    "setting": 1000, "options": 300, "record": 2600,
    "model": 120, "mixture": 80, "predict": 60, "run": 4, "report": 4,
}  # fmt: skip
LEAST = 40  # cases of a target, where there are thousands
LIMIT = 60  # seconds that a case may take


class Trap:
    """What a pickle would do if anybody opened it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.flag),)


def arrays(draw: random.Random, trap: Path) -> dict[str, Any]:
    """The entries of an .npz as no honest program writes them."""
    rec = tiny()
    found: dict[str, Any] = {
        "X": rec.X.numpy(), "y": rec.y.numpy(), "subject": rec.subject.numpy(),
        "meta": np.array(json.dumps(twisted({"sfreq": 16, "channels": ["C3", "C4"], "classes": ["a", "b"]}, draw))),
    }  # fmt: skip
    name = draw.choice(("X", "y", "subject", "session", "scale", "meta"))
    odd: tuple[Any, ...] = (
        np.array([Trap(trap)], dtype=object), np.zeros((0, 2, 16), np.float32), np.full(found["X"].shape, np.nan),
        np.array(["a", "b"]), np.array(1e30), np.zeros(3, dtype="datetime64[s]"), np.ones((40, 2), complex),
        np.array(["../../x"] * len(rec.y)), np.array(b"\xff\xfe"), found["X"].astype(np.int16), found["X"][:, :, :4],
        np.arange(len(rec.y)), np.zeros(len(rec.y)), np.array([[1]]), np.array("not json"),
        found["X"].astype("float16"),
    )  # fmt: skip
    found[name] = draw.choice(odd)
    if draw.random() < 0.1:
        del found[draw.choice(list(found))]
    return found


# Cells of a CSV file as devices, spreadsheets and enemies write them.
CELLS = (
    "", " ", "nan", "NaN", "inf", "-inf", "1e999", "-", "+", "0x10", "1,5", "1.5.2", '"', '""', '"1', "é", "\x00",
    "1e-400",
    "9" * 400, "2024-02-30", "2024-01-01T25:61:00", "2024-01-01 10:00:00", "2024-01-01T10:00:00+99:99", "12:00", "True",
    "=1+1", "left", "1_000", "١٢", "1e", "None", "\r", "1;2", "0", "-0", "1e30", "1.7e308",
)  # fmt: skip


def table(draw: random.Random) -> bytes:
    """A CSV file of samples with stamps of some kind and events, and perhaps a few cells of another kind."""
    stamps: tuple[Callable[[int], str], ...] = (
        lambda i: f"{i / 20}",
        lambda i: f"{1700000000000 + 50 * i}",
        lambda i: f"2024-01-01T10:00:{i / 20:06.3f}",
        lambda i: str(i % 16),
    )
    stamp, rows = draw.choice(stamps), draw.choice((0, 2, 40, 40, 40, 40))
    cells = [[draw.choice(("time", "time", "timestamp", "sample")), "emg1", "emg2", "label"]]
    cells += [[stamp(i), f"{i % 7}.5", str(-i), ("rest", "fist")[i // 20]] for i in range(rows)]
    if draw.random() < 0.1:
        del cells[0]
    for row in [draw.choice(cells) for _ in range(draw.choice((0, 1, 1, 2, 20)) if cells else 0)]:
        kind = draw.random()
        if kind < 0.7 and row:
            row[draw.randrange(len(row))] = draw.choice(CELLS)
        elif kind < 0.85:
            row.append(draw.choice(CELLS))
        else:
            del row[-1:]
    between, after = draw.choice((",", ",", ";", "\t")), draw.choice(("\n", "\n", "\r\n", "\r"))
    body = after.join(between.join(row) for row in cells).encode(draw.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16")))
    return damaged(body, draw) if draw.random() < 0.3 and body else body


@contextlib.contextmanager
def blocks_here(reader: Callable[..., Any], paths: Sequence[Path], *arguments: object) -> Iterator[Iterator[Any]]:
    """As `blocks_in_child`, without the child, which takes a second to start."""

    def block(path: Path) -> Any:
        with readable(path, "contents"):
            found = reader(path, *json.loads(json.dumps(arguments)))
            json.dumps({key: value for key, value in vars(found).items() if key != "X"})
        return found

    yield map(block, paths)


class Stuck(BaseException):
    """A case that does not end. Nobody catches this one by mistake."""


def _give_up(*_: object) -> None:
    raise Stuck(f"no end after {LIMIT} seconds")


class Fuzz(RunTargets):
    """Targets over seeds made once in `folder`. A case is (target, seed) and can be repeated."""

    def __init__(self, folder: Path, targets: Sequence[str] = ()) -> None:
        """targets: those that will be run, by default all: runs take a while to prepare."""
        self.folder, self.trap = folder, folder / "trap"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        if not targets or {"run", "report"} & set(targets):
            self.prepare_runs(folder)
        recordings = tiny()
        save_npz(folder / "good.npz", recordings)
        save_folder(folder / "good", recordings)
        self.settings = [setting.to_json() for setting in at.grid("paper")]
        self.records = [(kind, json.loads(schema.to_json(value))) for kind, value in KINDS.values()]
        self.npz = (folder / "good.npz").read_bytes()
        self.mat = self._mat(recordings)
        self.fif = self._fif(recordings)
        self.xdf = xdf_file(folder / "good.xdf").read_bytes()
        fold = at.leave_one_subject_out(recordings)[0]
        setting = at.Setting(max_epochs=1, batch_size=16)
        (outcome,) = at.train(recordings, [at.Job(setting, fold)], "cpu")
        card, tensors = assemble(recordings, setting, [outcome.state], [fold], kind="single", scores={})
        write_model(folder / "model", card, tensors)
        self.model = load_model(folder / "model")
        mixture = Mixture([self.model.parts[0]] * 2, [0.5, 1.0])
        self.mixture = json.dumps(asdict(mixture.card)), save(mixture.tensors())
        self.card, self.weights = (folder / "model" / "model.json").read_text(), save(tensors)

    def _mat(self, recordings: at.Recordings) -> bytes:
        stored = {"X": recordings.X.numpy()[:10], "y": np.arange(10) % 2, "sfreq": 16.0}
        stream = io.BytesIO()
        savemat(stream, stored)
        return stream.getvalue()

    def _fif(self, recordings: at.Recordings) -> bytes | None:
        try:
            import mne
            import pandas as pd
        except ImportError:
            return None
        n = 12
        epochs = mne.EpochsArray(
            recordings.X.numpy()[:n].astype(float), mne.create_info(["C3", "C4"], 16.0, "eeg"),
            events=np.c_[np.arange(n), np.zeros(n, int), 1 + np.arange(n) % 2], event_id={"a": 1, "b": 2},
            metadata=pd.DataFrame({"subject": np.repeat(["p", "q", "r"], 4)}), verbose="ERROR",
        )  # fmt: skip
        epochs.save(self.folder / "good-epo.fif", verbose="ERROR")
        return (self.folder / "good-epo.fif").read_bytes()

    @cached_property
    def bids(self) -> Path | None:
        """Made when asked for: what writes it takes seconds to import."""
        try:
            import edfio  # noqa: F401 - writes the files
            import mne_bids
        except ImportError:
            return None
        raw = mne_raw(unit=1e-8)
        raw.info["line_freq"] = 50
        for person in ("01", "02", "03"):
            place = mne_bids.BIDSPath(subject=person, task="move", root=self.folder / "bids", datatype="eeg")
            mne_bids.write_raw_bids(raw, place, format="EDF", allow_preload=True, verbose=False)
        return self.folder / "bids"

    # targets: each does what a user would with something bad

    def run_npz(self, draw: random.Random) -> None:
        path = self.work / "case.npz"
        if draw.random() < 0.5:
            path.write_bytes(damaged(self.npz, draw))
        else:
            stream = io.BytesIO()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.savez(stream, **arrays(draw, self.trap))
            body = stream.getvalue()
            if draw.random() < 0.1:  # a name that would leave the archive
                with zipfile.ZipFile(io.BytesIO(self.npz)) as old, zipfile.ZipFile(path, "w") as new:
                    for name in old.namelist():
                        new.writestr(draw.choice((name, "../" + name, "/" + name)), old.read(name))
                body = path.read_bytes()
            path.write_bytes(body)
        load(path)

    def run_folder(self, draw: random.Random) -> None:
        path = self.work / "case"
        shutil.copytree(self.folder / "good", path)
        name = draw.choice(sorted(os.listdir(path)))
        if name == "meta.json" and draw.random() < 0.7:
            (path / name).write_text(json.dumps(twisted(json.loads((path / name).read_text()), draw)))
        else:
            (path / name).write_bytes(damaged((path / name).read_bytes(), draw))
        load(path)

    def run_fif(self, draw: random.Random) -> None:
        if self.fif is None:
            return
        path = self.work / "case-epo.fif"
        path.write_bytes(damaged(self.fif, draw))
        load(path)

    def run_mat(self, draw: random.Random) -> None:
        (self.work / "p1.mat").write_bytes(self.mat)
        (self.work / "p2.mat").write_bytes(self.mat)
        (self.work / "p3.mat").write_bytes(damaged(self.mat, draw))
        load(draw.choice(("rsvp:", "asl-emg:")) + str(self.work))

    def run_csv(self, draw: random.Random) -> None:
        header = "Time,Fz,Cz,EOG,FeedBackEvent\n"
        rows = "".join(f"{i / 200},{i % 7},{i % 5},0,{int(i % 300 == 10)}\n" for i in range(700))
        labels = "IdFeedBack,Prediction\n"
        for person in ("S02", "S06", "S07"):
            text = (header + rows).encode()
            (self.work / f"Data_{person}_Sess01.csv").write_bytes(
                damaged(text, draw) if person == "S06" and draw.random() < 0.7 else text
            )
            labels += "".join(f"{person}_Sess01_FB00{k},{k % 2}\n" for k in (1, 2, 3))
        text = labels.encode()
        (self.work / "TrainLabels.csv").write_bytes(damaged(text, draw) if draw.random() < 0.4 else text)
        load(f"errp:{self.work}")

    def run_columns(self, draw: random.Random) -> None:
        """Samples with columns of times and events."""
        good = "\n".join(
            ["time,emg1,emg2,label", *(f"{i / 20},{i % 7},{-i},{('rest', 'fist')[i // 20]}" for i in range(40))]
        )
        for person in "abc":
            (self.work / f"{person}_1.csv").write_bytes(table(draw) if person == "b" else good.encode())
        asked: dict[str, Any] = {"window": draw.choice((0.2, 0.5, 0.5, 1e-9, 100.0)), "pattern": "{subject}_*.csv"}
        if draw.random() < 0.9:
            asked["events"] = draw.choice(("rest,fist", "rest,fist", "rest=a,fist=b", "left"))
        if draw.random() < 0.2:
            asked["sfreq"] = draw.choice((20.0, 1e-300, 1e9))
        options = (
            ""
            if draw.random() < 0.8
            else draw.choice(("?time=time", "?label=label", "?ignore=x", "?channels=emg1", "?=&"))
        )
        with mock.patch.object(continuous, "blocks_in_child", blocks_here):
            load(f"{self.work}{options}", **asked)

    def run_xdf(self, draw: random.Random) -> None:
        for person in "abc":
            body = self.xdf if person == "b" else damaged(self.xdf, draw)
            (self.work / f"{person}.xdf").write_bytes(body)
        with mock.patch.object(continuous, "blocks_in_child", blocks_here):
            load(self.work, window=draw.choice((1.0, 0.3)), events="T1=left,T2=right")

    def run_bids(self, draw: random.Random) -> None:
        if self.bids is None:
            return
        path = self.work / "study"
        shutil.copytree(self.bids, path)
        for _ in range(draw.choice((1, 2))):
            file = draw.choice(sorted(one for one in path.rglob("*") if one.is_file()))
            if file.suffix == ".json" and draw.random() < 0.7:
                file.write_text(json.dumps(twisted(json.loads(file.read_text(errors="replace") or "{}"), draw)))
            else:
                file.write_bytes(damaged(file.read_bytes(), draw))
        load(path, window=1.0, events="T1,T2")

    def run_names(self, draw: random.Random) -> None:
        """Labels and people that are texts, some of them odd; of more than one kind, or too many."""
        rec = tiny()
        n = rec.n_trials
        names: dict[str, Any] = {
            "y": np.array(["left", "right"])[rec.y],
            "subject": np.array(list("abcd"))[rec.subject],
        }
        which = draw.choice(("y", "subject"))
        values = [str(value) for value in names[which]]
        for _ in range(draw.choice((1, 1, 3, n))):
            values[draw.randrange(n)] = draw.choice((*CELLS, name(draw), "left ", "Left", "a\x00"))
        kind = draw.choice(("U", "S", "U", "O", "T"))
        if kind == "S":
            names[which] = np.array([value.encode(errors="replace") for value in values])
        else:
            names[which] = np.array(values, dtype=object if kind == "O" else None)
        names[draw.choice(("session", "fold", which))] = draw.choice((np.array(values), np.arange(n), np.zeros((n, 2))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.savez(self.work / "case.npz", X=rec.X.numpy(), sfreq=draw.choice((16, "16", np.nan)), **names)
        load(self.work / "case.npz")

    def run_setting(self, draw: random.Random) -> None:
        text = draw.choice(self.settings)
        at.Setting.from_json(
            json.dumps(twisted(json.loads(text), draw))
            if draw.random() < 0.8
            else damaged(text.encode(), draw).decode(errors="replace")
        )

    def run_options(self, draw: random.Random) -> None:
        changed = twisted(RunOptions(source="synthetic").to_dict(), draw)
        RunOptions.from_dict(changed).settings()

    def run_record(self, draw: random.Random) -> None:
        """What ledgers and choice.json hold: records, choices, options, a search's proposals, what weights told."""
        kind, values = draw.choice(self.records)
        text = json.dumps(changed(values, draw))
        if draw.random() < 0.2:
            text = damaged(text.encode(), draw).decode(errors="replace")
        schema.from_json(kind, text)

    def run_model(self, draw: random.Random) -> None:
        self._use_model(draw, self.card, self.weights)

    def run_mixture(self, draw: random.Random) -> None:
        self._use_model(draw, *self.mixture)

    def _use_model(self, draw: random.Random, card: str, weights: bytes) -> None:
        path = self.work / "model"
        path.mkdir()
        twist = draw.random()
        card = json.dumps(twisted(json.loads(card), draw)) if twist < 0.5 else card
        weights = damaged(weights, draw) if twist > 0.4 else weights
        if draw.random() < 0.7:  # by somebody who knows how, so that what comes after the digest is met
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                card = json.dumps(json.loads(card) | {DIGEST: digest_of(json.loads(card), weights)})
        (path / "model.json").write_text(card)
        (path / "model.safetensors").write_bytes(weights)
        predictions(load_model(path), read(self.folder / "good.npz"))

    def run_predict(self, draw: random.Random) -> None:
        rec = tiny()
        fields: dict[str, Any] = {"X": rec.X.numpy(), "channels": ["C3", "C4"], "sfreq": 16.0, "subject": rec.subject}
        name = draw.choice(sorted(fields))
        shapes = [(0, 2, 16), (3, 2, 16), (3, 1, 16), (3, 2, 15), (2, 2), (1, 2, 16), (3, 2, 16, 1)]
        fields[name] = draw.choice([*NASTY, np.full(draw.choice(shapes), draw.choice((0.0, np.nan, 1e30)))])
        predictions(self.model, Raw(**fields))

    def case(self, target: str, seed: int) -> str:
        """'fine' or 'refused'; anything else is raised."""
        draw = random.Random(f"{target} {seed}")
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(LIMIT)
        try:
            with warnings.catch_warnings(), self.guard(target):
                warnings.simplefilter("ignore")
                getattr(self, f"run_{target}")(draw)
        except UserError as error:
            if "\n" in str(error) or not str(error):
                raise AssertionError(f"not one line: {str(error)!r}") from error
            return "refused"
        finally:
            signal.alarm(0)
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir()
        return "fine"

    def guard(self, target: str) -> contextlib.AbstractContextManager[None]:
        """Around every case of the targets that write; of the others once, around them all."""
        if target in ("run", "report"):
            return unchanged_outside(self.folder, self.work)
        return contextlib.nullcontext()

    def run(
        self, cases: int, seed: int = 0, *, targets: Sequence[str] = (), tell: Callable[[str], None] | None = None
    ) -> dict[str, Counter[str]]:
        """About `cases` cases, shared out by SOME among targets, by default all; findings are counted as 'found' and
        told."""
        shares = {target: SOME[target] for target in targets or SOME}
        counts = {target: Counter[str]() for target in shares}
        whole = sum(shares.values())
        with unchanged_outside(self.folder, self.work):
            for target, share in shares.items():
                start = time.monotonic()
                for number in range(max(cases * share // whole, min(LEAST, cases // 100))):
                    try:
                        counts[target][self.case(target, seed + number)] += 1
                    except (Exception, Stuck) as error:
                        counts[target]["found"] += 1
                        if tell is not None:
                            tell(f"{target} {seed + number}: {type(error).__name__}: {str(error)[:300]!r}")
                if tell is not None:
                    tell(f"{target}: {dict(counts[target])} in {time.monotonic() - start:.0f} s")
        assert not self.trap.exists(), "a pickle was opened"
        return counts


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable()  # of other readers, which tell what they skip
    with tempfile.TemporaryDirectory() as home:
        number, seed, *targets = [*sys.argv[1:], "0"] if len(sys.argv) == 2 else sys.argv[1:]
        Fuzz(Path(home), targets).run(int(number), int(seed), targets=targets, tell=partial(print, flush=True))
