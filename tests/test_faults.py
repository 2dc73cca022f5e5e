"""What a run survives: kills, lost workers, full disks, damaged checkpoints, NaN, too little memory.

Marked `faults`: `make test-slow` runs them. docs/faults.md lists the variables that make them longer.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.recordings import save_folder, save_npz
from autotransfer.runs import executor
from autotransfer.runs.checkpoint import load_checkpoint
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.lock import Lock
from autotransfer.runs.options import RunOptions
from autotransfer.runs.progress import status_lines
from autotransfer.runs.run import begin_ledger
from autotransfer.search.procedure import conduct
from autotransfer.training import closed_form, packing
from autotransfer.training.trainer import Trainer
from faults import (
    ARGUMENTS,
    WAYS,
    Command,
    assert_one_line,
    assert_same_run,
    call,
    entries_of,
    finish,
    interrupted_run,
    kill_one_run,
    make_run,
    quiet,
    table_of,
    wait_for_a_write,
    whole_run,
)  # fmt: skip
from tiny import tiny, tiny_file

pytestmark = pytest.mark.faults

KILLS = int(os.environ.get("AUTOTRANSFER_KILLS", "20"))
KILLED_RUNS = int(os.environ.get("AUTOTRANSFER_KILLED_RUNS", "3"))
KILLS_WITHIN = float(os.environ.get("AUTOTRANSFER_KILLS_WITHIN", "inf"))
SEED = int(os.environ.get("AUTOTRANSFER_SEED", "0"))
# Long enough for populations to be met in the middle, when some of their members have left.
KILLED = [*ARGUMENTS, "--epochs", "30", "--patience", "8"]
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


# kills


def noisy_file(folder: Path) -> Path:
    """Windows in which there is next to nothing to learn, so that patience ends with every member at another time."""
    recordings = tiny(per_class=8)
    order = np.random.default_rng(0).permutation(recordings.n_trials)
    save_npz(folder / "noisy.npz", at.Recordings(recordings.X, recordings.y[order], recordings.subject, sfreq=16))
    return folder / "noisy.npz"


def test_kills_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """SIGKILL of the whole process group at random moments, over runs in memory, from a file and on a local cluster in
    turn: every run ends with the same rows, scores, choice and weights as an undisturbed one; no job is lost, and none
    that was finished is trained again.

    A kill comes a random while after the process first wrote something, so that kills meet work and not imports; often
    where a stage ends, when its answer is written. After each, `predict` works or says that there is no model yet.
    """
    generator = random.Random(SEED)
    sources = dict.fromkeys(WAYS, noisy_file(tmp_path))
    save_folder(tmp_path / "noisy", at.load(sources["file"]))
    sources["file"] = tmp_path / "noisy"
    span: dict[str, float] = {}
    rows: list[dict[str, object]] = []
    end = time.monotonic() + KILLS_WITHIN
    runs = 0
    while len(rows) < KILLS and time.monotonic() < end:
        name = list(WAYS)[runs % len(WAYS)]
        way, undisturbed = WAYS[name], tmp_path / name
        if name not in span:
            log = tmp_path / "log"
            first = Command("run", sources[name], *KILLED, *way.more, "--out", undisturbed, log=log,
                            from_file=way.from_file)  # fmt: skip
            assert wait_for_a_write(undisturbed, (), first)
            begin = time.monotonic()
            assert first.wait() == 0, first.said()
            span[name] = time.monotonic() - begin
        runs += 1
        most = min(math.ceil(KILLS / KILLED_RUNS), KILLS - len(rows))
        most = math.ceil(most / 4) if name == "cluster" else most  # which takes long to start
        folder = tmp_path / f"run{runs}"
        rows += kill_one_run(folder, sources[name], KILLED, span[name], most, generator, way)
        assert_same_run(folder, undisturbed)
        assert (folder / "report.html").exists()
        shutil.rmtree(folder)
        if path := os.environ.get("AUTOTRANSFER_KILLS_TABLE"):
            Path(path).write_text(f"{len(rows)} kills in {runs} runs\n{as_text(rows)}\n")
    with capsys.disabled():
        print(f"\n{len(rows)} kills in {runs} runs\n{as_text(rows)}")
    assert sum(int(str(row["done"])) > 0 for row in rows) > len(rows) / 4, "hardly any kill met finished jobs"


def as_text(rows: list[dict[str, object]]) -> str:
    return "\n".join(" | ".join(map(str, line)) for line in [rows[0].keys(), *(row.values() for row in rows)])


def test_a_kill_before_the_report_leaves_a_run_that_writes_it(tmp_path: Path, undisturbed: Path) -> None:
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    assert not (folder / "report.html").exists()
    (folder / ".report.html.123.part").write_text("half a page")
    (folder / ".choice.json.abcd1234").write_text("half a choice")
    result = call("resume", folder)
    assert result.code == 0
    assert "is finished" in result.out
    assert "</html>" in (folder / "report.html").read_text()
    assert_same_run(folder, undisturbed)


def test_a_kill_while_the_folder_is_made_leaves_no_run(tmp_path: Path, source: Path, undisturbed: Path) -> None:
    """The ledger appears only when it says what is to be done; what comes before is swept away."""
    folder = tmp_path / "run"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "remember", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            make_run(folder, source)
    assert [path.name for path in folder.iterdir() if path.name.endswith(".part")]
    assert_one_line(call("resume", folder), 2, "is not a run")
    assert call("run", source, *ARGUMENTS, "--out", folder).code == 0
    assert_same_run(folder, undisturbed)


# a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    from autotransfer.cluster import Cluster

    with Cluster("local:2") as place:
        yield place


def small_memory(most: int) -> None:
    """On a worker: no population of more than so many members fits."""
    import autotransfer.training.closed_form as module

    class Small(Trainer):
        def __init__(self, jobs: list[at.Job], *others: object) -> None:
            if len(jobs) > most:
                raise torch.OutOfMemoryError(f"CUDA out of memory: {len(jobs)} members\nand more lines")
            super().__init__(jobs, *others)

    module.Trainer = Small


def test_a_worker_without_memory_gets_halves(tmp_path: Path, source: Path, undisturbed: Path, cluster) -> None:
    cluster.client.run(small_memory, 2)
    run = make_run(tmp_path / "run", source)
    run.executor = cluster
    conduct(run, quiet, shown=False)
    assert_same_run(run.folder, undisturbed)
    assert {entry.record.population for entry in run.ledger.entries()} == {1, 2}
    cluster.client.run(small_memory, 0)
    run = make_run(tmp_path / "none", source)
    run.executor = cluster
    with pytest.raises(UserError, match="not even one training fits into memory") as found:
        conduct(run, quiet, shown=False)
    assert "\n" not in str(found.value)
    cluster.client.run(small_memory, 10**6)


def test_killed_workers_change_nothing(
    tmp_path: Path, source: Path, undisturbed: Path, cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of one of two workers, every now and then, while populations are on them."""
    generator = random.Random(1)
    monkeypatch.setattr(packing, "CPU_LIMIT", 2)
    run = make_run(tmp_path / "run", source)
    run.executor = cluster
    over = threading.Event()
    killed = []

    def kill() -> None:
        while len(killed) < 6 and not over.wait(0.2 + 2 * generator.random()):
            pids = [nanny.pid for nanny in cluster.client.cluster.workers.values() if nanny.pid]
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    killed.append(generator.choice(pids))
                    os.kill(killed[-1], 9)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        conduct(run, quiet, shown=False)
    finally:
        over.set()
        killer.join()
    assert len(killed) >= 3
    assert_same_run(run.folder, undisturbed)


