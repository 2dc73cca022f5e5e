"""What a run survives: damaged checkpoints, NaN, too little memory, other writers."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save

import autotransfer as at
from autotransfer import schema
from autotransfer.errors import UserError
from autotransfer.runs import executor
from autotransfer.runs.checkpoint import load_checkpoint
from autotransfer.runs.database import RunDatabase
from autotransfer.runs.options import RunOptions
from autotransfer.runs.progress import status_lines
from autotransfer.runs.run import create_run_database
from autotransfer.search.procedure import perform_plan
from autotransfer.training import closed_form
from autotransfer.training.trainer import Trainer
from faults import (
    assert_one_line,
    assert_same_run,
    call,
    entries_of,
    finish,
    interrupted_run,
    make_run,
    quiet,
    table_of,
    whole_run,
    words_of,
)  # fmt: skip
from tiny import tiny, tiny_file

faults = pytest.mark.faults
SOAK = float(os.environ.get("AUTOTRANSFER_SOAK", "60"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_file(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    return whole_run(tmp_path_factory.mktemp("undisturbed") / "run", source)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """In the middle of stage one: a population has ended, the next has a checkpoint."""
    return interrupted_run(tmp_path_factory.mktemp("interrupted") / "run", source, checkpoints=8)


@pytest.fixture
def begun(tmp_path: Path, interrupted: Path) -> Path:
    """A copy of it, to be ill-treated."""
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


# checkpoints


def rewritten(change: Callable[[dict[str, torch.Tensor], dict[str, object]], object]) -> Callable[[Path], None]:
    """Return a damage that a checksum cannot show: a whole checkpoint, of something else."""

    def damage(path: Path) -> None:
        tensors, stored = load_checkpoint(path)
        note = schema.to_values(stored)
        change(tensors, note)
        body = save(tensors, metadata={"population": json.dumps(note)})
        path.write_bytes(hashlib.blake2b(body, digest_size=32).digest() + body)

    return damage


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in random.Random(0).sample(range(len(content)), 20):
        content[place] ^= 0xFF
    path.write_bytes(content)


DAMAGES = {
    "flipped bytes": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "one member for all": rewritten(
        lambda tensors, note: tensors.update({name: tensor[:1].clone() for name, tensor in tensors.items()})
    ),
    "fewer weights": rewritten(
        lambda tensors, note: tensors.update({"flat.values": tensors["flat.values"][:, 1:].clone()})
    ),
    "too many epochs": rewritten(lambda tensors, note: note.update(epoch=10**9)),
    "other jobs": rewritten(lambda tensors, note: note.update(keys=["a"])),
}


@pytest.mark.parametrize("damage", ["flipped bytes", *(pytest.param(one, marks=faults) for one in [*DAMAGES][1:])])
def test_a_damaged_checkpoint_costs_its_population_and_no_more(
    begun: Path, undisturbed: Path, damage: str, campaign: Callable[..., None]
) -> None:
    (path,) = begun.glob("*.checkpoint")
    before = {entry.key: entry.starts for entry in entries_of(begun, begun.with_suffix(".copy"))}
    DAMAGES[damage](path)
    after = {entry.key: entry.starts for entry in finish(begun)}
    restarted = [key for key, starts in before.items() if after[key] == starts + 1 and starts == 1]
    assert restarted
    assert_same_run(begun, undisturbed)
    campaign("damaged checkpoints", 1)


# losses that are not numbers


@faults
def test_members_that_diverge_fail_alone(tmp_path: Path, source: Path) -> None:
    """A rate at which nothing can be learned, for two methods' settings; the rest must not notice, though steps go on
    in the epoch in which the weights have become NaN."""
    undisturbed = whole_run(tmp_path / "undisturbed", source, batch_size=8)
    real = RunOptions.settings

    def settings(options: RunOptions) -> list[at.Setting]:
        wild = {"mige": {"lr": 1e30, "estimator": "ssge"}, "adversary": {"lr": 1e30}}
        return [setting.replace(**wild.get(setting.method, {})) for setting in real(options)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunOptions, "settings", settings)
        run = make_run(tmp_path / "run", source, batch_size=8)
        choice = perform_plan(run, quiet, progress=False)
        assert call("report", run.folder).code == 0
    table, expected = table_of(run.folder), table_of(undisturbed)
    failed = table["failure"] != ""
    assert set(table.loc[failed, "method"]) == {"mige", "adversary"}
    assert table.loc[failed, "failure"].str.fullmatch(r"the \w+( \w+)? became (nan|inf) in epoch \d").all()
    pd.testing.assert_frame_equal(
        table[~failed].reset_index(drop=True),
        expected[~expected["method"].isin(("mige", "adversary"))].reset_index(drop=True),
    )
    assert choice.chosen.setting.method not in ("mige", "adversary")
    assert "</html>" in (run.folder / "report.html").read_text()
    lines = status_lines(run.folder)
    assert sum(line.startswith("failed: ") for line in lines) == failed.sum()


@faults
def test_a_run_in_which_all_fits_diverge_ends_in_one_line(tmp_path: Path, source: Path) -> None:
    result = call("run", source, *words_of(lr=1e30), "--out", tmp_path / "run")
    assert_one_line(result, 2, "every fit", "failed", "smaller lr")
    assert "failed: paper_network: the weights became nan in epoch 1" in call("status", tmp_path / "run").out


# memory


class Small(Trainer):
    """A population on a machine that holds three members."""

    most = 3

    def __init__(self, jobs: list[at.Job], *others: object) -> None:
        super().__init__(jobs, *others)
        if len(jobs) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nsecond line")


class Shrinking(Trainer):
    """It runs out of memory in its third epoch, in the words of the CPU's allocator."""

    def train_epoch(self) -> None:
        if self.epoch == 2 and len(self.jobs) > 3:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: 8 GB")
        super().train_epoch()


