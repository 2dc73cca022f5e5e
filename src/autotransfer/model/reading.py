"""How EEGNet may read its windows: compressed, and with every channel's envelope beside it.

A temporal filter and ELU see phase well and power badly. In muscle activity power says most, and differs between people
by a factor. Compression makes the factor a summand; the envelope is power that no filter has to find.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def compressed(x: Tensor, strength: float) -> Tensor:
    """sign(x) log(1 + μ|x|) / log(1 + μ): 0 and ±1 stay, small values grow, large ones shrink."""
    return torch.log1p(x.abs() * strength) * torch.sign(x) / math.log1p(strength)


def root_mean_square(x: Tensor, width: int) -> Tensor:
    """Of the `width` samples around each one, (..., times) -> the same shape; of fewer at the ends of the window."""
    times = x.shape[-1]
    place = torch.arange(times, device=x.device)
    start = (place - (width - 1) // 2).clamp(min=0)
    stop = (place + width // 2 + 1).clamp(max=times)
    # In float64, where a spike leaves digits for the quiet rest of a window
    total = torch.nn.functional.pad(x.double().square().cumsum(-1), (1, 0))
    power = (total.index_select(-1, stop) - total.index_select(-1, start)) / (stop - start)
    return power.clamp(min=0.0).sqrt().to(x.dtype)  # rounding may dip below 0


def read(x: Tensor, compress: float | None, envelope: int) -> Tensor:
    """Standardised windows (..., C, T) as the network has them: (..., C, T), or (..., 2C, T) with the envelopes over
    `envelope` samples, which are 0 where the power is 1."""
    if compress is None:
        return x
    signal = compressed(x, compress)
    if not envelope:
        return signal
    return torch.cat([signal, compressed(root_mean_square(x, envelope), compress) - 1], -2)
