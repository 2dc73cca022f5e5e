"""SQLite's errors in the user's words: a full disk, a locked or protected file, a damaged one."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError

PROTECTED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DamagedLedger(UserError):
    """The run database is not as it was written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"the run database {path} is damaged ({reason}); restore the folder from a copy or start a new run; "
            f"what is in {path.parent / 'model'} can still predict"
        )


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Translate errors of the database at `path` that a user can fix."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        known = _in_words(path, error)
        if known is None:
            raise
        raise known from None
    except UnicodeDecodeError:  # SQLite quotes what is damaged, and Python cannot read the message
        raise DamagedLedger(path, "it holds text that is none") from None


def _in_words(path: Path, error: sqlite3.DatabaseError) -> Exception | None:
    code: int = getattr(error, "sqlite_errorcode", 0)
    kind = code & 0xFF  # the rest tells variants apart
    if kind == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    if code == sqlite3.SQLITE_IOERR_READ or kind in CORRUPT:
        return DamagedLedger(path, error)
    if kind == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, f"cannot write {path} ({error})", str(path))
    if kind in PROTECTED:
        return UserError(f"cannot write to {path} ({error}); make the folder and its files writable")
    if kind in BUSY:
        return UserError(f"{path} is locked by another program; close that program and try again")
    return None
