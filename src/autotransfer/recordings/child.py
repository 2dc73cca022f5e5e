"""Files that are read in a child process, because MNE and other libraries can crash or hang on a damaged file.

The child is a fresh interpreter, so scripts work without a guard for `__main__`. It leaves each file's block in a
temporary folder as n.npy and n.json. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np

from ..errors import UserError
from .blocks import Block
from .messages import reason
from .npy import readable

SECONDS = 120.0  # to start the child and to open a file, even on a slow network drive
SECONDS_PER_MB = 2.0
PAUSE = 0.01  # s between two checks for a new block
DAMAGED = "the file is probably damaged: copy or export it again"


@contextmanager
def blocks_in_child(
    reader: Callable[..., Block], paths: Sequence[Path], *arguments: object
) -> Iterator[Iterator[Block]]:
    """What `reader(path, *arguments)` returns for each path, in order, from one child process.

    `reader` is a function of a module, and `arguments` can be written as JSON. A UserError of the reader is raised
    here with the same message. A crash and a file that takes too long become a UserError too.
    """
    with tempfile.TemporaryDirectory(prefix="autotransfer-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        request = [reader.__module__, reader.__qualname__, list(map(str, paths)), arguments]
        (folder / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-P", "-m", __name__, temporary]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        with (
            (folder / "stderr").open("wb") as errors,
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            ) as child,
        ):
            try:
                yield (_receive(child, folder, n, path) for n, path in enumerate(paths))
            finally:
                child.kill()


def _receive(child: subprocess.Popen[bytes], folder: Path, n: int, path: Path) -> Block:
    """The n-th block, once the child has read it."""
    limit = SECONDS + SECONDS_PER_MB * (path.stat().st_size / 1e6 if path.is_file() else 0)
    end, answer = time.monotonic() + limit, folder / f"{n}.json"
    while not answer.exists():
        if child.poll() is not None and not answer.exists():
            raise UserError(f"{str(path)!r} cannot be read: {_why_ended(child.returncode, folder)}; {DAMAGED}")
        if time.monotonic() > end:
            raise UserError(f"{str(path)!r} cannot be read: its reader did not finish within {limit:.0f} s; {DAMAGED}")
        time.sleep(PAUSE)
    fields = json.loads(answer.read_text())
    if "error" in fields:
        raise UserError(fields["error"])
    windows = folder / f"{n}.npy"
    X = np.load(windows, allow_pickle=False)
    windows.unlink()
    return Block(X=X, **fields | {"channels": tuple(fields["channels"])})


def _why_ended(code: int, folder: Path) -> str:
    if code < 0:
        memory = ", perhaps because memory ran out" if -code == getattr(signal, "SIGKILL", None) else ""
        return f"its reader crashed ({signal.strsignal(-code) or f'signal {-code}'}{memory})"
    lines = (folder / "stderr").read_text(errors="replace").split("\n")
    last = next((line.strip()[:160] for line in reversed(lines) if line.strip()), "no message")
    return f"its reader ended with exit status {code} ({last})"


def main(folder: Path) -> None:
    """The child: read the files of the request, and leave a block or a message of each."""
    threading.Thread(target=_stop_with_parent, args=(folder,), daemon=True).start()
    module, name, paths, arguments = json.loads((folder / "request.json").read_text())
    reader = getattr(import_module(module), name)
    for n, path in enumerate(map(Path, paths)):
        windows, unfinished = folder / f"{n}.npy", folder / "unfinished"
        try:
            with readable(path, "contents"):
                block = reader(path, *arguments)
                text = json.dumps({key: value for key, value in vars(block).items() if key != "X"})
            np.save(windows, block.X)
        except UserError as error:
            text = json.dumps({"error": str(error)})
        except OSError as error:
            windows.unlink(missing_ok=True)
            problem = f"{str(path)!r} cannot be copied to {str(folder)!r} ({reason(error)})"
            text = json.dumps({"error": f"{problem}; free disk space there, or set TMPDIR to another folder"})
        unfinished.write_text(text)
        os.replace(unfinished, folder / f"{n}.json")  # in one step, so that the parent never sees half of it


def _stop_with_parent(folder: Path) -> None:
    """Standard input ends when the parent does, even if it was killed. Read without Python's buffer, whose lock would
    make the end of the child a crash that hides its last words."""
    os.read(sys.stdin.fileno(), 1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
