"""Workers on this machine. Whoever can reach a Dask scheduler can run code as its user, and every user of a machine
can reach its loopback address: so scheduler and workers speak TLS, with a key that is made for the run, is kept in
memory, and without which nobody is let in. Nobody serves pages."""

from __future__ import annotations

import logging
from typing import Any

import dask
from distributed import Nanny, Scheduler, Security, SpecCluster, Worker

from ..errors import UserError, one_line
from ..machine import cores

HOST = "127.0.0.1"
# How long a worker that died may take to be back. Dask gives it 15 seconds and then gives up whoever restarts it, but
# on a busy machine it takes longer to import torch.
LOST_AFTER = {"distributed.deploy.lost-worker-timeout": "10 minutes"}


class NoPages:
    """Dask's nodes listen on a port for pages about themselves, even without a dashboard."""

    def start_http_server(self, *_: object, **__: object) -> None:
        """None is started."""


class LocalScheduler(NoPages, Scheduler):  # type: ignore[misc]  # Dask's classes have no types
    pass


class LocalWorker(NoPages, Worker):  # type: ignore[misc]  # as above
    pass


def local_cluster(workers: int) -> Any:
    """So many processes, each training one population at a time."""
    try:
        security = Security.temporary()
    except ImportError:
        raise UserError(
            "--cluster local:N needs cryptography, which is not installed; pip install cryptography"
        ) from None
    dask.config.set(LOST_AFTER)
    common = {"host": HOST, "protocol": "tls://", "security": security, "dashboard": False, "dashboard_address": None}
    threads = max(1, cores() // workers)
    worker = {
        "cls": Nanny,
        "options": common
        | {
            "worker_class": LocalWorker,
            "nthreads": 1,
            "memory_limit": 1 / workers,
            "silence_logs": logging.ERROR,
            "env": {"OMP_NUM_THREADS": str(threads)},
        },
    }
    try:
        return SpecCluster(
            scheduler={"cls": LocalScheduler, "options": common | {"port": 0}},
            workers=dict.fromkeys(range(workers), worker),
            worker=worker,
            security=security,
            silence_logs=logging.ERROR,
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise UserError(
            f"the workers of local:{workers} did not start ({one_line(error.__cause__ or error)}); give fewer of them, "
            "or omit --cluster"
        ) from None
