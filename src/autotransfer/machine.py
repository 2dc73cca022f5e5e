"""Cores and memory available to this process, within the limits of a container or a scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def count_cores() -> int:
    """Return the number of cores to use, within the limits of user, scheduler and container."""
    requested = [_parse_number(os.environ.get(name)) for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")]
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _core_quota()
    limits = [n for n in (*requested, None if quota is None else max(1, round(quota))) if n]
    return min([available, *limits])


def available_memory() -> int | None:
    """Return the free memory in bytes, or the physical memory if unknown, within the limit of a container."""
    limits = [n for n in (_free_memory(), _container_memory()) if n is not None]
    return min(limits) if limits else None


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass  # not Linux
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _container_memory() -> int | None:
    """Return the free memory in bytes within the limit of a container; None without a limit."""
    pairs = [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
    free = []
    for folder in _group_folders():
        for limit, usage in pairs:
            total, used = _read(folder / limit), _read(folder / usage)
            if total is not None and used is not None and total.isdigit() and int(total) < 2**60:
                free.append(max(0, int(total) - int(used)))
    return min(free) if free else None


@contextmanager
def limit_threads(n: int) -> Iterator[None]:
    """Limit torch and the libraries of NumPy and SciPy to n threads inside this context."""
    import torch
    from threadpoolctl import threadpool_limits

    previous = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        with threadpool_limits(n):
            yield
    finally:
        torch.set_num_threads(previous)


def _core_quota() -> float | None:
    """Return the number of cores that a container may use; None without a limit."""
    quotas = []
    for folder in _group_folders():
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
        # files of control groups, version 1
        quota_1, period_1 = (_read(folder / "cpu" / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
        if quota_1.isdigit() and period_1.isdigit():
            quotas.append(int(quota_1) / int(period_1))
    return min(quotas) if quotas else None


def _group_folders() -> list[Path]:
    """Return the folders of this process's control groups, the outermost first."""
    lines = (_read(Path("/proc/self/cgroup")) or "").splitlines()
    group = next((line for line in lines if line.startswith("0::")), "")
    inner = CGROUP / group.removeprefix("0::").lstrip("/")
    return [CGROUP, *(folder for folder in (inner, *inner.parents) if CGROUP in folder.parents)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _parse_number(text: str | None) -> int | None:
    first = (text or "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else None
