"""Evaluation of every member on two held-out sets: losses, confusion matrices, best checkpoints and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..folds import Fold
from ..tasks.base import RowLoss
from .flat import FlatParameters
from .metrics import balanced_accuracy, confusion_counts

CHUNK = 128  # rows evaluated at once; constant, so that no result depends on the population
HISTORY_COLUMNS = ("train_loss", "penalty", "loss_0", "loss_1", "score_0", "score_1")
STATE_NAMES = ("loss", "epoch", "values", "stats", "confusion", "log_probs", "history")  # tensors of `Checkpoints`


class HeldOutRows:
    """Rows of the two held-out sets of G groups in chunks. set_index: set of each row, 0 or 1; −1 for padding."""

    def __init__(self, folds: Sequence[Fold], device: torch.device) -> None:
        max_rows = max(len(fold.validation) + len(fold.test) for fold in folds)
        chunks = -(-max_rows // CHUNK)
        rows = np.zeros((len(folds), chunks * CHUNK), dtype=np.int64)
        sets = np.full((len(folds), chunks * CHUNK), -1, dtype=np.int64)
        for g, fold in enumerate(folds):
            first, second = fold.held_out
            rows[g, : len(first) + len(second)] = np.concatenate([first, second])
            sets[g, : len(first) + len(second)] = np.repeat([0, 1], [len(first), len(second)])
        self.rows = torch.from_numpy(rows).view(len(folds), chunks, CHUNK).transpose(0, 1).contiguous().to(device)
        self.set_index = torch.from_numpy(sets).view(len(folds), chunks, CHUNK).transpose(0, 1).contiguous().to(device)

    def select(self, groups: Tensor) -> Tensor:
        """Keep only these groups, and return whether each chunk still has rows (chunks,)."""
        self.rows, self.set_index = self.rows[:, groups], self.set_index[:, groups]
        has_rows = (self.set_index >= 0).any(-1).any(-1)
        self.rows, self.set_index = self.rows[has_rows], self.set_index[has_rows]
        return has_rows

    def measure(
        self, compute_logits: Callable[[Tensor], Tensor], y: Tensor, group: Tensor, weight: Tensor, row_loss: RowLoss
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return losses (P, 2), confusion matrices (P, 2, C, C) and log-probabilities (P, chunks, CHUNK, C).

        compute_logits: function of rows (G, B) -> (P, B, C); y: (N,); group: (P,); weight: (P, C)
        """
        members, classes = weight.shape
        sums = weight.new_zeros(2, members, 2)  # Σ loss and Σ w
        confusion = torch.zeros(members, 2, classes, classes, dtype=torch.float64, device=weight.device)
        log_probs = []
        for rows, set_index in zip(self.rows, self.set_index, strict=True):
            logits = compute_logits(rows)
            labels, set_index = y[rows][group], set_index[group]
            for total, part in zip(sums, row_loss(logits, labels, weight), strict=True):
                total += torch.stack([torch.where(set_index == i, part, 0.0).sum(-1) for i in (0, 1)], -1)
            log_probs.append(logits.log_softmax(-1))
            predicted = logits.argmax(-1)
            confusion += torch.stack([confusion_counts(predicted, labels, set_index == i, classes) for i in (0, 1)], 1)
        loss = sums[0] / sums[1].clamp(min=torch.finfo(weight.dtype).tiny)
        loss = torch.where(confusion.sum((-2, -1)) > 0, loss, torch.inf)  # no held-out rows
        return loss, confusion, torch.stack(log_probs, 1) if log_probs else weight.new_empty(members, 0, CHUNK, classes)


class Checkpoints:
    """Weights of the epoch with the lowest loss on each held-out set, or of the last epoch, and the history.

    `log_probs` of a held-out set are predicted with the weights that were selected on the *other* held-out set.
    """

    def __init__(self, flat: FlatParameters, n_classes: int, max_epochs: int, keeps_last: Tensor, chunks: int) -> None:
        """Allocate checkpoints. keeps_last: (P,) whether to keep the last epoch; chunks: number of held-out chunks."""
        self.flat, self.keeps_last = flat, keeps_last
        members, device, dtype = flat.values.shape[0], flat.values.device, flat.values.dtype
        self.loss = torch.full((members, 2), torch.inf, dtype=dtype, device=device)
        self.epoch = torch.zeros(members, 2, dtype=torch.long, device=device)
        self.values = flat.values[:, None].repeat(1, 2, 1)
        self.stats = flat.stats[:, None].repeat(1, 2, 1)
        # [member, checkpoint selected on set i, measured on set j, true class, predicted class]
        self.confusion = torch.zeros(members, 2, 2, n_classes, n_classes, dtype=torch.float64, device=device)
        self.log_probs = torch.zeros(members, chunks, CHUNK, n_classes, dtype=dtype, device=device)
        self.history = torch.full((members, max_epochs, len(HISTORY_COLUMNS)), torch.nan, dtype=dtype, device=device)

    def update(
        self, epoch: Tensor, train_loss: Tensor, penalty: Tensor, loss: Tensor, confusion: Tensor, log_probs: Tensor,
        set_index: Tensor,
    ) -> None:  # fmt: skip
        """Update in place after an epoch (), counted from 1.

        train_loss, penalty: (P,); loss: (P, 2); confusion: (P, 2, C, C); log_probs: (P, chunks, CHUNK, C);
        set_index: (P, chunks, CHUNK) index of the held-out set of every row
        """
        has_rows = confusion.sum((-2, -1)) > 0
        is_valid = loss.isfinite() | ~has_rows
        is_valid = torch.where(has_rows, is_valid, is_valid.all(1, keepdim=True))  # an empty set: as the other set
        is_better = (loss < self.loss) | (self.keeps_last[:, None] & is_valid)
        self.loss.copy_(torch.where(is_better, loss, self.loss))
        self.epoch.copy_(torch.where(is_better, epoch, self.epoch))
        self.values.copy_(torch.where(is_better[..., None], self.flat.values[:, None], self.values))
        self.stats.copy_(torch.where(is_better[..., None], self.flat.stats[:, None], self.stats))
        self.confusion.copy_(torch.where(is_better[..., None, None, None], confusion[:, None], self.confusion))
        is_new = torch.where(set_index == 0, is_better[:, 1, None, None], is_better[:, 0, None, None])
        self.log_probs.copy_(torch.where(is_new[..., None], log_probs, self.log_probs))
        scores = balanced_accuracy(confusion).to(loss.dtype)
        row = torch.cat([train_loss[:, None], penalty[:, None], loss, scores], 1)
        self.history.index_copy_(1, epoch.view(1) - 1, row[:, None])

    def select(self, members: Tensor, chunks: Tensor) -> None:
        """Keep only these members and chunks."""
        self.keeps_last = self.keeps_last[members]
        for name in STATE_NAMES:
            setattr(self, name, getattr(self, name)[members])
        self.log_probs = self.log_probs[:, chunks]

    def state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in STATE_NAMES}

    def load(self, state: dict[str, Tensor]) -> None:
        # Tensors are assigned, not copied, because the history may have another length.
        for name in STATE_NAMES:
            setattr(self, name, state[name])
