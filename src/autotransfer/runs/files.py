"""Files that are whole or not there, and the lock that one process holds on a run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType

from ..errors import UserError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside the target and rename: a reader sees the old file or the new one, never half of one."""
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Lock:
    """Held on RUN/lock while a process works there. The system drops it with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"

    def __enter__(self) -> Lock:
        import fcntl  # POSIX; a run folder on another system is used by one process on trust

        self.file = open(self.path, "a+")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.file.seek(0)
            holder = self.file.read().strip() or "unknown"
            self.file.close()
            raise UserError(
                f"{self.path.parent} is in use by another process ({holder}); wait for it, or choose another folder"
            ) from None
        self.file.truncate(0)
        self.file.write(f"pid {os.getpid()}")
        self.file.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def in_use(folder: Path) -> bool:
    """Whether a living process holds the run's lock."""
    import fcntl

    try:
        with open(folder / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
