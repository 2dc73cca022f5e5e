"""Latent codes and class probabilities of trained models, read back from their states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..jobs import Job, Outcome
from ..model.encoders import Encoders
from ..recordings import Recordings
from .newcomers import Newcomers
from .population import Population
from .train import windows_for

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
    """Codes z (P, len(rows), D) and logits (P, len(rows), C) of outcomes of one program, in eval mode.

    Rows that an outcome was not trained on are those of new people, where the setting makes a difference.
    final: the weights of the last epoch instead of the best snapshot's.
    """
    states = [outcome.final_state if final else outcome.state for outcome in outcomes]
    jobs = [outcome.job for outcome in outcomes]
    return encode_states(recordings, jobs, states, rows, device=device, dtype=dtype, encoders=encoders)


@torch.no_grad()
def encode_states(
    recordings: Recordings,
    jobs: Sequence[Job],
    states: Sequence[dict[str, Tensor]],
    rows: NDArray[np.int64],
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    encoders: Encoders | None = None,
) -> tuple[Tensor, Tensor]:
    """The same from stored states."""
    place = torch.device(device)
    windows = windows_for(recordings, jobs[0], {}, device=place, dtype=dtype)
    stack = Population(recordings, jobs, windows, dtype, encoders)
    for member, state in enumerate(states):
        for prefix, module in stack.flat.modules.items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if tensor.is_floating_point():
                    tensor.data[member] = state[f"{prefix}.{name}"].to(tensor)
    stack.net.eval()
    group = stack.groups.of_member
    newcomers = _strangers(recordings, stack, rows)
    codes, logits = [], []
    for start in range(0, len(rows), CHUNK):
        chunk = torch.as_tensor(rows[start : start + CHUNK], device=place)
        shared = chunk.expand(len(stack.groups.jobs), -1)
        x = windows.gather(shared, stack.fitted)
        if newcomers is not None:
            new = newcomers.places.gather(1, shared) >= 0
            x = torch.where(new[..., None, None], newcomers.gather(shared), x)
        z = stack.net(x, group=group)
        codes.append(z)
        logits.append(stack.classifier(z))
    return torch.cat(codes, 1), torch.cat(logits, 1)


def _strangers(recordings: Recordings, stack: Population, rows: NDArray[np.int64]) -> Newcomers | None:
    """Everybody whom a group was not trained on, if any of these rows are theirs."""
    training = [job.fold.train for job in stack.groups.jobs]
    others = [np.setdiff1d(np.arange(recordings.n_trials), train) for train in training]
    if not any(np.isin(rows, own).any() for own in others):
        return None
    return stack.windows.newcomers(training, others)
