"""Targets of tests/fuzz.py that are whole runs: damaged folders, and reports with hostile names."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.recordings import save_npz
from autotransfer.report.collect import collect
from autotransfer.runs.checkpoint import load_checkpoint
from autotransfer.runs.run import Run
from faults import call, few_settings, interrupted_run, tampered, whole_run
from mutations import NASTY, damaged, name, twisted
from report_outline import Outline, figure_data, labels, light
from tiny import tiny

# What a value in the database may be, each with its JSON.
STORED = (("facts", "value"), ("jobs", "record"), ("jobs", "setting"), ("populations", "keys"))
PLAIN = (
    ("jobs", "key"), ("jobs", "validation"), ("jobs", "test"), ("jobs", "seed"), ("jobs", "status"), ("jobs", "stage"),
    ("jobs", "number"), ("jobs", "starts"), ("jobs", "tensors"), ("populations", "status"),
)  # fmt: skip


@contextlib.contextmanager
def unchanged_outside(folder: Path, work: Path) -> Iterator[None]:
    """Whatever happens in `work`, nothing else in `folder` changes and nothing appears where the mutations point."""

    def seen() -> list[tuple[str, int, int]]:
        found = [path for path in folder.rglob("*") if not path.is_relative_to(work) and not path.is_dir()]
        return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in found)

    before = seen()
    yield
    assert (after := seen()) == before, f"written beside the work: {set(after) ^ set(before)}"
    for place in (Path("/tmp"), Path(), Path(".."), Path("../.."), work, folder, folder.parent):
        assert not os.path.lexists(place / "escaped"), f"something was written to {place}"


class RunTargets:
    """`run`: a run's folder changed on disk, then status, report and resume. `report`: names that would be markup."""

    work: Path
    folder: Path

    def prepare_runs(self, folder: Path) -> None:
        self.tame: set[str] = set()  # tags of pages whose names are harmless
        rec = tiny(3)
        people = np.array(["ann", "bob", "cleo"])[rec.subject]  # no subject has the name of another value
        save_npz(folder / "run.npz", at.Recordings(rec.X, rec.y, people, sfreq=16, channels=["C3", "C4"], name="tiny"))
        (folder / "mine").write_text("my thesis")
        changes = {"max_epochs": 2, "device": "cpu"}
        with few_settings():
            whole_run(folder / "finished", folder / "run.npz", **changes)
            assert call("report", folder / "finished").code == 0
            interrupted_run(folder / "interrupted", folder / "run.npz", checkpoints=1, **changes)
            for kind in ("interrupted", "finished"):
                run = Run.open(folder / kind)
                self.summary = collect(run)
                run.database.close()
                self.tame |= set(Outline(light(self.summary)).tags)

    # run

    def run_run(self, draw: random.Random) -> None:
        path = self.work / "run"
        shutil.copytree(self.folder / draw.choice(("finished", "interrupted")), path)
        for _ in range(draw.choice((1, 1, 2))):
            self._harm(path, draw)
        refused: str | None = None
        with few_settings():
            for command in ("status", *draw.sample(("report", "resume", "status"), 2)):
                result = call(command, path)
                said = [line for line in result.err.splitlines() if line and "elapsed" not in line]  # no progress
                is_told = len(said) == 1 and "could not be drawn" in said[0]
                assert (result.code, len(said)) in ((0, int(is_told)), (1, 1), (2, 1)), (command, result)
                assert len(result.err) < 2000, (command, result.err)
                refused = said[0] if result.code else refused
        report = path / "report.html"
        if report.is_file() and not report.is_symlink():
            self.check_tags(report.read_text(errors="replace"))
        if refused is not None:
            raise UserError(refused)

    def _harm(self, path: Path, draw: random.Random) -> None:
        """One change that a disk, a careless hand or an enemy could make."""
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "report.html")
        file, kind = draw.choice(files), draw.random()
        if kind < 0.15:
            file.unlink()
            if draw.random() < 0.3:
                file.mkdir()
            elif draw.random() < 0.5:
                file.symlink_to(draw.choice((self.folder / "mine", Path("/tmp/escaped"), Path("../escaped"), file)))
        elif kind < 0.4:
            file.write_bytes(damaged(file.read_bytes(), draw))
        elif kind < 0.55 and (path / "choice.json").is_file():
            self._rewrite_json(path / "choice.json", draw)
        elif kind < 0.7 and (found := list(path.glob("*.checkpoint"))):
            self._rewrite_checkpoint(found[0], draw)
        elif not (path / "run.sqlite").is_symlink():  # harmed before
            self._lie(path / "run.sqlite", draw)

    def _rewrite_json(self, path: Path, draw: random.Random) -> None:
        with contextlib.suppress(ValueError):  # harmed before
            path.write_text(json.dumps(twisted(json.loads(path.read_text(errors="replace")), draw)))

    def _rewrite_checkpoint(self, path: Path, draw: random.Random) -> None:
        """With the right checksum, of other contents."""
        found = load_checkpoint(path)
        if found is None:
            return
        tensors, stored = found
        note = schema.to_values(stored)
        if draw.random() < 0.5:
            note = twisted(note, draw)
        else:
            key = draw.choice(sorted(tensors))
            tensor = tensors[key]
            odd = (tensor[:0], tensor[:1], tensor.double(), tensor * float("nan"), tensor[None], tensor.flatten()[:3])
            tensors[key] = draw.choice(odd).clone()
        body = save(tensors, metadata={"population": json.dumps(note)})
        path.write_bytes(hashlib.blake2b(body, digest_size=32).digest() + body)

    def _lie(self, path: Path, draw: random.Random) -> None:
        """A changed value under a right checksum."""
        import sqlite3

        with contextlib.suppress(sqlite3.Error, ValueError, TypeError), tampered(path) as connection:
            if draw.random() < 0.3:
                connection.execute("UPDATE facts SET value = 'false' WHERE name = 'complete'")
            table, column = draw.choice(STORED * 3 + PLAIN)
            rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
            row, value = draw.choice(rows)
            if (table, column) in STORED:
                value = json.dumps(twisted(json.loads(value), draw))
            elif isinstance(value, bytes):
                value = draw.choice((damaged(value, draw), b"", None))
            else:
                value = draw.choice([one for one in NASTY if one is None or isinstance(one, (str, float, bytes))])
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))

    # report

    def run_report(self, draw: random.Random) -> None:
        if draw.random() < 0.05:
            self._whole_way(draw)
            return
        names: dict[str, str] = {}

        def renamed(value: Any) -> Any:
            """The same with every text that is a user's, or may be, replaced: always the same one by the same."""
            if isinstance(value, str):
                return names.setdefault(value, name(draw)) if value in users else value
            if isinstance(value, dict):
                return {renamed(key): renamed(item) for key, item in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(renamed(item) for item in value)
            if is_dataclass(value) and not isinstance(value, at.Setting):
                return replace(value, **{field.name: renamed(getattr(value, field.name)) for field in fields(value)})
            return value

        run, data = self.summary, self.summary.data
        users = {*data.subjects, *data.classes, *data.channels, *run.versions.values(), run.name, run.options.source}
        settings = {one.name for one in run.fits}
        users |= {run.command, run.device, run.started, *settings} - {"paper_network"}  # which is a role, too
        self.check_page(light(renamed(run)))

    def _whole_way(self, draw: random.Random) -> None:
        """From a file with such names, under such a name, through training to the page."""
        rec = tiny(3)
        people, classes, channels = ([name(draw) for _ in range(n)] for n in (3, 2, 2))
        stem = re.sub(r"[/\x00\ud800]", "", name(draw))[:40]
        source = self.work / f"{stem}.npz"
        labeled = at.Recordings(
            rec.X, np.array(classes)[rec.y], np.array(people)[rec.subject], sfreq=16, channels=channels, name=name(draw)
        )
        save_npz(source, labeled)
        with few_settings():
            whole_run(self.work / f"run {stem}", source, max_epochs=1)
            result = call("report", self.work / f"run {stem}")
        assert result.code == 0, result
        self.check_page((self.work / f"run {stem}" / "report.html").read_text())

    def check_tags(self, text: str) -> None:
        assert text.count("<script") == text.count("</script>") == 3
        outline = Outline(text)
        assert set(outline.tags) <= self.tame, set(outline.tags) - self.tame
        assert all(not key.startswith("on") for _, key, _ in outline.attributes)
        assert all(link.startswith("#") for link in outline.values("href"))

    def check_page(self, text: str) -> None:
        text.encode()  # no lone surrogate is left
        self.check_tags(text)
        for label in labels(figure_data(text)):
            assert "<" not in re.sub(r"</?b>|<br>|<extra></extra>", "", label), label
