"""Training on a Dask cluster gives the same table as local training, also when a worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from torch import Tensor, nn

from autotransfer.errors import UserError
from autotransfer.runs.run import Run
from autotransfer.search.procedure import perform_plan
from autotransfer.versions import versions
from tiny import create_run, described, tiny, tiny_file

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
from distributed import LocalCluster

from autotransfer.cluster import Cluster, train_task

pytestmark = pytest.mark.slow


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


def local_cluster(workers: int) -> LocalCluster:
    return LocalCluster(n_workers=workers, processes=True, threads_per_worker=1, dashboard_address=None)


@pytest.fixture(scope="module")
def worker() -> Iterator[Cluster]:
    with local_cluster(1) as started, Cluster(started.scheduler_address) as place:
        yield place


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    os.environ["DEADLY_FLAG"] = str(tmp_path_factory.mktemp("deadly") / "flag")
    with local_cluster(2) as started, Cluster(started.scheduler_address) as place:
        yield place


def table(folder: Path, source: str, place: Cluster | None, factory: object) -> pd.DataFrame:
    options = described(source=source, max_epochs=2, batch_size=16, device="cpu", encoder="own")
    run = create_run(folder, options, {"own": factory})
    if place is not None:
        run.executor = place
    perform_plan(run, lambda _: None, progress=False)
    assert all(entry.starts >= 1 for entry in run.database.entries())
    return pd.read_csv(folder / "results.csv").drop(columns="seconds")


def test_a_killed_worker_changes_nothing(tmp_path: Path, cluster: Cluster) -> None:
    source = str(tiny_file(tmp_path))
    home = table(tmp_path / "home", source, None, plain)
    away = table(tmp_path / "away", source, cluster, deadly)
    assert Path(os.environ["DEADLY_FLAG"]).exists(), "no worker was killed"
    pd.testing.assert_frame_equal(home, away, check_exact=True)
    assert (tmp_path / "home" / "choice.json").read_bytes() == (tmp_path / "away" / "choice.json").read_bytes()
    model = "model/model.safetensors"
    assert (tmp_path / "home" / model).read_bytes() == (tmp_path / "away" / model).read_bytes()


def test_an_error_on_a_worker_is_one_line_and_the_run_continues_locally(tmp_path: Path, worker: Cluster) -> None:
    source = str(tiny_file(tmp_path))
    with pytest.raises(UserError, match="this network exists at home only") as found:
        table(tmp_path / "run", source, worker, faulty)
    assert "\n" not in str(found.value)
    run = Run.open(tmp_path / "run", {"own": faulty})
    perform_plan(run, lambda _: None, progress=False)
    assert {entry.status for entry in run.database.entries()} == {"done"}


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(UserError, match="cannot reach a Dask scheduler"):
        Cluster("127.0.0.1:1")


def test_a_worker_that_joined_later_is_compared_too() -> None:
    with pytest.raises(UserError, match=r"a worker that joined later has torch .*, this process has 0"):
        train_task(tiny(), [], "cpu", None, None, versions() | {"torch": "0"})
