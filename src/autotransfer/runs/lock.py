"""Lock on the folder of a run, and checks of the files in the folder."""

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
    """Remove a database with SQLite's write-ahead log, its index, and the journal."""
    for name in (path, *wal_files(path), path.with_name(path.name + "-journal")):
        name.unlink(missing_ok=True)


def refuse_links(folder: Path) -> None:
    """Raise if a run's folder has links, which may point to other folders, or pipes or devices, which may block."""
    for written_folder in (folder, folder / "model"):
        with contextlib.suppress(OSError):  # writing raises a better message
            for entry in os.scandir(written_folder):
                if entry.is_symlink():
                    raise UserError(f"{entry.path} is a link; replace it by a copy of the file")
                if not entry.is_file() and not entry.is_dir():
                    raise UserError(f"{entry.path} is a pipe or a device; remove it")


POSIX = os.name == "posix"
FAR = 2**30  # position of the locked byte on Windows, beyond the content of the file, which stays readable


def lock_file(handle: int, *, shared: bool = False) -> None:
    """Lock an open file; raise OSError if another process holds a lock. shared: whether processes share the lock."""
    if POSIX:
        fcntl = import_module("fcntl")
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    else:  # Windows has no shared locks
        _lock_far_byte(handle, "LK_NBLCK")


def unlock_file(handle: int) -> None:
    """Unlock a file before it is closed; on Windows the lock may otherwise outlive the file."""
    if not POSIX:
        _lock_far_byte(handle, "LK_UNLCK")


def _lock_far_byte(handle: int, mode: str) -> None:
    msvcrt = import_module("msvcrt")
    os.lseek(handle, FAR, os.SEEK_SET)  # locks the byte at the current position
    try:
        msvcrt.locking(handle, getattr(msvcrt, mode), 1)
    finally:
        os.lseek(handle, 0, os.SEEK_SET)


class Lock:
    """Lock on RUN/lock while a process trains the run. The system releases the lock when the process ends."""

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
        with contextlib.suppress(OSError):  # the name is only for messages of other processes
            self.file.write(f"pid {os.getpid()}")
            self.file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            unlock_file(self.file.fileno())
        with contextlib.suppress(OSError):
            self.file.close()


def no_run_error(folder: Path, database: str = "run.sqlite") -> UserError:
    """Return the error for a folder without a run database."""
    if is_in_use(folder):
        return UserError(f"a run is starting in {folder}; try again in a few seconds")
    return UserError(
        f"{folder} is not a run: it has no {database}; start one with: autotransfer run DATA --out {folder}"
    )


def is_in_use(folder: Path) -> bool:
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
