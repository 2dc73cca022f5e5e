"""Atomic writing and safe reading of files."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

N_LETTERS = 50  # number of letters of a file name in the temporary name; a letter has up to four bytes


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name and rename it, so that readers see the old or the new content."""
    # Names of files and subjects may have lone surrogates, which UTF-8 cannot encode.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        # The name is cut, because file systems limit the length of names.
        temporary = path.parent / f".{path.name[:N_LETTERS]}.{secrets.token_hex(4)}"
        if "\0" in str(path):
            raise OSError(errno.EINVAL, "the name holds a null character")
        # The user's umask restricts the permissions 0o666.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    sync_folder(path.parent)


def read_plain(path: Path) -> bytes:
    """Return the content of a plain file; raise OSError for a pipe or a device, which may never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        check_plain(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        return file.read()


def check_plain(status: os.stat_result, path: Path) -> None:
    """Raise OSError unless `status` is the status of a plain file. path: path in the message."""
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk, so that a power failure does not undo the renaming of a file in it."""
    with contextlib.suppress(OSError):  # some systems do not support this
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
