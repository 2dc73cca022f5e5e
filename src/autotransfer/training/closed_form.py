"""Trainer of linear models, fitted in closed form by linear discriminant analysis with a shrunk covariance.

Classes are modeled as equally likely, as in balanced accuracy, and normal with a common covariance:

    logit_k = μ_kᵀ Σ⁻¹ z − ½ μ_kᵀ Σ⁻¹ μ_k        Σ = (1 − a) S + a (tr(S)/D) I

S is the covariance within classes. The shrinkage a is an option or the estimate of Ledoit and Wolf (2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..jobs import Job
from ..machine import count_cores, limit_threads
from ..model.closed_form import ClosedFormEncoder, ClosedFormOptions
from ..model.encoders import Encoders
from ..recordings.chunks import row_chunks
from .metrics import mean_loss
from .trainer import Trainer
from .windows import Windows

MIN_SHRINKAGE = 1e-8  # without shrinkage, a covariance of fewer rows than features or of constant features is singular
ABSENT_LOGIT = -1e4  # logit of a class without training windows


def make_population(jobs: Sequence[Job], windows: Windows, encoders: Encoders | None = None) -> Trainer:
    """Return the untrained population of jobs that have the same `packing.program_of`."""
    trainer = ClosedFormTrainer if jobs[0].setting.network.is_closed_form else Trainer
    return trainer(jobs, windows, encoders)


class ClosedFormTrainer(Trainer):
    """Population of linear models, which are fitted in the first epoch instead of training steps."""

    @torch.no_grad()
    def train_epoch(self) -> None:
        """Fit all members; members that share training rows are fitted together."""
        self.epoch += 1
        self.epoch_index.fill_(self.epoch)
        self.losses.zero_()
        groups: dict[bytes, list[int]] = {}  # by training rows, because linear models do not depend on seeds
        for group, job in enumerate(self.groups.jobs):
            groups.setdefault(job.fold.train.tobytes(), []).append(group)
        group_of_member = self.groups.group_of_member.tolist()
        fits = [
            (equal_groups[0], [member for member, group in enumerate(group_of_member) if group in equal_groups])
            for equal_groups in groups.values()
        ]
        if not self.jobs[0].setting.network.is_fitted_by_one_core:
            for fit in fits:
                self._fit_members(*fit)
            return
        # Each thread has its own limit of OpenMP threads, so every thread of the pool sets it.
        pool = ThreadPoolExecutor(count_cores(), initializer=threadpool_limits, initargs=(1, "openmp"))
        with limit_threads(1), pool:
            for finished in [pool.submit(self._fit_members, *fit) for fit in fits]:
                finished.result()

    @torch.no_grad()
    def _fit_members(self, group: int, members: list[int]) -> None:
        """Fit members that share the training rows of a group."""
        net, prepared = cast(ClosedFormEncoder, self.net), self.prepared.get_group(group)
        rows = torch.from_numpy(self.groups.jobs[group].fold.train).to(self.device)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for chunk in row_chunks(len(rows), self.samples_per_window):
                yield prepared.gather(rows[None, chunk])[0], self.y[rows[chunk]]

        net.fit(members, batches)
        first = slice(members[0], members[0] + 1)
        latents = net.fit_standardization(
            members, torch.cat([net.raw_latents(x[None], first)[0].double() for x, _ in batches()])
        )
        y = self.y[rows]
        n_classes, head = self.classifier.weight.shape[1], net.head()
        moments = ClassMoments(latents, y, n_classes)
        for member in members:
            options = cast(ClosedFormOptions, self.jobs[member].setting.network)
            weight, bias = (
                moments.solve(options.shrinkage) if head is None else (head.to(latents), latents.new_zeros(n_classes))
            )
            self.classifier.weight.data[member] = weight.to(self.classifier.weight)
            self.classifier.bias.data[member] = bias.to(self.classifier.bias)
            logits = latents @ weight.T + bias
            loss = mean_loss(self.row_loss, logits[None], y[None], self.weights[member : member + 1].double())
            self.losses[0, member] = loss[0] * self.groups.steps_per_epoch[group]  # sum over the steps of an epoch

    @property
    def samples_per_window(self) -> int:
        """Return the largest number of values of a window: before and after preprocessing, and in the latents."""
        recordings = self.prepared.windows.recordings
        channels, times = self.jobs[0].setting.preprocessing.shape(recordings.n_channels, recordings.n_times)
        return max(channels * times, self.members.latent_dim, recordings.n_channels * recordings.n_times)


class ClassMoments:
    """Class means and pooled covariance of latents (n, D) with K classes, in float64."""

    def __init__(self, latents: Tensor, y: Tensor, n_classes: int) -> None:
        count = torch.bincount(y, minlength=n_classes)
        total = latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, y, latents)
        self.has_windows = count > 0  # (K,)
        self.means = total / count.clamp(min=1)[:, None]  # (K, D)
        self.rows = latents - self.means[y]
        # n S = rowsᵀ rows has the nonzero eigenvalues of rows rowsᵀ, so the smaller of the two products is computed.
        self.by_rows = len(latents) < latents.shape[1]
        self.product = self.rows @ self.rows.T if self.by_rows else self.rows.T @ self.rows
        variance = self.product.diagonal().sum() / self.rows.numel()  # tr(S)/D
        self.variance = variance if variance > 0 else torch.ones_like(variance)  # 1 if every row equals its class mean

    def estimate_shrinkage(self) -> float:
        """Return the shrinkage of Ledoit and Wolf: the squared error of S over its squared distance from tr(S)/D."""
        n, dim = self.rows.shape
        square = self.product.square().sum() / n**2  # |S|²
        error = (self.rows.square().sum(1).square().sum() / n - square) / n
        distance = square - dim * self.variance**2
        return float((error / distance).clamp(0, 1)) if distance > 0 else 1.0

    def solve(self, shrinkage: float | str) -> tuple[Tensor, Tensor]:
        """Return weights (K, D) and bias (K,) of the logits."""
        a = max(self.estimate_shrinkage() if isinstance(shrinkage, str) else shrinkage, MIN_SHRINKAGE)
        # If latents are not finite, the weights of this member become NaN, and other members are not affected.
        root, info = torch.linalg.cholesky_ex(self._shrink_covariance(self.product, a))
        root = torch.where(info == 0, root, torch.nan)
        if not self.by_rows:
            weight = torch.cholesky_solve(self.means.T, root).T  # μ_kᵀ Σ⁻¹
        else:  # Woodbury identity with rows R: (c RᵀR + l)⁻¹ = (1 − c Rᵀ (c RRᵀ + l)⁻¹ R) / l
            inner = torch.cholesky_solve(self.rows @ self.means.T, root)  # (n, K)
            within = (1 - a) / len(self.rows) * (self.rows.T @ inner).T
            weight = (self.means - within) / (a * self.variance)
        bias = -0.5 * (weight * self.means).sum(1)
        return weight, torch.where(self.has_windows, bias, ABSENT_LOGIT)

    def covariance(self, a: float) -> Tensor:
        """Return Σ (D, D) with shrinkage a."""
        return self._shrink_covariance(self.rows.T @ self.rows if self.by_rows else self.product, a)

    def _shrink_covariance(self, product: Tensor, a: float) -> Tensor:
        matrix = (1 - a) / len(self.rows) * product
        matrix.diagonal().add_(a * self.variance)
        return matrix