# a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB in memory, enough for a run with the copy of its ledger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def assert_stopped_and_sound(command: Command, folder: Path) -> None:
    assert command.wait() == 1, command.said()
    assert "Traceback" not in command.said()
    (line,) = [line for line in command.said().splitlines() if line.startswith(("stopped", "autotransfer"))]
    assert f"continue with: autotransfer resume {folder}" in line
    ledger = Ledger(folder / "ledger.sqlite")
    ledger.check()
    ledger.close()


@pytest.mark.parametrize(("free", "every"), [(100, 0.0), (300, 1000.0), (900, 1000.0), (2500, 1000.0)])
def test_a_full_disk(
    small_disk: Path, tmp_path: Path, source: Path, undisturbed: Path, free: int, every: float
) -> None:
    """With so many kilobytes free: while a checkpoint is written, the ledger, later on, and the report."""
    folder = small_disk / "run"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((6144 - free) * 1024))
    command = Command("run", source, *ARGUMENTS, "--out", folder, log=tmp_path / "log", checkpoint_every=every)
    command.wait()
    ballast.unlink()
    assert_stopped_and_sound(command, folder)
    ballast.write_bytes(bytes(100 * 1024))
    assert Command("resume", folder, log=tmp_path / "log").wait() == 0, (tmp_path / "log").read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize("damaged", [False, True])
