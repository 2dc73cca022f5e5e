"""Standardisation as numbers to apply, so that X itself stays raw and on the device once.

A standardised window is  (X[n] − shift[index[n]]) · gain[index[n]],  per channel, with shift the mean and
gain one over the population standard deviation of the window's group: the trial itself, its subject, or all
training rows. Where a group has one value throughout, or no spread, gain is 0 and so is the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UserError, check_choice
from ..settings import STANDARDISATIONS
from .chunks import row_chunks


def affine(
    X: Tensor, subject: Tensor | None, kind: str, *, rows: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Shift and gain of every window of X (N, channels, times), of X's device and dtype.

    Returns shift (G, channels), gain (G, channels) and index (N,) int64, the group of each window. By kind:
    trial    G = N
    channel  G = 1, from the training `rows` alone: indices, or a mask (N,)
    subject  G = subjects, from all trials of each, labels unseen; reads `subject` (N,)
    running  the same, which is how training subjects are standardised; new people: recordings.running
    none     G = 1, nothing changes
    """
    check_choice("standardise", kind, STANDARDISATIONS)
    n_trials, n_channels, _ = X.shape
    everything = torch.arange(n_trials, device=X.device)
    if kind == "trial":
        return *_statistics(X, everything, everything, n_trials), everything
    if kind in ("subject", "running"):
        if subject is None or subject.shape != (n_trials,):
            raise UserError(f"standardise={kind!r} needs the subject of every trial; give subject, or use 'trial'")
        index = subject.to(device=X.device, dtype=torch.int64)
        return *_statistics(X, everything, index, int(index.max()) + 1), index
    one_group = torch.zeros_like(everything)
    if kind == "none":
        return X.new_zeros(1, n_channels), X.new_ones(1, n_channels), one_group
    if rows is None:
        raise UserError("standardise='channel' needs the training rows, whose statistics it uses; give rows=")
    chosen = torch.as_tensor(rows, device=X.device)
    chosen = everything[chosen]  # of a mask, the indices
    if len(chosen) == 0:
        raise UserError("standardise='channel' was given no training rows; give rows= at least one")
    return *_statistics(X, chosen, one_group, 1), one_group


def apply(X: Tensor, shift: Tensor, gain: Tensor) -> Tensor:
    """Windows (..., channels, times) with their own shift and gain (..., channels)."""
    return (X - shift[..., None]) * gain[..., None]


def standardise(X: Tensor, subject: Tensor | None, kind: str, *, rows: Tensor | None = None) -> Tensor:
    """X (N, channels, times) standardised: a copy, for small data and for tests."""
    shift, gain, index = affine(X, subject, kind, rows=rows)
    return apply(X, shift[index], gain[index])


def _statistics(X: Tensor, rows: Tensor, index: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Shift and gain (G, channels) of the groups index[rows], in two passes with float64 sums."""
    _, n_channels, n_times = X.shape
    zeros = torch.zeros(n_groups, n_channels, dtype=torch.float64, device=X.device)
    total, squares = zeros, zeros.clone()
    lowest = torch.full_like(zeros, torch.inf, dtype=X.dtype)
    highest = torch.full_like(zeros, -torch.inf, dtype=X.dtype)
    count = torch.zeros(n_groups, dtype=torch.float64, device=X.device)
    chunks = [rows[chunk] for chunk in row_chunks(len(rows), n_channels * n_times)]
    for chunk in chunks:
        windows, group = X[chunk], index[chunk]
        total.index_add_(0, group, windows.sum(-1, dtype=torch.float64))
        count.index_add_(0, group, torch.full_like(group, n_times, dtype=torch.float64))
        low, high = torch.aminmax(windows, dim=-1)
        places = group[:, None].expand_as(low)
        lowest.scatter_reduce_(0, places, low, "amin")
        highest.scatter_reduce_(0, places, high, "amax")
    count = count.clamp(min=1)[:, None]  # a group without rows: nobody reads its numbers
    mean = total / count
    for chunk in chunks:
        group = index[chunk]
        squares.index_add_(0, group, (X[chunk] - mean[group, :, None]).square().sum(-1))
    deviation = (squares / count).sqrt()
    # The rounded mean of equal values need not be that value, so a constant is told by its extremes.
    constant = lowest >= highest
    flat = constant | (deviation == 0)
    shift = torch.where(constant, lowest, mean.to(X.dtype)).nan_to_num(posinf=0.0)
    largest = torch.finfo(X.dtype).max
    gain = torch.where(flat, 0.0, (1 / deviation).clamp(max=largest)).to(X.dtype)
    return shift, gain
