"""A new person's windows, prepared in the order in which they come from what is known so far: the inductive way.

Window i is standardised and aligned with the person's own windows 0..i and with a prior from the training subjects
that is worth PRIOR_WINDOWS windows, so the first windows are treated like those of an average person and later ones
more and more like this person's. With m = PRIOR_WINDOWS and n = i + 1 windows seen:

    shift    = (m·shift₀ + Σ means) / (m + n)
    variance = (m·variance₀ + Σ squared deviations from the person's own mean so far) / (m + n)
    R        = (m·R₀ + Σ covariances) / (m + n),   of windows 0..i standardised with the shift and variance of window i

Labels are never read, and no window changes what was done with an earlier one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .align import covariance, inverse_root, moments, shrunk
from .people import Prior
from .standardise import affine, apply

PRIOR_WINDOWS = 8  # m
STEP = 64  # windows worked on at once
ROUNDING = 1e-12  # squared deviations below this share of the squares they are the difference of are none


class Map(NamedTuple):
    """How each window is prepared: mix · ((X − shift) · gain). P priors, n windows."""

    shift: Tensor  # (P, n, channels)
    gain: Tensor  # (P, n, channels)
    mix: Tensor | None  # (P, n, channels, channels)

    def apply(self, X: Tensor) -> Tensor:
        """Raw windows (n, channels, times) -> (P, n, channels, times)."""
        x = apply(X, self.shift, self.gain)
        return x if self.mix is None else self.mix @ x


class RunningScale:
    """Shift and gain of each window from it and those before it."""

    def __init__(self, shift: Tensor, gain: Tensor, *, crossed: bool = False) -> None:
        """Of the prior: (P, channels) each. crossed: second moments between channels are needed too."""
        self.prior = shift.double()
        self.variance = torch.where(gain > 0, gain.double() ** -2, 0.0)
        self.n = 0
        self.total = torch.zeros_like(self.prior)  # of deviations from the prior's shift, so that no digits are lost
        self.squares = torch.zeros_like(self.prior)
        self.products = self.prior.new_zeros(*self.prior.shape, self.prior.shape[-1]) if crossed else None

    def feed(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """X: (n, channels, times), the person's next windows -> shift and gain (P, n, channels), of X's dtype.

        Where crossed, also Σ X Xᵀ / times over windows 0..i, all of them standardised as window i: (P, n, channels,
        channels) float64. Earlier windows are not kept for it: their sums, taken about the prior's shift, suffice.
        """
        x = X.double()
        mean = x.mean(-1)
        deviation = mean - self.prior[:, None]  # (P, n, C)
        square = (x - mean[..., None]).square().mean(-1) + deviation.square()
        count = self.n + torch.arange(1, len(X) + 1, dtype=torch.float64, device=X.device)[:, None]
        total = self.total[:, None] + deviation.cumsum(1)
        squares = self.squares[:, None] + square.cumsum(1)
        spread = squares - total.square() / count
        spread = torch.where(spread > ROUNDING * squares, spread, 0.0)
        shift = self.prior[:, None] + total / (PRIOR_WINDOWS + count)
        variance = (PRIOR_WINDOWS * self.variance[:, None] + spread) / (PRIOR_WINDOWS + count)
        gain = torch.where(variance > 0, variance.rsqrt().clamp(max=torch.finfo(X.dtype).max), 0.0)
        self.n, self.total, self.squares = self.n + len(X), total[:, -1], squares[:, -1]
        if self.products is None:
            return shift.to(X.dtype), gain.to(X.dtype), None
        products = self.products[:, None] + moments(x - self.prior[:, None, :, None]).cumsum(1)
        self.products = products[:, -1]
        move = shift - self.prior[:, None]
        cross = total[..., :, None] * move[..., None, :]
        about = products - cross - cross.mT + count[..., None] * move[..., :, None] * move[..., None, :]
        return shift.to(X.dtype), gain.to(X.dtype), about * gain[..., :, None] * gain[..., None, :]


class RunningAlignment:
    """R^{-1/2} of each window from it and those before it."""

    def __init__(self, prior: Tensor) -> None:
        """prior: R₀ (P, channels, channels)."""
        self.prior = prior.double()
        self.n = 0
        self.total = torch.zeros_like(self.prior)

    def feed(self, X: Tensor, sums: Tensor | None) -> Tensor:
        """X: (P or 1, n, channels, times), standardised -> (P, n, channels, channels), of X's dtype.

        sums: Σ X Xᵀ / times up to each window, where that is not the sum of what each was when it came.
        """
        n = X.shape[1]
        count = self.n + torch.arange(1, n + 1, dtype=torch.float64, device=X.device)[:, None, None]
        total = self.total[:, None] + moments(X).cumsum(1) if sums is None else sums
        self.n, self.total = self.n + n, total[:, -1]
        R = (PRIOR_WINDOWS * self.prior[:, None] + shrunk(total)) / (PRIOR_WINDOWS + count)
        return inverse_root(R).to(X.dtype)


class Person:
    """One person under P priors. Feed their windows in order, in pieces of any size.

    What a setting takes from all of a person's windows at once (kind "subject") it takes from those of one call.
    """

    def __init__(self, standardise: str, align: str, prior: Prior) -> None:
        self.standardise, self.align, self.prior = standardise, align, prior
        self.scale: RunningScale | None = None
        self.alignment: RunningAlignment | None = None
        if standardise == "running":
            assert prior.shift is not None
            assert prior.gain is not None
            self.scale = RunningScale(prior.shift, prior.gain, crossed=align == "running")
        if align == "running":
            assert prior.covariance is not None
            self.alignment = RunningAlignment(prior.covariance)

    def maps(self, X: Tensor) -> Map:
        """Raw windows (n, channels, times), n ≥ 1 -> what is done with each of them."""
        if "subject" in (self.standardise, self.align):
            return self._maps(X)
        parts = [self._maps(X[start : start + STEP]) for start in range(0, len(X), STEP)]
        mix = None if self.align == "none" else torch.cat([part.mix for part in parts if part.mix is not None], 1)
        return Map(torch.cat([part.shift for part in parts], 1), torch.cat([part.gain for part in parts], 1), mix)

    def feed(self, X: Tensor) -> Tensor:
        """Raw windows (n, channels, times) -> prepared ones (P or 1, n, channels, times)."""
        return self.maps(X).apply(X)

    def _maps(self, X: Tensor) -> Map:
        shift, gain, sums = self._scaled(X)
        plain = Map(shift, gain, None)
        if self.alignment is not None:
            return plain._replace(mix=self.alignment.feed(plain.apply(X), sums))
        if self.align == "subject":
            R = covariance(plain.apply(X)).mean(1, keepdim=True)
            return plain._replace(mix=inverse_root(R).to(X.dtype).expand(-1, len(X), -1, -1))
        return plain

    def _scaled(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        if self.scale is not None:
            return self.scale.feed(X)
        if self.standardise == "channel":
            assert self.prior.shift is not None
            assert self.prior.gain is not None
            everywhere = (-1, len(X), -1)
            return (
                self.prior.shift[:, None].to(X).expand(everywhere),
                self.prior.gain[:, None].to(X).expand(everywhere),
                None,
            )
        everything = torch.zeros(len(X), dtype=torch.int64, device=X.device)
        shift, gain, index = affine(X, everything, self.standardise)
        return shift[index][None], gain[index][None], None
