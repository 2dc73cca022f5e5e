"""What each person's own windows say, all of them at once: their scale, their covariance. Labels are never read.

Training subjects are always prepared with these, and so is a new person where that is asked for (kind "subject").
What the training subjects of a fold have in common is the prior for a person nobody has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .align import covariance, inverse_root
from .chunks import row_chunks
from .standardise import affine, apply


class Prior(NamedTuple):
    """What P sets of training subjects say of a new person, by channel; None: not needed, or no person's matter."""

    shift: Tensor | None  # (P, channels)
    gain: Tensor | None  # (P, channels); one over the standard deviation, 0 where there is none
    covariance: Tensor | None  # (P, channels, channels) float64


@dataclass(frozen=True)
class People:
    """Whole-person statistics of all windows of a data set, for one way to standardise and align them."""

    standardise: str
    subject: Tensor  # (N,)
    shift: Tensor  # (K, channels), as recordings.standardise has them
    gain: Tensor
    index: Tensor  # (N,) int64
    covariance: Tensor | None  # (subjects, channels, channels) float64: mean of each person's standardised windows
    mix: Tensor | None  # its inverse root, of the windows' dtype

    def prepared(self, x: Tensor, rows: Tensor | slice) -> Tensor:
        """Raw windows x (n, channels, times), which are these rows, standardised and aligned."""
        if self.standardise != "none":
            own = self.index[rows]
            x = apply(x, self.shift[own].to(x), self.gain[own].to(x))
        return x if self.mix is None else self.mix[self.subject[rows]].to(x) @ x

    def prior(self, training: Tensor) -> Prior:
        """What the people of these rows say of somebody else: means over people, each counting the same, P = 1.

        The standard deviation is the root of the mean variance within people: how much one person varies, not how much
        people differ. With standardise="channel" shift and gain are those of all training rows.
        """
        people = self.subject[training].unique()  # type: ignore[no-untyped-call]  # torch's
        shift = gain = None
        if self.standardise == "channel":
            shift, gain = self.shift, self.gain
        elif self.standardise == "running":
            own = self.gain[people].double()
            variance = torch.where(own > 0, own**-2, 0.0).mean(0)
            shift = self.shift[people].double().mean(0)[None]
            gain = torch.where(variance > 0, variance.rsqrt(), 0.0)[None]
        matrix = None if self.covariance is None else self.covariance[people].mean(0)[None]
        return Prior(shift, gain, matrix)


def measure(X: Tensor, subject: Tensor, standardise: str, align: str, *, rows: Tensor | None = None) -> People:
    """X: (N, channels, times) raw; subject: (N,); rows: the training rows, which standardise="channel" needs."""
    subject = subject.to(X.device)
    shift, gain, index = affine(X, subject, standardise, rows=rows)
    plain = People(standardise, subject, shift, gain, index, None, None)
    if align == "none":
        return plain
    n_subjects, (_, channels, times) = int(subject.max()) + 1, X.shape
    total = torch.zeros(n_subjects, channels, channels, dtype=torch.float64, device=X.device)
    for chunk in row_chunks(len(X), channels * max(channels, times)):
        total.index_add_(0, subject[chunk], covariance(plain.prepared(X[chunk], chunk)))
    count = torch.bincount(subject, minlength=n_subjects).clamp(min=1)
    mean = total / count[:, None, None]
    return People(standardise, subject, shift, gain, index, mean, inverse_root(mean).to(X.dtype))