def test_the_database_of_a_search(tmp_path: Path, source: Path, damaged: bool) -> None:
    """Optuna's own file, which cannot grow or is damaged."""
    folder, log = tmp_path / "run", tmp_path / "log"
    arguments = [*ARGUMENTS, "--search", "tpe", "--trials", 2, "--out", folder]
    command = Command("run", source, *arguments, log=log, largest_file=60 * 1024)
    assert_stopped_and_sound(command, folder)
    assert "optuna.sqlite" in command.said()
    if damaged:
        (folder / "optuna.sqlite").write_bytes(b"garbage" * 1000)
        assert_one_line(call("resume", folder), 2, "optuna.sqlite cannot be used", "start a new run")
    else:
        assert Command("resume", folder, log=log).wait() == 0, log.read_text()


@pytest.mark.parametrize("most", [60, 400, 1500])
def test_a_file_that_may_not_grow(tmp_path: Path, source: Path, undisturbed: Path, most: int) -> None:
    """The same through a limit on the size of files, for which nobody needs to be root."""
    folder, log = tmp_path / "run", tmp_path / "log"
    command = Command("run", source, *ARGUMENTS, "--out", folder, log=log, largest_file=most * 1024)
    assert_stopped_and_sound(command, folder)
    assert Command("resume", folder, log=log).wait() == 0, log.read_text()
    assert_same_run(folder, undisturbed)


# checkpoints


