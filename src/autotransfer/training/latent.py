"""Latents and logits of trained models, computed from stored states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import Job, Outcome
from ..model.encoders import Encoders
from ..recordings import Recordings
from .members import Members, size_of
from .prepared import PreparedWindows
from .windows import prepare_windows, release_windows

CHUNK = 256


def encode(
    recordings: Recordings,
    outcomes: Sequence[Outcome],
    rows: NDArray[np.int64],
    *,
    final: bool = False,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    encoders: Encoders | None = None,
) -> tuple[Tensor, Tensor]:
    """Return latents z (P, len(rows), D) and logits (P, len(rows), C) of outcomes with equal shapes.

    Parameters
    ----------
    recordings : Recordings
        Windows, labels and subjects.
    outcomes : list of Outcome
        Outcomes whose encoders have equal shapes.
    rows : array of int
        Positions of windows. Subjects without training rows are preprocessed as new subjects.
    final : bool
        Whether to use the weights of the last epoch instead of the best checkpoint.
    device, dtype
        Device and type of the computation.
    encoders : dict of callable, optional
        Factories of user-defined encoders by name.

    Returns
    -------
    latents, logits : Tensor
        Outputs of encoder and classifier.
    """
    states = [outcome.final_state if final else outcome.state for outcome in outcomes]
    jobs = [outcome.job for outcome in outcomes]
    return encode_states(recordings, jobs, states, rows, device=device, dtype=dtype, encoders=encoders)


@torch.no_grad()
def encode_states(
    recordings: Recordings, jobs: Sequence[Job], states: Sequence[dict[str, Tensor]], rows: NDArray[np.int64], *,
    device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, encoders: Encoders | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return latents and logits of jobs from the states of their weights; parameters as in `encode`."""
    try:
        device, first = torch.device(device), jobs[0].setting
        windows = prepare_windows(recordings, jobs[0], device=device, dtype=dtype)
        members = Members(
            first, size_of(recordings, first), range(len(jobs)), encoders=encoders, device=device, dtype=dtype
        )  # fmt: skip
        members.load(states)
        members.net.eval()
        training = [job.fold.train for job in jobs]
        prepared = PreparedWindows(windows, training, [_held_out_rows(recordings, train, rows) for train in training])
        latents, logits = [], []
        for start in range(0, len(rows), CHUNK):
            chunk = torch.as_tensor(rows[start : start + CHUNK], device=device)
            z = members.net(prepared.gather_any(chunk.expand(len(jobs), -1)))
            latents.append(z)
            logits.append(members.classifier(z))
    finally:
        release_windows(recordings)
    return torch.cat(latents, 1), torch.cat(logits, 1)


def _held_out_rows(recordings: Recordings, train: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all rows outside `train` of the subjects that have such rows among `rows`."""
    outside = np.setdiff1d(np.arange(recordings.n_windows), train)
    subject = recordings.subject.numpy()
    return outside[np.isin(subject[outside], subject[np.intersect1d(rows, outside)])]
