"""Networks that learn a continuous target: a population of the same steps, with another loss and one output.

The target is standardised by mean and standard deviation of each member's training rows, so that one learning rate
serves any unit. Classes are bins of the target: batches are balanced by them where a setting asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..folds import Rows
from ..jobs import Job
from ..model.encoders import Encoders
from ..settings import LOSSES
from .trainer import Trainer
from .windows import Windows

# Errors beyond which a loss grows linearly, in standard deviations of the target.
KNEES = {"huber": 1.0, "squared": math.inf}


def huber(error: Tensor, knee: Tensor) -> Tensor:
    """e²/2 up to |e| = knee and knee · (|e| − knee/2) beyond, elementwise; half the square for an infinite knee."""
    size = error.abs()
    inner = torch.minimum(size, knee)
    return inner * (size - inner / 2)


def target_scale(targets: Tensor, train: Rows) -> tuple[float, float]:
    """Mean and standard deviation of targets (N,) in the training rows; 1 where they are all the same."""
    values = targets[torch.from_numpy(train)]
    spread = float(values.std(correction=0))
    return float(values.mean()), spread if spread > 0 else 1.0


class NumberTrainer(Trainer):
    """A population whose members have one output: the target, standardised as in their training rows.

    Outcomes have no scores, which are of classes; `held_out_log_probs` (n, 1) are standardised predictions of the
    held-out rows.
    """

    def __init__(self, jobs: Sequence[Job], windows: Windows, encoders: Encoders | None = None) -> None:
        super().__init__(jobs, windows, encoders)
        targets, device = windows.recordings.targets, windows.device
        assert targets is not None, "chosen by them"
        self.targets = targets.to(device)  # (N,) float64
        of_fold = {job.fold.trajectory: target_scale(targets, job.fold.train) for job in jobs}
        self.scale = torch.tensor([of_fold[job.fold.trajectory] for job in jobs], dtype=torch.float64, device=device)
        knees = [KNEES[job.setting.training.loss or LOSSES[0]] for job in jobs]
        self.knee = torch.tensor(knees, dtype=windows.dtype, device=device)[:, None]  # (P, 1)

    def _errors(self, output: Tensor, rows: Tensor) -> Tensor:
        """Outputs (P, B, 1) less the standardised targets of rows (G, B): (P, B)."""
        mean, spread = self.scale.unbind(1)
        target = (self.targets[rows][self.groups.of_member] - mean[:, None]) / spread[:, None]
        return output[..., 0] - target.to(output.dtype)

    def _task(self, z: Tensor, rows: Tensor, y: Tensor) -> Tensor:
        return huber(self._errors(self.classifier(z), rows), self.knee).mean(-1)

    @torch.no_grad()
    def _measure(self) -> None:
        group, held_out = self.groups.of_member, self.held_out
        total = self.knee.new_zeros(len(group), 2)
        count = total.double()
        outputs = []
        for rows, sides in zip(held_out.rows, held_out.side, strict=True):
            output, side = self._logits(rows), sides[group]
            losses = huber(self._errors(output, rows), self.knee)
            total += torch.stack([torch.where(side == i, losses, 0.0).sum(-1) for i in (0, 1)], -1)
            count += torch.stack([(side == i).sum(-1) for i in (0, 1)], -1)
            outputs.append(output)
        loss = torch.where(count > 0, total / count.clamp(min=1).to(total.dtype), torch.inf)
        train_loss, penalty = self.losses / self.groups.steps[group]
        side = held_out.side.transpose(0, 1)[group]
        predicted = torch.stack(outputs, 1) if outputs else self.snapshots.log_probs
        self.snapshots.update(self.clock, train_loss, penalty, loss, count[..., None, None], predicted, side)

    def select(self, members: Sequence[int]) -> None:
        super().select(members)
        keep = torch.tensor(list(members), dtype=torch.long, device=self.device)
        self.scale, self.knee = self.scale[keep], self.knee[keep]