def rewritten(change: Callable[[dict[str, torch.Tensor], dict[str, object]], object]) -> Callable[[Path], None]:
    """A damage that a checksum cannot show: a whole checkpoint, of something else. A list replaces the note."""

    def damage(path: Path) -> None:
        tensors, note = load_checkpoint(path)
        replaced = change(tensors, note)
        note = replaced if isinstance(replaced, list) else note
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
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(random.Random(0).randbytes(50_000)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "one member for all": rewritten(
        lambda tensors, note: tensors.update({name: tensor[:1].clone() for name, tensor in tensors.items()})
    ),
    "fewer weights": rewritten(
        lambda tensors, note: tensors.update({"flat.values": tensors["flat.values"][:, 1:].clone()})
    ),
    "another precision": rewritten(
        lambda tensors, note: tensors.update({"flat.values": tensors["flat.values"].double()})
    ),
    "a tensor missing": rewritten(lambda tensors, note: tensors.pop("optimiser.first")),
    "too many epochs": rewritten(lambda tensors, note: note.update(epoch=10**9)),
    "other jobs": rewritten(lambda tensors, note: note.update(keys=[["a"]])),
    "other times": rewritten(lambda tensors, note: note.update(seconds="none")),
    "times without end": rewritten(lambda tensors, note: note.update(seconds=[float("nan")] * len(note["seconds"]))),
    "no notes": rewritten(lambda tensors, note: note.clear()),
    "notes in a list": rewritten(lambda tensors, note: [note]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_costs_its_population_and_no_more(begun: Path, undisturbed: Path, damage: str) -> None:
    (path,) = begun.glob("*.checkpoint")
    before = {entry.key: entry.starts for entry in entries_of(begun, begun.with_suffix(".copy"))}
    DAMAGES[damage](path)
    if path.is_dir():  # what cannot be read cannot be replaced either
        with pytest.raises(OSError, match="director"):
            finish(begun)
        path.rmdir()
    after = {entry.key: entry.starts for entry in finish(begun)}
    restarted = [key for key, starts in before.items() if after[key] == starts + 1 and starts == 1]
    assert restarted or damage == "a folder"
    assert_same_run(begun, undisturbed)


def test_a_good_checkpoint_is_used(begun: Path, undisturbed: Path) -> None:
    before = {entry.key: entry.starts for entry in entries_of(begun, begun.with_suffix(".copy")) if entry.starts}
    after = {entry.key: entry.starts for entry in finish(begun)}
    assert before.items() <= after.items()
    assert_same_run(begun, undisturbed)


def test_a_kill_between_the_end_of_a_population_and_of_its_checkpoint_leaves_nothing(
    begun: Path, undisturbed: Path
) -> None:
    (path,) = begun.glob("*.checkpoint")
    path.with_name("population-1.checkpoint").write_bytes(path.read_bytes())  # of the one that has ended
    finish(begun)
    assert_same_run(begun, undisturbed)


# losses that are not numbers


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
        choice = conduct(run, quiet, shown=False)
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


@pytest.mark.parametrize("folds", [{0}, {0, 1, 2, 3}])
def test_a_report_comes_though_the_baseline_failed(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, folds: set[int]
) -> None:
    """Weights that turn to NaN after the last step of an epoch, when the training loss was still good."""
    real = Trainer.train_epoch

    def train_epoch(population: Trainer) -> None:
        real(population)
        for member, job in enumerate(population.jobs):
            plain = job.setting.method is None and job.setting.batches == "shuffled"
            if population.epoch == 4 and plain and job.fold.test_subject in folds:
                population.flat.values[member] = float("nan")

    monkeypatch.setattr(Trainer, "train_epoch", train_epoch)
    run = make_run(tmp_path / "run", source)
    choice = conduct(run, quiet, shown=False)
    failures = [e.record.failure for e in run.ledger.entries() if e.status == "failed"]
    assert failures == ["the weights became nan in epoch 4"] * len(folds)
    assert not choice.baseline_won
    result = call("report", run.folder)
    assert result.code == 0
    assert "</html>" in (run.folder / "report.html").read_text()


def test_when_everything_diverges_one_line_says_so(tmp_path: Path, source: Path) -> None:
    result = call("run", source, *ARGUMENTS, "--lr", 1e30, "--out", tmp_path / "run")
    assert_one_line(result, 2, "every training", "failed", "smaller --lr")
    assert "failed: baseline: the weights became nan in epoch 1" in call("status", tmp_path / "run").out


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


@pytest.mark.parametrize("kind", [Small, Shrinking])
def test_a_population_that_does_not_fit_is_trained_in_parts(
    tmp_path: Path, source: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Trainer]
) -> None:
    monkeypatch.setattr(closed_form, "Trainer", kind)
    monkeypatch.setattr(executor, "CHECKPOINT_EVERY", -1.0)
    run = make_run(tmp_path / "run", source)
    conduct(run, quiet, shown=False)
    assert_same_run(run.folder, undisturbed)
    assert max(entry.record.population for entry in run.ledger.entries()) <= 3
    assert run.ledger.open_populations() == []


def test_a_passing_shortage_leaves_other_populations_whole(
    tmp_path: Path, source: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program takes the memory for a while. What waits is not cut up for it."""
    short = iter([True, True])

    class Short(Trainer):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            if next(short, False):
                raise RuntimeError("cusolver error: …, when calling `cusolverDnCreate(handle)`")

    monkeypatch.setattr(closed_form, "Trainer", Short)
    monkeypatch.setattr(packing, "CPU_LIMIT", 4)
    run = make_run(tmp_path / "run", source)
    conduct(run, quiet, shown=False)
    assert_same_run(run.folder, undisturbed)
    sizes = [entry.record.population for entry in run.ledger.entries()]
    assert (sizes.count(1), sizes.count(2), sizes.count(4)) == (2, 2, len(sizes) - 4)


def test_not_even_one_member(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "most", 0)
    monkeypatch.setattr(closed_form, "Trainer", Small)
    result = call("run", source, *ARGUMENTS, "--out", tmp_path / "run")
    assert_one_line(result, 2, "not even one training fits into memory (CUDA out of memory", "smaller batch_size")


def test_train_splits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = tiny()
    settings = [at.Setting(max_epochs=n, batch_size=8) for n in (2, 3, 4)]
    jobs = [at.Job(setting, fold) for setting in settings for fold in at.leave_one_subject_out(recordings)]
    expected = at.train(recordings, jobs, "cpu")
    for kind in (Small, Shrinking):
        monkeypatch.setattr(closed_form, "Trainer", kind)
        for own, other in zip(at.train(recordings, jobs, "cpu"), expected, strict=True):
            assert own.history == other.history
            assert all(torch.equal(tensor, other.state[name]) for name, tensor in own.state.items())
            assert own.population <= 12
    monkeypatch.setattr(Small, "most", 0)
    monkeypatch.setattr(closed_form, "Trainer", Small)
    with pytest.raises(UserError, match="not even one training"):
        at.train(recordings, jobs, "cpu")


# folders that cannot be written


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of everybody's, and this process without root's rights to write everywhere."""
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
        shutil.rmtree(folder)


def test_folders_that_cannot_be_written(source: Path, interrupted: Path) -> None:
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data.npz"
        shutil.copy(source, data)
        data.parent.chmod(0o755)
        data.chmod(0o644)
        copy = data.parent / "run"
        shutil.copytree(interrupted, copy)
        subprocess.run(["chmod", "-R", "a+rX,a-w", copy], check=True)
        # This also imports everything while the interpreter's files can be read.
        assert call("run", data, *ARGUMENTS, "--out", data.parent / "new" / "parents" / "run").code == 0
        folder = stack.enter_context(unprivileged())
        for command in ("resume", "report"):
            assert_one_line(call(command, copy), 2, f"cannot write to {copy}")
        status = call("status", copy)
        assert status.code == 0, status
        assert "interrupted" in status.out
        for name, mode in (("closed", 0o555), ("hidden", 0o000)):
            (folder / name).mkdir(mode=mode)
        assert_one_line(call("run", data, "--out", folder / "closed"), 2, "cannot write to", "Permission denied")
        assert_one_line(call("run", data, "--out", folder / "closed" / "a" / "run"), 2, "cannot write to")
        for command in ("resume", "status", "report"):
            result = call(command, folder / "hidden" / "run")
            assert result.code in (1, 2), result
            assert len(result.err.splitlines()) == 1, result
        (folder / "file").write_text("text")
        assert_one_line(call("run", data, "--out", folder / "file"), 2, "cannot write to", "File exists")
        assert_one_line(call("run", data, "--out", folder / "file" / "run"), 2, "cannot write to", "Not a directory")
        assert_one_line(call("resume", folder / "file"), 2, "is a file")
        assert_one_line(call("resume", folder / "nowhere" / "run"), 2, "there is no folder")
        assert_one_line(call("status", folder / "nowhere" / "run"), 2, "is not a run")
        assert (folder / "file").read_text() == "text"


# two writers


def test_the_second_writer_leaves_and_a_dead_one_does_not_block(
    tmp_path: Path, source: Path, undisturbed: Path
) -> None:
    folder = tmp_path / "run"
    arguments = [*ARGUMENTS, "--out", folder]
    first = Command("run", source, *arguments, "--epochs", 3000, log=tmp_path / "first")
    while not list(folder.glob("*.checkpoint")):
        assert first.running(), first.said()
        time.sleep(0.01)
    for command, words in ((["resume", folder], "in use by"), (["run", source, *arguments], "already holds a run")):
        second = Command(*command, log=tmp_path / "second")
        try:
            assert second.wait(60) == 2
        finally:
            second.kill()
        (line,) = second.said().splitlines()
        assert words in line
    assert first.running()
    first.kill()
    assert (folder / "lock").read_text() == f"pid {first.process.pid}"
    with Lock(folder):
        pass
    shutil.rmtree(folder)
    both = [Command("run", source, *arguments, log=tmp_path / f"log{n}") for n in range(3)]
    codes = sorted(command.wait() for command in both)
    assert codes == [0, 2, 2], [command.said() for command in both]
    assert_same_run(folder, undisturbed)


def test_a_run_is_begun_once(tmp_path: Path) -> None:
    """However close the second process is behind the first: it must not replace what that has begun."""
    path = tmp_path / "ledger.sqlite"
    first = begin_ledger(path, {"options": "the first's"})
    with pytest.raises(UserError, match="already holds a run"):
        begin_ledger(path, {"options": "the second's"})
    assert first.recall("options", str) == Ledger(path).recall("options", str) == "the first's"
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


def test_many_populations_leave_nothing_behind(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole runs one after the other in one process, every training a population of its own: 48 of them a round."""
    monkeypatch.setattr(packing, "CPU_LIMIT", 1)

    def run(_: int) -> None:
        whole_run(tmp_path / "run", source, epochs=2)
        shutil.rmtree(tmp_path / "run")

    told = assert_nothing_piles_up(run, SOAK, least=10)
    with capsys.disabled():
        print(f"\n48 populations a round: {told}")


# Settings that take other paths through training and prediction; windows of one shape, for shapes are cached.
FITS: list[dict[str, object]] = [
    {}, {"method": "mmd", "mode": "conditional"}, {"method": "adversary", "strength": 0.1}, {"encoder": "shallow"},
    {"standardise": "online"}, {"standardise": "train", "align": "transductive"}, {"log_power": True, "mu_law": 255.0},
    {"checkpoint": "averaged"}, {"method": "mige", "mode": "marginal"}, {"method": "began"},
]  # fmt: skip


def test_many_fits_leave_nothing_behind(capsys: pytest.CaptureFixture) -> None:
    """fit, predict and a person's windows one after the other, with every one of FITS in a round."""
    recordings = tiny()
    X, y, who = recordings.X.numpy(), recordings.y.numpy(), recordings.subject.numpy()

    def fit(_: int) -> None:
        for own in FITS:
            model = at.CensoredClassifier(**own, max_epochs=2, batch_size=16, device="cpu", sfreq=16)
            model.fit(X, y, subjects=who).predict_proba(X[who == 0])

    told = assert_nothing_piles_up(fit, SOAK, least=20)
    with capsys.disabled():
        print(f"\n{len(FITS)} fits a round: {told}")


def test_many_sessions_leave_nothing_behind(capsys: pytest.CaptureFixture) -> None:
    """1,000 people, 25 in a round, one after the other, who predict, give a label, adapt, are saved and come back."""
    from test_doors import MIXTURE
    from test_session import OWN

    windows = OWN.numpy()

    def people(_: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for person in range(25):
                session = at.Session(MIXTURE, adapt=person % 2 == 0)
                for window in windows[:4]:
                    session.predict_proba(window)
                session.label(windows[0], session.classes_[person % 2])
                session.save(Path(folder) / "ann.session")
                at.Session.load(Path(folder) / "ann.session", MIXTURE).predict_proba(windows[4])

    told = assert_nothing_piles_up(people, 0.0, least=40)
    with capsys.disabled():
        print(f"\n25 sessions a round: {told}")
