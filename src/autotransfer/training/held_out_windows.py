"""Windows of held-out subjects, prepared in the order of recording if a transform adapts online."""

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
        start, X = (0, rec.X) if windows.precomputed is None else windows.precomputed
        subject = rec.subject.numpy()
        index = np.full((len(training), len(subject)), -1, dtype=np.int64)
        first_group: dict[tuple[bytes, bytes], int] = {}
        collected = CollectedWindows(in_memory=windows.in_memory)
        for g, (train, rows) in enumerate(zip(training, held_out, strict=True)):
            earlier = first_group.setdefault((train.tobytes(), rows.tobytes()), g)
            if earlier < g:  # the windows of an equal fold are already prepared
                index[g] = index[earlier]
                continue
            group_fitted = fitted.get_group(g)
            for one_subject in np.unique(subject[rows]):
                subject_rows = np.sort(rows[subject[rows] == one_subject])
                index[g, subject_rows] = np.arange(collected.count, collected.count + len(subject_rows))
                preprocessing = group_fitted.start_subject(start)
                is_whole = preprocessing.needs_all_windows or windows.in_memory
                for chunk in [slice(None)] if is_whole else row_chunks(len(subject_rows), rec.X[0].numel()):
                    raw = X[torch.from_numpy(subject_rows[chunk])].to(device=windows.device, dtype=windows.dtype)
                    collected.add(preprocessing.feed(raw)[0])
        self.device = windows.device
        self.prepared = collected.concatenate()  # (K, channels, times), in memory or in a temporary file
        # (G, N): index of a row's window in `prepared`; -1 if the row is not held out
        self.index = torch.from_numpy(index).to(self.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Return windows (G, B, channels, times) of held-out rows (G, B), channel-major; arbitrary for other rows."""
        index = self.index.gather(1, rows).clamp(min=0)
        return channel_major(self.prepared[index.to(self.prepared.device)].to(device=self.device))

    def gather_any(self, rows: Tensor, x: Tensor) -> Tensor:
        """Return windows (G, B, channels, times) of rows (G, B): held-out windows of held-out rows, x of other rows."""
        return torch.where((self.index.gather(1, rows) >= 0)[..., None, None], self.gather(rows), x)

    def select(self, groups: Tensor) -> None:
        """Keep only these groups."""
        self.index = self.index[groups]


class CollectedWindows:
    """Growing collection of prepared windows, in memory or in a temporary file in the folder TMPDIR."""

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

    def concatenate(self) -> Tensor:
        """Return all windows (N, channels, times)."""
        if self.path is None:
            return torch.cat(self.parts)
        mapped = np.memmap(self.path, mode="c", dtype=self.dtype, shape=(self.count, *self.shape))
        weakref.finalize(mapped, _remove, self.path)  # the file is deleted with the last tensor that uses it
        return torch.from_numpy(mapped)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows cannot delete a mapped file
        path.unlink()
