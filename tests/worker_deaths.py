"""Workers that die: a run on three of them ends as one at home does, whatever it was doing.

`python tests/worker_deaths.py N [--table FILE]` kills workers of a local Dask cluster N times at each of PHASES, one of
them or all three, and compares each run bit for bit with one that no worker had a part in. With a file of its rows it
goes on where it was stopped. tests/test_cluster.py runs each phase once.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import distributed

from autotransfer import cluster as cluster_module
from autotransfer.cluster import Cluster
from autotransfer.errors import UserError
from autotransfer.search import procedure
from autotransfer.search.procedure import conduct
from campaign import Table
from faults import assert_same_run, few_settings, make_run, quiet, whole_run
from tiny import tiny_file

WORKERS = 3
COLUMNS = ("phase", "seed", "deaths", "outcome")
CHANGES = {"epochs": 4}


class Killer:
    """Kills workers of a cluster when it is called, at most `most` times."""

    def __init__(self, draw: random.Random, most: int = 2) -> None:
        self.draw, self.most, self.deaths = draw, most, 0
        self.lock = threading.Lock()

    def __call__(self, client: Any, only: int | None = None) -> None:
        """only: the process id of the one that is to die."""
        with self.lock:
            if self.most == 0:
                return
            self.most -= 1
        pids = [nanny.pid for nanny in client.cluster.workers.values() if nanny.pid]
        chosen = pids if self.draw.random() < 0.2 else [only or self.draw.choice(pids)]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.deaths += 1

    def soon(self, client: Any) -> None:
        """In a moment, while this thread goes on."""
        threading.Timer(self.draw.random() * 0.3, self, (client,)).start()


Phase = Callable[[Killer, Cluster | None], contextlib.AbstractContextManager[object]]


def before(owner: object, name: str) -> Phase:
    """At the beginning of a function that is called at home."""

    def phase(kill: Killer, place: Cluster | None) -> contextlib.AbstractContextManager[object]:
        real = getattr(owner, name)

        def called(*arguments: Any, **options: Any) -> Any:
            assert place is not None
            kill(place.client)
            return real(*arguments, **options)

        return mock.patch.object(owner, name, called)

    return phase


def starting(kill: Killer, _: Cluster | None) -> contextlib.AbstractContextManager[object]:
    """The workers have come up, and are asked for their versions."""
    real = cluster_module._check_versions

    def called(client: Any) -> None:
        kill(client)
        real(client)

    return mock.patch.object(cluster_module, "_check_versions", called)


def scattering(kill: Killer, _: Cluster | None) -> contextlib.AbstractContextManager[object]:
    real = distributed.Client.scatter

    def called(client: Any, *arguments: Any, **options: Any) -> Any:
        kill(client) if kill.draw.random() < 0.5 else kill.soon(client)
        return real(client, *arguments, **options)

    return mock.patch.object(distributed.Client, "scatter", called)


def training(kill: Killer, _: Cluster | None) -> contextlib.AbstractContextManager[object]:
    real = distributed.Client.submit

    def called(client: Any, *arguments: Any, **options: Any) -> Any:
        kill.soon(client)
        return real(client, *arguments, **options)

    return mock.patch.object(distributed.Client, "submit", called)


def gathering(kill: Killer, _: Cluster | None) -> contextlib.AbstractContextManager[object]:
    """A population is trained, and its worker dies before it has handed over the weights."""
    real = distributed.Future.result

    def called(future: Any, *arguments: Any, **options: Any) -> Any:
        client, holders = future.client, ()
        with contextlib.suppress(CancelledError):  # the data went with an earlier death
            holders = client.who_has([future]).get(future.key, ())
        known = client.scheduler_info(n_workers=-1)["workers"]
        nannies = {str(known[one]["name"]) for one in holders if one in known}
        pids = [nanny.pid for name, nanny in client.cluster.workers.items() if str(name) in nannies]
        if pids:
            kill(client, pids[0])
        return real(future, *arguments, **options)

    return mock.patch.object(distributed.Future, "result", called)


PHASES: dict[str, Phase] = {
    "start-up": starting, "scatter": scattering, "training": training, "gathering": gathering,
    "weights": before(procedure, "decide"), "peers": before(procedure, "peer_scores"),
    "playback": before(procedure, "play_back"), "models": before(procedure, "build_models"),
}  # fmt: skip


class Deaths:
    """Runs in `folder`, and one at home to compare them with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, tiny_file(folder, n_subjects=3)
        self.place: Cluster | None = None  # of phases after the first, which share one
        cluster_module.WORKERS_WITHIN = 600  # on a busy machine workers take minutes to come back
        dask.config.set({"distributed.comm.timeouts.connect": "300s"})
        with few_settings():
            whole_run(folder / "home", self.source, **CHANGES)

    def case(self, phase: str, seed: int) -> tuple[int, str]:
        """How many workers died, and `same` or what is wrong."""
        kill, folder = Killer(random.Random(f"{phase} {seed}")), self.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with few_settings(), self._cluster(phase, kill) as place, PHASES[phase](kill, place):
                run = make_run(folder, self.source, **CHANGES)
                run.executor = place
                try:
                    conduct(run, quiet, shown=False)
                finally:
                    run.ledger.close()
            assert_same_run(folder, self.folder / "home")
            assert kill.deaths, "no worker was killed"
        except (AssertionError, UserError, OSError) as wrong:
            return kill.deaths, f"wrong: {type(wrong).__name__}: {wrong}"
        return kill.deaths, "same"

    @contextlib.contextmanager
    def _cluster(self, phase: str, kill: Killer) -> Iterator[Cluster]:
        if phase == "start-up":
            with PHASES[phase](kill, None), Cluster(f"local:{WORKERS}") as place:
                yield place
            return
        if self.place is None:
            self.place = Cluster(f"local:{WORKERS}")
        yield self.place

    def close(self) -> None:
        if self.place is not None:
            self.place.__exit__()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("times", type=int)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no further run is begun")
    parser.add_argument("--table", type=Path, help="a CSV file of the runs that were done")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    faulthandler.register(signal.SIGUSR1)  # tells where it hangs
    with Table(given.table, COLUMNS) as table, tempfile.TemporaryDirectory() as name:
        done, deaths = {(row["phase"], row["seed"]) for row in table.rows}, Deaths(Path(name))
        for seed in range(given.times):
            for phase in PHASES:
                if (phase, str(seed)) not in done and time.monotonic() < end:
                    table.add(phase, seed, *deaths.case(phase, seed))
                    if table.rows[-1]["outcome"] != "same":
                        print(*table.rows[-1].values(), flush=True)
        deaths.close()
    for phase in PHASES:
        rows = [row for row in table.rows if row["phase"] == phase]
        outcomes = dict(Counter(row["outcome"].partition(":")[0] for row in rows))
        print(f"{phase}: {len(rows)} runs, {sum(int(row['deaths']) for row in rows)} workers killed, {outcomes}")
    sys.exit(any(row["outcome"] != "same" for row in table.rows))


if __name__ == "__main__":
    main()