@faults
@pytest.mark.parametrize("kind", [Small, Shrinking])
def test_a_population_that_does_not_fit_is_trained_in_parts(
    tmp_path: Path, source: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Trainer]
) -> None:
    monkeypatch.setattr(closed_form, "Trainer", kind)
    monkeypatch.setattr(executor, "CHECKPOINT_EVERY", -1.0)
    run = make_run(tmp_path / "run", source)
    perform_plan(run, quiet, progress=False)
    assert_same_run(run.folder, undisturbed)
    assert max(entry.record.population for entry in run.database.entries()) <= 3
    assert run.database.open_populations() == []


# two writers


@faults
def test_a_run_is_begun_once(tmp_path: Path) -> None:
    """However close the second process is behind the first: it must not replace what that has begun."""
    path = tmp_path / "run.sqlite"
    first = create_run_database(path, {"options": "the first's"})
    with pytest.raises(UserError, match="already holds a run"):
        create_run_database(path, {"options": "the second's"})
    assert first.load_fact("options", str) == RunDatabase(path).load_fact("options", str) == "the first's"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


# long runs


def own_memory() -> int:
    """Bytes of memory that are this process's alone."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def assert_nothing_piles_up(work: Callable[[int], object], seconds: float, least: int = 8) -> str:
    """Call it with 0, 1, 2, … for so long. After a quarter of the time the median of memory in the second half is at
    most 3 MB above the first half's (the allocator's own fluctuation), and the number of open files does not grow."""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    memory, files = [], []
    gc.collect()  # what other tests have left
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or len(memory) < least:
        work(len(memory))
        memory.append(own_memory())
        files.append(len(os.listdir("/proc/self/fd")))
    warm = max(2, len(memory) // 4)
    settled = np.array(memory[warm:]) / 2**20
    drift = np.median(settled[len(settled) // 2 :]) - np.median(settled[: len(settled) // 2])
    told = (
        f"{len(memory)} rounds in {time.monotonic() - begin:.0f} s, {settled[0]:.1f} MB after warming up, drift "
        f"{drift:+.2f} MB, {files[warm]} open files then, {max(files[warm:])} at most later"
    )
    assert drift <= 3, f"memory grew: {told}: {np.round(settled[:: max(1, len(settled) // 100)], 1).tolist()}"
    assert max(files[warm:]) <= files[warm], f"open files grew: {told}"
    return told


# Settings that take other paths through training and prediction; windows of one shape, for shapes are cached.
FITS: list[dict[str, object]] = [
    {}, {"method": "mmd", "mode": "conditional"}, {"method": "adversary", "strength": 0.1}, {"encoder": "shallow"},
    {"standardize": "online"}, {"standardize": "train", "align": "transductive"}, {"log_power": True},
    {"checkpoint": "averaged"}, {"method": "mige", "mode": "marginal"}, {"method": "began"},
]  # fmt: skip


@faults
def test_many_fits_leave_nothing_behind(capsys: pytest.CaptureFixture) -> None:
    """fit, predict and a subject's windows one after the other, with every one of FITS in a round."""
    recordings = tiny()
    X, y, who = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()

    def fit(_: int) -> None:
        for own in FITS:
            model = at.CensoredClassifier(**own, max_epochs=2, batch_size=16, device="cpu", sfreq=16)
            model.fit(X, y, subjects=who).predict_proba(X[who == 0])

    told = assert_nothing_piles_up(fit, SOAK, least=20)
    with capsys.disabled():
        print(f"\n{len(FITS)} fits a round: {told}")
