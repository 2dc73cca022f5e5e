"""Hostile input by the million: damaged files and senseless JSON give a valid result or one line, and nothing else.

tests/test_fuzz.py runs a few cases, and AUTOTRANSFER_FUZZ of them in `make test-slow`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.models.building import CandidateFits, build_model
from autotransfer.models.card import DIGEST
from autotransfer.models.loading import load_model
from autotransfer.models.saving import model_digests, write_model
from autotransfer.person.predictions import make_prediction_table
from autotransfer.recordings import Raw, load, read, save_npz
from autotransfer.runs.options import RunOptions
from ensembles import weighted
from fuzz_runs import RunTargets, unchanged_outside
from mutations import NASTY, damaged, name, twisted
from test_formats import edf_file, wfdb_record, xdf_file
from test_schema import KINDS, ODD
from tiny import described, save_folder, tiny

# Shares of the cases.
SOME = {
    "npz": 600, "folder": 200, "names": 200, "columns": 200, "xdf": 60, "edf": 40, "wfdb": 20, "fif": 20,
    "setting": 1000, "options": 300, "record": 2600, "model": 120, "mixture": 80, "predict": 60, "run": 4, "report": 4,
}  # fmt: skip
LEAST = 40  # cases of a target, where there are thousands
OTHERS = ("xdf", "edf", "wfdb", "fif")  # read by other libraries, which hang and crash
LIMIT = 60  # seconds of a core that a case may take
LIMIT_OF_OTHERS = 5
PIECE = 20.0  # seconds about, of cases of one target at a time


class Trap:
    """What a pickle would do if anybody opened it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.flag),)


TINY = tiny(3, per_class=2)


def arrays(draw: random.Random, trap: Path) -> dict[str, Any]:
    """The entries of an .npz as no honest program writes them."""
    rec = TINY
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
    body = after.join(between.join(row) for row in cells).encode(draw.choice(("utf-8", "utf-8", "utf-8-sig")))
    return damaged(body, draw) if draw.random() < 0.3 and body else body


def check_valid(rec: at.Recordings) -> None:
    """What every part of the program relies on."""
    n = rec.n_windows
    assert n > 0
    assert rec.X.shape == (n, len(rec.channels), rec.n_times)
    assert rec.X.numel()
    assert rec.X.dtype == torch.float32
    assert bool(torch.isfinite(rec.X).all()), "values that are not finite"
    for codes, labels, least in ((rec.y, rec.classes, 2), (rec.subject, rec.subjects, 3)):
        assert codes.shape == (n,)
        assert len(labels) >= least
        assert len(set(labels)) == len(labels)
        assert 0 <= int(codes.min()) <= int(codes.max()) < len(labels)
    assert rec.session is None or rec.session.shape == (n,)
    assert rec.sfreq is None or 0 < rec.sfreq < float("inf")
    assert all(len(column.values) == n for column in rec.columns.values())


class WrongResult(AssertionError):
    """A file was read without an error, as recordings that no file can hold."""


class Stuck(BaseException):
    """A case that does not end. Nobody catches this one by mistake."""


def _give_up(*_: object) -> None:
    raise Stuck("no end")


