"""Training on a Dask cluster: the same table as at home, also when a worker dies; clear words when it cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from torch import Tensor, nn

from autotransfer.errors import UserError
from autotransfer.runs.ledger import Ledger
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct
from tiny import create_run, tiny_file

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
from autotransfer.cluster import Cluster


class Plain(nn.Module):
    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.out = nn.Linear(n_channels * n_times, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x.flatten(1))


def plain(n_channels: int, n_times: int) -> nn.Module:
    return Plain(n_channels, n_times)


def deadly(n_channels: int, n_times: int) -> nn.Module:
    """Kills the first worker that builds it."""
    flag = Path(os.environ["DEADLY_FLAG"])
    if _is_worker():
        try:
            flag.touch(exist_ok=False)
        except FileExistsError:
            return Plain(n_channels, n_times)
        os.kill(os.getpid(), signal.SIGKILL)
    return Plain(n_channels, n_times)


def faulty(n_channels: int, n_times: int) -> nn.Module:
    if _is_worker():
        raise RuntimeError("this network exists at home only")
    return Plain(n_channels, n_times)


def _is_worker() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def worker() -> Iterator[Cluster]:
    with Cluster("local:1") as place:
        yield place


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    os.environ["DEADLY_FLAG"] = str(tmp_path_factory.mktemp("deadly") / "flag")
    with Cluster("local:2") as place:
        yield place


def table(folder: Path, source: str, place: Cluster | None, factory: object) -> pd.DataFrame:
    options = RunOptions(source=source, epochs=2, batch_size=16, device="cpu", encoder="own")
    run = create_run(folder, options, {"own": factory})
    if place is not None:
        run.executor = place
    conduct(run, lambda _: None, shown=False)
    assert all(entry.starts >= 1 for entry in run.ledger.entries())
    return pd.read_csv(folder / "results.csv").drop(columns="seconds")


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path: Path, cluster: Cluster) -> None:
    source = str(tiny_file(tmp_path))
    home = table(tmp_path / "home", source, None, plain)
    away = table(tmp_path / "away", source, cluster, deadly)
    assert Path(os.environ["DEADLY_FLAG"]).exists(), "no worker was killed"
    pd.testing.assert_frame_equal(home, away, check_exact=True)
    assert (tmp_path / "home" / "choice.json").read_bytes() == (tmp_path / "away" / "choice.json").read_bytes()
    model = "model/model.safetensors"
    assert (tmp_path / "home" / model).read_bytes() == (tmp_path / "away" / model).read_bytes()


def test_an_error_on_a_worker_is_told_in_one_line_and_the_run_goes_on_at_home(tmp_path: Path, worker: Cluster) -> None:
    source = str(tiny_file(tmp_path))
    with pytest.raises(UserError, match="this network exists at home only") as found:
        table(tmp_path / "run", source, worker, faulty)
    assert "\n" not in str(found.value)
    run = Run.open(tmp_path / "run", {"own": faulty})
    conduct(run, lambda _: None, shown=False)
    assert {entry.status for entry in run.ledger.entries()} == {"done"}


def listening(session: int) -> set[tuple[str, int]]:
    """(address, port) on which processes of a session wait for others."""
    waiting = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, _, port = fields[1].partition(":")
                waiting[f"socket:[{fields[9]}]"] = (address, int(port, 16))
    found = set()
    for pid in session_of(session):
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found |= {waiting[name]} if (name := os.readlink(handle)) in waiting else set()
    return found


ALONE = """
import sys
from pathlib import Path
from autotransfer.cluster import Cluster

if __name__ == "__main__":
    with Cluster("local:2") as place:
        print(place.client.scheduler.address, flush=True)
        sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="ports are looked up in /proc")
def test_local_workers_listen_to_nobody_else(tmp_path: Path) -> None:
    """On loopback alone, without pages, and a process without the run's key is not let in."""
    from distributed import Client, Security

    (tmp_path / "alone.py").write_text(ALONE)
    home = subprocess.Popen(
        [sys.executable, str(tmp_path / "alone.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        address = home.stdout.readline().strip()
        assert address.startswith("tls://127.0.0.1:")
        ports = listening(home.pid)
        assert {host for host, _ in ports} == {"0100007F"}
        assert len(ports) == 1 + 2 * 2, "a scheduler, and two workers with whoever restarts each"
        for port in (port for _, port in ports):
            for stranger in ({"address": f"tcp://127.0.0.1:{port}"},
                             {"address": f"tls://127.0.0.1:{port}", "security": Security.temporary()}):  # fmt: skip
                with pytest.raises((OSError, TimeoutError)):
                    Client(**stranger, timeout="500ms")
    finally:
        _, errors = home.communicate(timeout=60)
    assert "distributed.worker" not in errors, "Dask's diary is not for users"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("local:0", "at least 1"),
        ("local:many", "at least 1"),
        pytest.param("127.0.0.1:1", "cannot reach a Dask scheduler", marks=pytest.mark.slow),  # Dask tries for a while
    ],
)
def test_a_wrong_address_is_told(address: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Cluster(address)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked up in /proc")
def test_workers_leave_when_whoever_started_them_is_killed(tmp_path: Path) -> None:
    """Or else they would train for hours for nobody."""
    source, folder = str(tiny_file(tmp_path)), tmp_path / "run"
    arguments = ["run", source, "--epochs", "100000", "--batch-size", "8", "--cluster", "local:1", "--out", str(folder)]
    code = "if __name__ == '__main__': from autotransfer.cli import main; main()"
    script = tmp_path / "start.py"
    script.write_text(code)
    home = subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, start_new_session=True)
    try:
        wait_until(
            lambda: (folder / "ledger.sqlite").exists() and Ledger(folder / "ledger.sqlite").counts().get("running")
        )
        wait_until(lambda: max(processor_seconds(pid) for pid in session_of(home.pid) if pid != home.pid) > 4)
        os.kill(home.pid, signal.SIGKILL)
        home.wait()
        wait_until(lambda: not session_of(home.pid))
    finally:
        for pid in session_of(home.pid):
            os.kill(pid, signal.SIGKILL)


def wait_until(true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def session_of(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found


def processor_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


@pytest.mark.slow
def test_a_child_that_dies_at_start_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif any('spawn_main' in word for word in sys.orig_argv): os._exit(3)\n"
    )
    tiny_file(tmp_path)
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = ["run", tmp_path / "tiny.npz", "--out", tmp_path / "run", "--epochs", 1, "--cluster", "local:2"]
    done = subprocess.run(
        [sys.executable, "-m", "autotransfer", *map(str, given)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "did not start" in done.stderr


def test_a_worker_that_joined_later_is_compared_too() -> None:
    from autotransfer.cluster import train_task
    from autotransfer.versions import versions
    from tiny import tiny

    with pytest.raises(UserError, match=r"a worker that joined later has torch .*, this process has 0"):
        train_task(tiny(), [], "cpu", None, None, versions() | {"torch": "0"})
