"""Reading and writing files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

NAME_KEPT = 50  # letters, of up to four bytes each


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a new file and give it the name of the target: a reader sees the old content or the new one, never half of
    it. OSError names the target."""
    # Names of files and people may hold lone surrogates, which have no UTF-8.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        # Of a long name a part: with what is added, the whole may be longer than a file system allows.
        name = path.parent / f".{path.name[:NAME_KEPT]}.{secrets.token_hex(4)}"
        if "\0" in str(path):
            raise OSError(errno.EINVAL, "the name holds a null character")
        # Who may read it, the user's umask says.
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            name.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    sync_folder(path.parent)


def read_plain(path: Path) -> bytes:
    """Read a plain file. A pipe or a device, which may never end, raises OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_plain(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        return file.read()


def check_plain(status: os.stat_result, path: Path) -> None:
    """Raise OSError unless the status is that of a plain file; path: for the message."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk: otherwise a power cut may undo a rename of a file that is there."""
    with contextlib.suppress(OSError):  # not every system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
