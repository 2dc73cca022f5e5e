"""The stacked optimizer equals torch.optim.AdamW, member by member."""

from __future__ import annotations

import torch
from torch import nn

from autotransfer.model.layers import Linear
from autotransfer.training.flat import FlatParameters
from autotransfer.training.optimizer import AdamW


def test_equals_torch_adamw_with_rates_and_decays_per_member() -> None:
    torch.manual_seed(0)
    members, steps = 4, 50
    layer = Linear(members, 3, 2, seeds=range(members)).double()
    lr, decay = torch.tensor([1e-3, 1e-2, 0.1, 3e-4]).double(), torch.tensor([0.01, 0.1, 0.0, 1.0]).double()
    references = [[nn.Parameter(p.detach()[i].clone()) for p in layer.parameters()] for i in range(members)]
    theirs = [
        torch.optim.AdamW(parameters, lr=lr[i].item(), weight_decay=decay[i].item())
        for i, parameters in enumerate(references)
    ]
    flat = FlatParameters(layer=layer)
    ours = AdamW(flat, decay)
    takes_part = torch.rand(steps, members) < 0.7  # members miss steps: they have fewer batches
    for step in range(steps):
        x = torch.randn(members, 5, 3, dtype=torch.float64)
        scale = 1 / (step + 1) ** 0.5
        ours.step(flat.gradient(layer(x).pow(3).mean((1, 2)).sum()), lr * scale, takes_part[step])
        for i, (parameters, optimizer) in enumerate(zip(references, theirs, strict=True)):
            if takes_part[step, i]:
                optimizer.param_groups[0]["lr"] = lr[i].item() * scale
                optimizer.zero_grad()
                (x[i] @ parameters[0].T + parameters[1]).pow(3).mean().backward()
                optimizer.step()
    for i, parameters in enumerate(references):
        for own, reference in zip(layer.parameters(), parameters, strict=True):
            torch.testing.assert_close(own[i], reference.detach(), atol=1e-12, rtol=0)


def test_a_gradient_that_is_not_finite_does_not_reach_a_resting_member() -> None:
    layer = Linear(2, 3, 2, seeds=[0, 1])
    flat = FlatParameters(layer=layer)
    optimizer = AdamW(flat, torch.zeros(2))
    before = flat.values.clone()
    grads = torch.ones_like(flat.values)
    grads[1] = torch.nan
    optimizer.step(grads, torch.full((2,), 0.1), torch.tensor([True, False]))
    assert torch.equal(flat.values[1], before[1])
    assert torch.isfinite(optimizer.first).all()
    assert (flat.values[0] != before[0]).all()
