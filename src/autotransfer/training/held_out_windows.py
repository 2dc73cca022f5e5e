"""Windows of held-out people, where a transform follows each of them in the order of recording."""

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
    """Prepared windows of the held-out people of G groups."""

    def __init__(
        self, windows: Windows, fitted: FittedPreprocessing, training: Sequence[Rows], held_out: Sequence[Rows]
    ) -> None:
        """Every held-out person of every group, held_out_windows in the order of recording with the group's prior.

        The prior comes from the training people, so a held-out window looks different in every fold. Folds that
        several groups share are computed once for all of them.
        """
        rec = windows.recordings
        start, X = (0, rec.X) if windows.ready is None else windows.ready
        who = rec.subject.numpy()
        places = np.full((len(training), len(who)), -1, dtype=np.int64)
        first: dict[tuple[bytes, bytes], int] = {}
        collected = CollectedWindows(in_memory=windows.in_memory)
        for g, (train, held) in enumerate(zip(training, held_out, strict=True)):
            same = first.setdefault((train.tobytes(), held.tobytes()), g)
            if same < g:
                places[g] = places[same]
                continue
            of_group = fitted.get_group(g)
            for person in np.unique(who[held]):
                rows = np.sort(held[who[held] == person])
                places[g, rows] = np.arange(collected.count, collected.count + len(rows))
                follower = of_group.start_subject(start)
                whole = follower.at_once or windows.in_memory
                for chunk in [slice(None)] if whole else row_chunks(len(rows), rec.X[0].numel()):
                    raw = X[torch.from_numpy(rows[chunk])].to(device=windows.device, dtype=windows.dtype)
                    collected.add(follower.feed(raw)[0])
        self.device = windows.device
        self.prepared = collected.joined()  # (K, channels, times), in memory or in a temporary file
        # (G, N): where a group finds a row's window; -1: it is not held out there
        self.places = torch.from_numpy(places).to(self.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return windows (G, B, channels, times) of rows (G, B), channel-major in memory; those of -1 are anybody's."""
        places = self.places.gather(1, rows).clamp(min=0)
        return channel_major(self.prepared[places.to(self.prepared.device)].to(device=self.device))

    def gather_any(self, rows: Tensor, x: Tensor) -> Tensor:
        """Return x (G, B, channels, times) of rows (G, B), with held-out people's windows from here."""
        return torch.where((self.places.gather(1, rows) >= 0)[..., None, None], self.gather(rows), x)

    def select(self, stay: Tensor) -> None:
        """Keep these groups."""
        self.places = self.places[stay]


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
