"""kernels.c compiled when first needed, and kept for this user and machine.

The library lies in a folder of the user's alone. Its name is a digest of all that it was made from, and its last bytes
are a digest of itself: what somebody else wrote, a link, or a damaged file is not loaded but made anew. It is written
under another name and then renamed, so two processes may compile at once. Without a compiler, or where the folder
cannot be written or trusted, there is no library, and the plain path of every function serves.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = (
    "-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-pthread",
)  # fmt: skip
LIMIT = 120  # seconds that compiling may take; it takes about two
DIGEST = 32  # bytes
KNOWN_BY = "mix_words"  # a function that our library has

logger = logging.getLogger(__name__)


class Unavailable(Exception):
    """Why there is no library."""


def library() -> ctypes.CDLL | None:
    """The compiled kernels; None where they cannot be had."""
    return _library()[0]


def why_none() -> str | None:
    """Why there are no compiled kernels, in a few words; None where there are."""
    if os.environ.get("AUTOTRANSFER_KERNELS") == "0":
        return "AUTOTRANSFER_KERNELS is 0"
    return _library()[1]


@cache
def _library() -> tuple[ctypes.CDLL | None, str | None]:
    """The compiled kernels, or why they cannot be had."""
    try:
        path = compiled()
        try:
            return _loaded(path), None
        except OSError:  # whole, but no library, such as the output of another CC
            path.unlink()
            return _loaded(compiled()), None
    except (Unavailable, OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: quotes of CC
        logger.debug("no compiled kernels: %s", error)
        return None, " ".join(str(error).split())[:200] or type(error).__name__


def _loaded(path: Path) -> ctypes.CDLL:
    """OSError where it is no library of these kernels."""
    kernels = ctypes.CDLL(str(path))
    if not hasattr(kernels, KNOWN_BY):
        raise OSError(f"{path} has no {KNOWN_BY}")
    return kernels


def compiled() -> Path:
    """The library's file, made if it is not there."""
    if os.name != "posix":
        raise Unavailable(f"no compiled kernels on {sys.platform}")
    # Macs check the signature that their linker gives a library, and end a process that loads a changed one. Nobody has
    # tried yet whether they mind our digest at its end.
    if sys.platform == "darwin" and os.environ.get("AUTOTRANSFER_KERNELS") != "1":
        raise Unavailable("compiled kernels are untried on macOS; AUTOTRANSFER_KERNELS=1 tries them")
    command = [*_compiler(), *FLAGS, "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"]
    path = trusted_folder() / f"kernels-{_digest_of(command)}.so"
    if not is_ours(path):
        _compile(command, path)
    return path


def trusted_folder() -> Path:
    """The folder of libraries, which nobody else may write."""
    home = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(home):
        home = os.path.expanduser("~")  # HOME, or what the system knows where that is not set
        if not os.path.isabs(home) or os.environ.get("HOME") == "":  # an empty one would mean the root
            raise Unavailable("no home folder")
        home = os.path.join(home, ".cache")
    base = Path(home)
    folder = base / "autotransfer"
    base.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not _only_ours(status):
        raise Unavailable(f"{folder} is a link, another user's or open to others")
    return folder


def is_ours(path: Path) -> bool:
    """Whether a library is there, whole, in a file that only this user can have written."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # no wait for a pipe
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _only_ours(status):
                return False
            content = file.read()
    except OSError:
        return False
    return hashlib.blake2b(content[:-DIGEST], digest_size=DIGEST).digest() == content[-DIGEST:]


def _only_ours(status: os.stat_result) -> bool:
    """Whether this user owns it, and nobody else may write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _compile(command: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="compiling-", dir=path.parent) as folder:  # of mode 0700
        made = Path(folder) / path.name
        done = subprocess.run(
            [*command, "-o", str(made), str(SOURCE), "-lm"], capture_output=True, text=True, errors="replace",
            timeout=LIMIT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
        if not made.exists():
            raise Unavailable(f"{command[0]} made no library")
        try:
            _loaded(made)  # nothing is kept that cannot be used
        except OSError as error:
            raise Unavailable(f"{command[0]} made something else: {error}") from None
        with made.open("ab") as file:
            file.write(hashlib.blake2b(made.read_bytes(), digest_size=DIGEST).digest())
        made.chmod(0o700)
        made.replace(path)


def _compiler() -> list[str]:
    for words in (shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]):
        if words and (program := shutil.which(words[0])) is not None:
            return [program, *words[1:]]
    raise Unavailable("no C compiler")


def _digest_of(command: list[str]) -> str:
    """Of everything that the library depends on: its source, how it is compiled, and for which processor."""
    version = subprocess.run([command[0], "--version"], capture_output=True, timeout=LIMIT, check=True).stdout
    digest = hashlib.blake2b(digest_size=16)
    for part in (SOURCE.read_bytes(), "\0".join(command).encode(), version, _processor()):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _processor() -> bytes:
    """Its model and abilities: machines that differ may share a folder."""
    traits = [platform.machine(), platform.processor(), sys.platform]
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
        traits += sorted({line.strip() for line in lines if line.startswith(wanted)})
    return "\n".join(traits).encode()
