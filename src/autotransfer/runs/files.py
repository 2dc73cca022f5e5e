"""Files that are whole or not there, and the lock that one process holds on a run."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from importlib import import_module
from pathlib import Path
from types import TracebackType

from ..errors import UserError

# What writers leave half-written when they are killed: hidden, under a name that ends in the writer's mark.
LEFTOVER = re.compile(
    r"\.(ledger(\.backup)?\.sqlite|population-\d+\.checkpoint|results\.csv|choice\.json|report\.html|study\.toml|plan\.json"
    r"|model\.(json|(next\.)?safetensors)|README\.md)\.([a-z0-9_]{8}|(\d+\.)?part)(-wal|-shm)?"
)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside the target and rename: a reader sees the old file or the new one, never half of one."""
    # Names of files and people may hold lone surrogates, which have no UTF-8.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
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
    sync_folder(path.parent)


def read_plain(path: Path) -> bytes:
    """The content of a plain file. OSError for a pipe or a device: it may never begin, or never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        check_plain(os.fstat(handle), path)
        return file.read()


def check_plain(found: os.stat_result, path: Path) -> None:
    """Raise OSError unless what was found at the path is a plain file."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def companions(path: Path) -> tuple[Path, Path]:
    """SQLite's write-ahead log of a database and the index to it."""
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def sync_folder(folder: Path) -> None:
    """Without it a power cut may undo a rename, though the file itself is on the disk."""
    with contextlib.suppress(OSError):  # not every system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def refuse_links(folder: Path) -> None:
    """Raise where a run's folder holds a link, a pipe or a device: the folder may be a stranger's, and we would write
    through the first and wait for the others."""
    for place in _places(folder):
        with contextlib.suppress(OSError):  # whoever writes there is told why it does not work
            for entry in os.scandir(place):
                if entry.is_symlink():
                    raise UserError(f"{entry.path} is a link; a run's files lie in its own folder: copy them there")
                if not entry.is_file() and not entry.is_dir():
                    raise UserError(f"{entry.path} is a pipe or a device; a run's files are plain ones: remove it")


def _places(folder: Path) -> tuple[Path, Path, Path]:
    """Where a run writes."""
    return folder, folder / "model", folder / "model" / "refit"


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written. Only for whoever holds the lock."""
    for place in _places(folder):
        for path in place.glob(".*"):
            if LEFTOVER.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()


POSIX = os.name == "posix"
FAR = 2**30  # the byte that is locked on Windows, where others cannot read a locked one: the holder's name comes first


def take(handle: int, *, shared: bool = False) -> None:
    """Lock an open file without waiting; OSError where another process has. shared: with others that share it."""
    if POSIX:
        fcntl = import_module("fcntl")
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    else:  # Windows, which knows no sharing
        _lock_far_byte(handle, "LK_NBLCK")


def drop(handle: int) -> None:
    """Before the file is closed: on POSIX closing it is enough, on Windows the lock may outlive it for a while."""
    if not POSIX:
        _lock_far_byte(handle, "LK_UNLCK")


def _lock_far_byte(handle: int, mode: str) -> None:
    msvcrt = import_module("msvcrt")
    os.lseek(handle, FAR, os.SEEK_SET)  # a lock begins where the file stands
    try:
        msvcrt.locking(handle, getattr(msvcrt, mode), 1)
    finally:
        os.lseek(handle, 0, os.SEEK_SET)


class Lock:
    """Held on RUN/lock while a process works there. The system drops it with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"

    def __enter__(self) -> Lock:
        refuse_links(self.path.parent)
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path.parent} ({error.strerror}); make it writable or choose another folder"
            ) from None
        self.file = os.fdopen(handle, "r+")
        try:
            take(handle)
        except OSError:
            self.file.seek(0)
            holder = self.file.read().strip() or "unknown"
            self.file.close()
            raise UserError(
                f"{self.path.parent} is in use by another process ({holder}); wait for it, or choose another folder"
            ) from None
        self.file.truncate(0)
        with contextlib.suppress(OSError):  # a courtesy to whoever comes next, which a full disk may deny
            self.file.write(f"pid {os.getpid()}")
            self.file.flush()
        sweep(self.path.parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            drop(self.file.fileno())
        with contextlib.suppress(OSError):
            self.file.close()


def in_use(folder: Path) -> bool:
    """Whether a living process holds the run's lock."""
    try:
        with os.fdopen(os.open(folder / "lock", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))) as file:
            take(file.fileno(), shared=True)
            drop(file.fileno())
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