class Fuzz(RunTargets):
    """Targets over seeds made once in `folder`. A case is (target, seed) and can be repeated."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trap = folder, folder / "trap"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.prepare_runs(folder)
        recordings = tiny()
        save_npz(folder / "good.npz", recordings)
        save_npz(folder / "small.npz", TINY)
        save_folder(folder / "good", TINY)
        self.settings = [setting.to_json() for setting in at.grid("paper")]
        self.records = [(kind, json.loads(schema.to_json(value))) for kind, value in KINDS.values()]
        self.npz = (folder / "small.npz").read_bytes()
        self.files = {path.name: path.read_bytes() for path in (folder / "good").iterdir()}
        self.fif = self._fif(recordings)
        self.xdf = xdf_file(folder / "good.xdf").read_bytes()
        fold = at.leave_one_subject_out(recordings)[0]
        setting = at.Setting(max_epochs=1, batch_size=16)
        (outcome,) = at.train(recordings, [at.Job(setting, fold)], "cpu")
        single = build_model(recordings, [CandidateFits(setting, [outcome.state], [fold])], scores={})
        tensors = single.tensors()
        write_model(folder / "model", single.card, tensors)
        self.model = load_model(folder / "model")
        mixture = weighted([self.model] * 2, [0.5, 1.0])
        self.mixture = json.dumps(asdict(mixture.card)), save(mixture.tensors())
        self.card, self.weights = (folder / "model" / "model.json").read_text(), save(tensors)

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

    # targets: each does what a user would with something bad

    def run_npz(self, draw: random.Random) -> at.Recordings:
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
        return load(path)

    def run_folder(self, draw: random.Random) -> at.Recordings:
        path = self.work / "case"
        path.mkdir()
        bad = draw.choice(sorted(self.files))
        for file, content in self.files.items():
            if file != bad:
                (path / file).write_bytes(content)
            elif file == "meta.json" and draw.random() < 0.7:
                (path / file).write_text(json.dumps(twisted(json.loads(content), draw)))
            else:
                (path / file).write_bytes(damaged(content, draw))
        return load(path)

    def run_fif(self, draw: random.Random) -> at.Recordings | None:
        if self.fif is None:
            return None
        path = self.work / "case-epo.fif"
        path.write_bytes(damaged(self.fif, draw))
        return load(path)

    def _three(self, ending: str, good: bytes, draw: random.Random) -> None:
        """Files of three subjects, the second of them damaged."""
        for person in "abc":
            (self.work / f"{person}{ending}").write_bytes(damaged(good, draw) if person == "b" else good)

    def run_columns(self, draw: random.Random) -> at.Recordings:
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
        options = "" if draw.random() < 0.8 else draw.choice(("?label=label", "?channels=emg1", "?=&"))
        return load(f"{self.work}{options}", **asked)

    def _cut(self, draw: random.Random, events: str = "T1=left,T2=right") -> at.Recordings:
        """Windows of the work's files, at events or one after the other."""
        asked: dict[str, Any] = {"window": draw.choice((1.0, 0.3))}
        if draw.random() < 0.3:
            asked |= {"hop": draw.choice((0.5, 1.0)), "filter": draw.choice((None, "2-30", "5-,notch:20"))}
        return load(self.work, events=events, **asked)

    def run_xdf(self, draw: random.Random) -> at.Recordings:
        self._three(".xdf", self.xdf, draw)
        return self._cut(draw)

    def run_edf(self, draw: random.Random) -> at.Recordings | None:
        if self.edf is None:
            return None
        self._three(".edf", self.edf, draw)
        return self._cut(draw)

    def run_wfdb(self, draw: random.Random) -> at.Recordings | None:
        """A header, its samples and its annotations: some of them damaged."""
        if self.wfdb is None:
            return None
        which = draw.choice((".hea", ".dat", ".atr"))
        for (person, ending), content in self.wfdb.items():
            bad = person == "b" and ending == which
            (self.work / f"{person}{ending}").write_bytes(damaged(content, draw) if bad else content)
        return self._cut(draw, draw.choice(("N=normal,V=ventricular", "(AFIB=af,(N=sinus")))

    @cached_property
    def edf(self) -> bytes | None:
        try:
            import edfio  # noqa: F401 - writes the file
        except ImportError:
            return None
        return edf_file(self.folder / "good.edf").read_bytes()

    @cached_property
    def wfdb(self) -> dict[tuple[str, str], bytes] | None:
        try:
            import wfdb  # noqa: F401 - writes the files
        except ImportError:
            return None
        for person in "abc":
            wfdb_record(self.folder / "wfdb", person)
        return {(path.stem, path.suffix): path.read_bytes() for path in sorted((self.folder / "wfdb").iterdir())}

    def run_names(self, draw: random.Random) -> at.Recordings:
        """Labels and subjects that are texts, some of them odd; of more than one kind, or too many."""
        rec = TINY
        n = rec.n_windows
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
        return load(self.work / "case.npz")

    def run_setting(self, draw: random.Random) -> None:
        text = draw.choice(self.settings)
        at.Setting.from_json(
            json.dumps(twisted(json.loads(text), draw))
            if draw.random() < 0.8
            else damaged(text.encode(), draw).decode(errors="replace")
        )

    def run_options(self, draw: random.Random) -> None:
        changed = twisted(described(source="synthetic").to_dict(), draw)
        schema.from_values(RunOptions, changed).settings()

    def run_record(self, draw: random.Random) -> None:
        """What ledgers and choice.json hold: records, choices, options, a search's proposals, what weights told."""
        kind, values = draw.choice(self.records)
        text = json.dumps(twisted(values, draw, ODD))
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
                card = json.dumps(json.loads(card) | {DIGEST: model_digests(json.loads(card), weights)})
        (path / "model.json").write_text(card)
        (path / "model.safetensors").write_bytes(weights)
        make_prediction_table(load_model(path), read(self.folder / "good.npz"))

    def run_predict(self, draw: random.Random) -> None:
        rec = tiny()
        fields: dict[str, Any] = {"X": rec.X.numpy(), "channels": ["C3", "C4"], "sfreq": 16.0, "subject": rec.subject}
        name = draw.choice(sorted(fields))
        shapes = [(0, 2, 16), (3, 2, 16), (3, 1, 16), (3, 2, 15), (2, 2), (1, 2, 16), (3, 2, 16, 1)]
        fields[name] = draw.choice([*NASTY, np.full(draw.choice(shapes), draw.choice((0.0, np.nan, 1e30)))])
        make_prediction_table(self.model, Raw(**fields))

    def case(self, target: str, seed: int) -> str:
        """'fine', 'refused' or, of libraries of others, 'hung'; anything else is raised."""
        draw = random.Random(f"{target} {seed}")
        signal.signal(signal.SIGPROF, _give_up)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_OF_OTHERS if target in OTHERS else LIMIT)
        try:
            with warnings.catch_warnings(), self.guard(target):
                warnings.simplefilter("ignore")
                found = getattr(self, f"run_{target}")(draw)
                if isinstance(found, at.Recordings):
                    try:
                        check_valid(found)
                    except AssertionError as error:
                        raise WrongResult(error) from None
        except UserError as error:
            if "\n" in str(error) or not str(error):
                raise AssertionError(f"not one line: {str(error)!r}") from error
            return "refused"
        except Stuck:
            if target not in OTHERS:
                raise
            return "hung"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir()
        return "fine"

    def guard(self, target: str) -> contextlib.AbstractContextManager[None]:
        """Around every case of the targets that write; of the others once, around them all."""
        if target in ("run", "report"):
            return unchanged_outside(self.folder, self.work)
        return contextlib.nullcontext()

    def run(self, cases: int, seed: int, tell: Callable[[str], None]) -> Counter[str]:
        """About `cases` cases, shared out by SOME among targets, a piece of each in turn. Findings are told, and
        counted as 'found', or as 'silent' if recordings are wrong without an error."""
        whole = sum(SOME.values())
        todo = {name: max(int(cases * share / whole), min(LEAST, cases // 100)) for name, share in SOME.items()}
        for target in SOME:
            self._prepare(target)  # what it starts from lies next to the work
        with unchanged_outside(self.folder, self.work):
            counts = {target: Counter[str]() for target in SOME}
            while behind := {name: counts[name].total() / n for name, n in todo.items() if counts[name].total() < n}:
                target = min(behind, key=lambda name: behind[name])
                first = seed + counts[target].total()
                counts[target] += self.piece(target, range(first, seed + todo[target]), tell)
        assert not self.trap.exists(), "a pickle was opened"
        return sum(counts.values(), Counter[str]())

    def piece(self, target: str, seeds: Sequence[int], tell: Callable[[str], None] | None = print) -> Counter[str]:
        """The first cases, for about PIECE seconds. Those of other libraries in a process of their own, for they crash;
        the case that ended it has 'crashed'."""
        if target not in OTHERS:
            return Counter(self._outcomes(target, seeds, tell))
        self._prepare(target)
        ours, theirs = os.pipe()
        if (child := os.fork()) == 0:
            for outcome in self._outcomes(target, seeds, tell):
                os.write(theirs, f"{outcome}\n".encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as lines:
            counts = Counter(line.strip() for line in lines)
        if os.waitpid(child, 0)[1] != 0:
            counts["crashed"] += 1
        return counts

    def _prepare(self, target: str) -> None:
        """Files and libraries of a target: what is forked shares them."""
        getattr(self, target, None)
        for library in ("scipy.io", "pyxdf", "wfdb", "mne"):
            with contextlib.suppress(ImportError):
                import_module(library)

    def _outcomes(self, target: str, seeds: Sequence[int], tell: Callable[[str], None] | None) -> Iterator[str]:
        end = time.monotonic() + PIECE
        for seed in seeds:
            try:
                yield self.case(target, seed)
            except (Exception, Stuck) as error:
                if tell is not None:
                    tell(f"{target} {seed}: {type(error).__name__}: {str(error)[:300]!r}")
                yield "silent" if isinstance(error, WrongResult) else "found"
            if time.monotonic() > end:
                break
