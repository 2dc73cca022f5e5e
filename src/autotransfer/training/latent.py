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
from .gather import Windows
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
    prepared: dict[tuple[str, int], Windows] = {}
    windows = windows_for(recordings, jobs[0], prepared, device=place, dtype=dtype)
    stack = Population(recordings, jobs, windows, dtype, encoders)
    for member, state in enumerate(states):
        for prefix, module in stack.flat.modules.items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if tensor.is_floating_point():
                    tensor.data[member] = state[f"{prefix}.{name}"].to(tensor)
    stack.net.eval()
    group = stack.groups.of_member
    codes, logits = [], []
    for start in range(0, len(rows), CHUNK):
        chunk = torch.as_tensor(rows[start : start + CHUNK], device=place)
        x = stack.windows.gather(chunk.expand(len(stack.groups.jobs), -1), stack.fitted)
        z = stack.net(x, group=group)
        codes.append(z)
        logits.append(stack.classifier(z))
    return torch.cat(codes, 1), torch.cat(logits, 1)
