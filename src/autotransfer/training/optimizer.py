"""AdamW for a population: all operations are elementwise, so members are independent."""

from __future__ import annotations

import torch
from torch import Tensor

from ..gpu import elementwise
from .flat import FlatParameters

BETAS = (0.9, 0.999)
EPS = 1e-8


class AdamW:
    """AdamW as in torch.optim on the rows of FlatParameters, with one weight decay and learning rate per member."""

    def __init__(self, flat: FlatParameters, weight_decay: Tensor) -> None:
        self.flat = flat
        self.weight_decay = weight_decay  # (P,)
        self.first = torch.zeros_like(flat.values)
        self.second = torch.zeros_like(flat.values)
        # float64, because powers of .999 over 10⁵ steps are inexact in float32
        self.steps = torch.zeros(flat.values.shape[0], dtype=torch.float64, device=flat.values.device)

    @torch.no_grad()
    def step(self, grads: Tensor, lr: Tensor, active: Tensor) -> None:
        """Take one step of active members (P,) by gradients (P, n) with learning rates lr (P,)."""
        self.steps += active
        if elementwise.is_available(grads):
            elementwise.adamw(
                self.flat.values, self.first, self.second, self.steps, grads, lr, self.weight_decay, active, BETAS, EPS
            )  # fmt: skip
            return
        update(self.flat.values, self.first, self.second, self.steps, grads, lr, self.weight_decay, active)

    def select(self, members: Tensor) -> None:
        """Keep only these members. The caller selects them in `flat`."""
        self.weight_decay = self.weight_decay[members]
        self.first, self.second, self.steps = self.first[members], self.second[members], self.steps[members]

    def state(self) -> dict[str, Tensor]:
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def load(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def update(
    values: Tensor, first: Tensor, second: Tensor, steps: Tensor, grads: Tensor, lr: Tensor, weight_decay: Tensor,
    active: Tensor,
) -> None:  # fmt: skip
    """Update values, first and second moments (P, n) in place by grads (P, n); the remaining tensors are (P,)."""
    mask = active.to(values.dtype)[:, None]
    # The bias of a member without a step would be 0, and 0 / 0 is NaN even if the update is masked.
    steps = steps.clamp(min=1)
    first_bias = (1 - BETAS[0] ** steps).to(values.dtype)[:, None]
    second_bias = (1 - BETAS[1] ** steps).sqrt().to(values.dtype)[:, None]
    rate = lr.to(values.dtype)[:, None] * mask

    # Multiplication by the mask would not suffice, because 0 times an infinite gradient is NaN.
    grads = torch.where(active[:, None], grads, 0.0)
    first.lerp_(grads, (1 - BETAS[0]) * mask)
    second.lerp_(grads * grads, (1 - BETAS[1]) * mask)
    values.mul_(1 - rate * weight_decay[:, None])
    values.sub_(rate / first_bias * first / (second.sqrt() / second_bias + EPS))
