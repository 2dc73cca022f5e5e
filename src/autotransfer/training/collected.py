"""Windows collected piece by piece, where all of them may not fit into memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class CollectedWindows:
    """Prepared windows as they come: in memory, or, where the data stay in a file, in a temporary one (TMPDIR)."""

    def __init__(self, *, in_memory: bool) -> None:
        self.count = 0
        self.parts: list[Tensor] = []
        self.path: Path | None = None
        if not in_memory:
            handle, name = tempfile.mkstemp(prefix="autotransfer-")
            os.close(handle)
            self.path = Path(name)

    def add(self, x: Tensor) -> None:
        """x: (n, channels, times)."""
        self.count += len(x)
        if self.path is None:
            self.parts.append(x)
            return
        array = x.cpu().contiguous().numpy()
        self.shape, self.dtype = array.shape[1:], array.dtype
        with self.path.open("ab") as file:
            file.write(array.tobytes())

    def joined(self) -> Tensor:
        if self.path is None:
            return torch.cat(self.parts)
        mapped = np.memmap(self.path, mode="c", dtype=self.dtype, shape=(self.count, *self.shape))
        weakref.finalize(mapped, _remove, self.path)  # the file goes with the last tensor that reads it
        return torch.from_numpy(mapped)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows keeps a file that is still mapped
        path.unlink()
