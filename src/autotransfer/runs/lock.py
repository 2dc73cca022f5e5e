"""The lock that one process holds on a run, and what may lie in a run's folder."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from pathlib import Path

from ..errors import UserError


def wal_files(path: Path) -> tuple[Path, Path]:
    """Return SQLite's write-ahead log of a database and the index of the log."""
    return path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")


def remove_database(path: Path) -> None:
    """Remove a database with the files that SQLite keeps beside it: its log, the index of the log and, before there is
    a log, a journal."""
    for name in (path, *wal_files(path), path.with_name(path.name + "-journal")):
        name.unlink(missing_ok=True)


def refuse_links(folder: Path) -> None:
    """Raise where a run's folder holds a link, a pipe or a device: the folder may be a stranger's, and we would write
    through the first and wait for the others."""
    for place in (folder, folder / "model"):  # where a run writes
        with contextlib.suppress(OSError):  # whoever writes there is told why it does not work
            for entry in os.scandir(place):
                if entry.is_symlink():
                    raise UserError(f"{entry.path} is a link; a run's files lie in its own folder: copy them there")
                if not entry.is_file() and not entry.is_dir():
                    raise UserError(f"{entry.path} is a pipe or a device; a run's files are plain ones: remove it")


POSIX = os.name == "posix"
FAR = 2**30  # the byte that is locked on Windows, where others cannot read a locked one: the holder's name comes first


def lock_file(handle: int, *, shared: bool = False) -> None:
    """Lock an open file without waiting; OSError where another process has. shared: with others that share it."""
    if POSIX:
        fcntl = import_module("fcntl")
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    else:  # Windows, which knows no sharing
        _lock_far_byte(handle, "LK_NBLCK")


def unlock_file(handle: int) -> None:
    """Unlock a file before it is closed. POSIX does so itself; on Windows the lock may outlive the file for a while."""
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
    """Lock on RUN/lock while a process works there. The system drops it with the process, however it ends."""

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
            lock_file(handle)
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
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            unlock_file(self.file.fileno())
        with contextlib.suppress(OSError):
            self.file.close()


def no_run_error(folder: Path, database: str = "run.sqlite") -> UserError:
    """Return the error for a folder without a run database, in which a run may be about to begin."""
    if in_use(folder):
        return UserError(f"a run is starting in {folder}; ask again in a few seconds")
    return UserError(
        f"{folder} is not a run: it has no {database}; start one with autotransfer run, or wait a few seconds "
        "if it has just been started"
    )


def in_use(folder: Path) -> bool:
    """Return whether a living process holds the run's lock."""
    try:
        with os.fdopen(os.open(folder / "lock", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))) as file:
            lock_file(file.fileno(), shared=True)
            unlock_file(file.fileno())
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
