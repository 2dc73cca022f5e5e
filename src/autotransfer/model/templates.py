"""Encoder for signals that are locked to an event: filtered windows and their correlations with mean responses.

xDAWN filters (Rivet et al. 2009) maximize the power of a class's mean response relative to the power of all windows.
Latents are 16 time averages of every filtered signal, and its correlation with the filtered mean response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import check_at_most, check_positive
from ..preprocessing.represent.base import LOG_FLOOR, N_SEGMENTS, segment_means, subtract_means
from .closed_form import Batches, ClosedFormEncoder, ClosedFormOptions
from .stack import Size

MIN_DEVIATION = 1e-6  # ratio to the mean absolute value below which a standard deviation is a rounding error


@dataclass(frozen=True, kw_only=True)
class TemplatesOptions(ClosedFormOptions):
    """Hyperparameters of `Templates`."""

    display_name = "templates"

    max_filters: ClassVar[int] = 32  # maximum for all classes together; every class has at least one

    template_filters: int = 4  # spatial filters per class, at most the number of channels

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "template_filters")
        check_at_most(self, template_filters=10**4)

    def filters(self, size: Size) -> int:
        """Return the number of spatial filters per class."""
        return min(self.template_filters, size.channels, max(1, self.max_filters // size.classes))

    def latent_dim(self, size: Size) -> int:
        return self.filters(size) * size.classes * (min(N_SEGMENTS, size.times) + 1)

    def member_bytes(self, size: Size, batch: int, itemsize: int) -> int:
        buffers = 8 * self.filters(size) * size.classes * (size.channels + size.times)
        return super().member_bytes(size, batch, itemsize) + itemsize * buffers

    def stack(self, size: Size, members: int, seeds: Sequence[int]) -> Templates:
        return Templates(size, members, self.filters(size), self.latent_dim(size))


class Templates(ClosedFormEncoder):
    def __init__(self, size: Size, members: int, class_filters: int, latent_dim: int) -> None:
        super().__init__(members, latent_dim)
        self.size, self.class_filters = size, class_filters
        n_filters = class_filters * size.classes
        self.filters = nn.Buffer(torch.zeros(members, n_filters, size.channels))  # ordered by class
        # Filtered mean responses with mean 0 and standard deviation 1
        self.templates = nn.Buffer(torch.zeros(members, n_filters, size.times))

    def raw_latents(self, x: Tensor, members: slice = slice(None)) -> Tensor:
        signals = self.filters[members, None].to(torch.float64) @ x.to(torch.float64)  # (M, B, F, T)
        deviations, _ = subtract_means(signals)
        spread = deviations.square().mean(-1).sqrt() + MIN_DEVIATION * signals.abs().mean(-1)
        product = (deviations * self.templates[members, None].to(torch.float64)).mean(-1)
        correlation = product / spread.clamp(min=LOG_FLOOR)
        return torch.cat([segment_means(signals).flatten(2), correlation], -1).to(x.dtype)

    def fit(self, members: Sequence[int], batches: Batches) -> None:
        response, covariance, samples = class_statistics(batches, self.size, self.filters.device)
        filters = xdawn(response, covariance, samples, self.class_filters)  # (K, f, C)
        templates, _ = subtract_means((filters @ response).flatten(0, 1))
        templates = templates / templates.square().mean(-1, keepdim=True).sqrt().clamp(min=LOG_FLOOR)
        for member in members:
            self.filters[member] = filters.flatten(0, 1).to(self.filters)
            self.templates[member] = templates.to(self.templates)


def class_statistics(batches: Batches, size: Size, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Return class means (K, C, T), the covariance of all samples (C, C) and the number of samples, in float64."""
    response = torch.zeros(size.classes, size.channels, size.times, dtype=torch.float64, device=device)
    count, second = response.new_zeros(size.classes), response.new_zeros(size.channels, size.channels)
    for x, y in batches():
        exact = x.double()
        response.index_add_(0, y, exact)
        count += torch.bincount(y, minlength=size.classes)
        rows = exact.transpose(0, 1).flatten(1)  # (C, B·T)
        second += rows @ rows.T
    samples = int(count.sum()) * response.shape[-1]
    mean = response.sum((0, 2)) / samples
    covariance = second / samples - mean[:, None] * mean
    return response / count.clamp(min=1)[:, None, None], covariance, samples


def xdawn(response: Tensor, covariance: Tensor, samples: int, n_filters: int) -> Tensor:
    """Return unit-length filters (K, f, C): eigenvectors of S w = λ Σ w with the largest λ, S from a class mean."""
    deviation, _ = subtract_means(response)
    signal = shrink_covariance(deviation @ deviation.mT / response.shape[-1], response.shape[-1])
    # Whitening by Σ, or by the identity if all samples are 0, gives an ordinary eigenvalue problem.
    total = shrink_covariance(covariance, samples)
    scale = total.diagonal().mean()
    identity = torch.eye(len(total), dtype=total.dtype, device=total.device)
    total = torch.where(scale > 0, total + 1e-12 * scale * identity, identity)
    whitening = torch.linalg.inv(torch.linalg.cholesky(total))
    vectors = torch.linalg.eigh(whitening @ signal @ whitening.T)[1].flip(-1)[..., :n_filters]
    filters = (whitening.T @ vectors).mT
    filters = filters / filters.norm(dim=-1, keepdim=True)
    # The sign of an eigenvector is arbitrary, so the largest entry is made positive.
    largest = filters.gather(-1, filters.abs().argmax(-1, keepdim=True))
    result: Tensor = filters * largest.sign()
    return result


def shrink_covariance(covariance: Tensor, samples: int) -> Tensor:
    """Return covariances (..., C, C) after oracle approximating shrinkage (Chen et al. 2010)."""
    channels = covariance.shape[-1]
    square = covariance.square().mean((-2, -1))
    average = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    denominator = (samples + 1) * (square - average**2 / channels)
    shrinkage = torch.where(denominator > 0, ((square + average**2) / denominator).clamp(max=1.0), 1.0)[..., None, None]
    identity = torch.eye(channels, dtype=covariance.dtype, device=covariance.device)
    return (1 - shrinkage) * covariance + shrinkage * average[..., None, None] * identity
