"""A limit on the address space (`ulimit -v`) that the maths libraries cannot live with.

OpenBLAS and OpenMP map buffers and stacks for every thread when they are first used. Where that fails, they end the
process in the middle of a product, or wait for ever for a thread that was never made; no exception comes back from
there. So the limit is looked at before they are loaded.
"""

from __future__ import annotations

import os

from ..errors import UserError

LIBRARIES = 3 * 2**29  # bytes that torch, SciPy and the rest map, with the least of data
THREAD = 2**27  # bytes that each of their threads maps: a stack, buffers, an arena


def check_address_space() -> None:
    """Raise where a limit leaves the libraries too little. Whoever needs more for data finds that out later."""
    limit = address_space()
    if limit is None:
        return
    threads = _threads()
    needed = LIBRARIES + THREAD * threads
    if limit < needed:
        fewer = ", or set OMP_NUM_THREADS=1" if limit >= LIBRARIES + THREAD and threads > 1 else ""
        raise UserError(
            f"the address space is limited to {limit / 2**30:.2g} GiB (ulimit -v), and the maths libraries need "
            f"{needed / 2**30:.2g} GiB with {threads} thread{'s' * (threads > 1)}; raise the limit{fewer}"
        )


def address_space() -> int | None:
    """Bytes that this process may map; None: as many as it likes, or the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(asked) if asked.isdigit() and int(asked) else os.cpu_count() or 1
