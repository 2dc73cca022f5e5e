"""Cores and memory available to this process, within the limits of a container or a scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
FEW = 2  # threads for small matrix products, where more threads wait for each other


def cores() -> int:
    """Return the number of threads to use: the least of user's, scheduler's and container's limits and the cores."""
    asked = [_number(os.environ.get(name)) for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK")]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    limits = [n for n in (*asked, None if quota is None else max(1, round(quota))) if n]
    return min([allowed, *limits])


def available_memory() -> int | None:
    """Return the bytes that are free without swapping, or the physical memory, within the limit of a container."""
    known = [n for n in (_free_memory(), _container_memory()) if n is not None]
    return min(known) if known else None


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
    """Return the bytes that a container leaves to this process; None without such a limit."""
    pairs = [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
    left = []
    for folder in _groups():
        for limit, usage in pairs:
            most, used = _read(folder / limit), _read(folder / usage)
            if most is not None and used is not None and most.isdigit() and int(most) < 2**60:
                left.append(max(0, int(most) - int(used)))
    return min(left) if left else None


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Limit torch and the libraries of NumPy and SciPy to n threads inside this context."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        with threadpool_limits(n):
            yield
    finally:
        torch.set_num_threads(before)


def _quota() -> float | None:
    """Return the number of cores that a container may use; None without a limit."""
    quotas = []
    for folder in _groups():
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit():
            quotas.append(int(quota) / int(period))
        old, every = (_read(folder / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if old is not None and every is not None and old.isdigit() and every.isdigit():
            quotas.append(int(old) / int(every))
    return min(quotas) if quotas else None


def _groups() -> list[Path]:
    """Return the folders of this process's control groups, the outermost first."""
    lines = (_read(Path("/proc/self/cgroup")) or "").splitlines()
    unified = next((line for line in lines if line.startswith("0::")), "")
    inner = CGROUP / unified.removeprefix("0::").lstrip("/")
    return [CGROUP, *(folder for folder in (inner, *inner.parents) if CGROUP in folder.parents)]


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None) -> int | None:
    first = (text or "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else None
