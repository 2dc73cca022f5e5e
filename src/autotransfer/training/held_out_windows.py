"""Windows of held-out subjects if a transform adapts online, in the order of recording."""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..folds import Rows
from ..preprocessing import FittedPreprocessing
from ..recordings.chunks import row_chunks
from .windows import Windows, channel_major


class HeldOutWindows:
    """Prepared windows of the held-out subjects of G groups."""

    def __init__(
        self, windows: Windows, fitted: FittedPreprocessing, training: Sequence[Rows], held_out: Sequence[Rows]
    ) -> None:
        """Prepare each held-out subject's windows in the order of recording with each group's preprocessing."""
        rec = windows.recordings
        start, X = (0, rec.X) if windows.ready is None else windows.ready
        who = rec.subject.numpy()
        places = np.full((len(training), len(who)), -1, dtype=np.int64)
        first: dict[tuple[bytes, bytes], int] = {}
        collected = CollectedWindows(in_memory=windows.in_memory)
        for g, (train, held) in enumerate(zip(training, held_out, strict=True)):
            original = first.setdefault((train.tobytes(), held.tobytes()), g)
            if original < g:  # another group has the same fold
                places[g] = places[original]
                continue
            group_fitted = fitted.get_group(g)
            for subject in np.unique(who[held]):
                rows = np.sort(held[who[held] == subject])
                places[g, rows] = np.arange(collected.count, collected.count + len(rows))
                one_subject = group_fitted.start_subject(start)
                whole = one_subject.at_once or windows.in_memory
                for chunk in [slice(None)] if whole else row_chunks(len(rows), rec.X[0].numel()):
                    raw = X[torch.from_numpy(rows[chunk])].to(device=windows.device, dtype=windows.dtype)
                    collected.add(one_subject.feed(raw)[0])
        self.device = windows.device
        self.prepared = collected.joined()  # (K, channels, times), in memory or in a temporary file
        # (G, N): index of a row's window in `prepared`; -1 if the row is not held out
        self.places = torch.from_numpy(places).to(self.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return windows (G, B, channels, times) of rows (G, B), channel-major; arbitrary for rows not held out."""
        places = self.places.gather(1, rows).clamp(min=0)
        return channel_major(self.prepared[places.to(self.prepared.device)].to(device=self.device))

    def gather_any(self, rows: Tensor, x: Tensor) -> Tensor:
        """Return x (G, B, channels, times) of rows (G, B) with held-out windows replaced by those stored here."""
        return torch.where((self.places.gather(1, rows) >= 0)[..., None, None], self.gather(rows), x)

    def select(self, stay: Tensor) -> None:
        """Keep only these groups."""
        self.places = self.places[stay]


class CollectedWindows:
    """Growing collection of prepared windows, in memory or in a temporary file (TMPDIR)."""

    def __init__(self, *, in_memory: bool) -> None:
        self.count = 0
        self.parts: list[Tensor] = []
        self.path: Path | None = None
        if not in_memory:
            handle, name = tempfile.mkstemp(prefix="autotransfer-")
            os.close(handle)
            self.path = Path(name)

    def add(self, x: Tensor) -> None:
        """Append windows x (n, channels, times)."""
        self.count += len(x)
        if self.path is None:
            self.parts.append(x)
            return
        array = x.cpu().contiguous().numpy()
        self.shape, self.dtype = array.shape[1:], array.dtype
        with self.path.open("ab") as file:
            file.write(array.tobytes())

    def joined(self) -> Tensor:
        """Return all windows (N, channels, times)."""
        if self.path is None:
            return torch.cat(self.parts)
        mapped = np.memmap(self.path, mode="c", dtype=self.dtype, shape=(self.count, *self.shape))
        weakref.finalize(mapped, _remove, self.path)  # deletes the file with the last tensor that reads it
        return torch.from_numpy(mapped)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot delete a mapped file
        path.unlink()
