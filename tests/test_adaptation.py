"""Adaptation methods against their definitions, and what none of them may do."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from autotransfer.person import adaptation
from autotransfer.person.adaptation import (
    ADAPTATION_METHODS,
    Adaptation,
    AdaptationMethod,
    Prototypes,
    SelfTraining,
    SharedShift,
)
from autotransfer.training.effects import Effects, WindowSums

P, C, R = 2, 3, 4
DRAW = torch.Generator().manual_seed(0)
EVERYONE = Effects(
    torch.eye(R).expand(P, R, R),
    1.2 * torch.randn(P, C, R, generator=DRAW),
    torch.rand(P, R, generator=DRAW) + 0.5,
    torch.rand(P, R, generator=DRAW) + 0.1,
)
WEIGHTS = torch.tensor([0.6, 0.4])


def windows(n: int, shift: float = 0.0, classes: int = C) -> tuple[Tensor, Tensor, Tensor]:
    """Latents (n, P, R) of a subject who lies elsewhere, what the model says of them (n, C), and their classes (n,)."""
    y = torch.arange(n) % classes
    x = EVERYONE.means[:, y].transpose(0, 1) + torch.randn(n, P, R, generator=DRAW) + shift
    variance = 1 + EVERYONE.shift + EVERYONE.interaction
    each = -0.5 * ((x[:, :, None] - EVERYONE.means).square() / variance[:, None]).sum(-1)  # (n, P, C)
    return x, (each * WEIGHTS[:, None]).sum(1).log_softmax(-1), y


def known_after(method: AdaptationMethod, x: Tensor, p: Tensor) -> dict[str, Tensor]:
    known = method.initial_state()
    for own, said in zip(x, p, strict=True):
        known = method.update(known, own, said)
    return known


@pytest.mark.parametrize("name", ADAPTATION_METHODS)
def test_an_initial_state_corrects_nothing(name: str) -> None:
    method = ADAPTATION_METHODS[name](EVERYONE)
    weight, bias = method.correction(method.initial_state())
    assert (weight.shape, bias.shape) == ((P, R, C), (P, C))
    np.testing.assert_allclose(weight, 0, atol=1e-6)
    np.testing.assert_allclose(bias, 0, atol=1e-5)


@pytest.mark.parametrize("name", ADAPTATION_METHODS)
def test_subjects_in_a_batch_equal_single_subjects(name: str) -> None:
    """Orders are followed as a further axis; each is as it would be alone."""
    (x, log_p, _), (x2, log_p2, _) = windows(30, 1.0), windows(30, -0.5)
    together = Adaptation([EVERYONE], [WEIGHTS], name)
    found = together.adapt(torch.stack([x, x2], 1), torch.stack([log_p, log_p2], 1))
    assert found.shape == (30, 2, C)
    for person, (own, said) in enumerate([(x, log_p), (x2, log_p2)]):
        alone = Adaptation([EVERYONE], [WEIGHTS], name).adapt(own, said)
        np.testing.assert_allclose(found[:, person], alone, rtol=1e-4, atol=1e-4)


def test_prototypes_are_means_of_confident_windows() -> None:
    x, log_p, _ = windows(60, 0.7)
    p = log_p.softmax(-1)
    method = Prototypes(EVERYONE)
    known = known_after(method, x, p)
    doubt = -(p * p.log()).sum(-1)
    sure = doubt < adaptation.MAX_ENTROPY * math.log(C)
    assert 5 < int(sure.sum()) < 60
    hard = torch.nn.functional.one_hot(p.argmax(-1), C)[sure].float()
    sums = torch.einsum("nc,npr->pcr", hard, x[sure])
    np.testing.assert_allclose(known["sums"], sums, rtol=1e-4, atol=1e-4)
    want = EVERYONE.posterior(WindowSums(sums, hard.sum(0)), design_effect=adaptation.PREDICTED_DESIGN_EFFECT)
    np.testing.assert_allclose(method.posterior(known).means, want.means, rtol=1e-4, atol=1e-4)


def test_self_training_learns_classes_as_far_as_all_are_predicted() -> None:
    """Between the shift alone, where one class is, and soft labels of all classes, where these are alike."""
    x, log_p, _ = windows(60, 0.7)
    p = log_p.softmax(-1)
    method = SelfTraining(EVERYONE)

    def shares(p: Tensor) -> Tensor:
        """How far the means lie from those of a shift to those of soft labels, by which they differ."""
        known = known_after(method, x, p)
        sums, counts = torch.einsum("nc,npr->pcr", p, x), p.sum(0)
        np.testing.assert_allclose(known["sums"], sums, rtol=1e-4, atol=1e-4)
        soft = EVERYONE.posterior(WindowSums(sums, counts), design_effect=adaptation.CLASS_DESIGN_EFFECT).means
        shift = SharedShift(EVERYONE).posterior(known).means
        assert (soft - shift).abs().max() > 0.1
        return (method.posterior(known).means - shift) / (soft - shift)

    counts = p.sum(0)
    np.testing.assert_allclose(shares(p), 3 * float(counts.min() / counts.sum()), atol=1e-2)
    np.testing.assert_allclose(shares(torch.full((60, C), 1 / C)), 1.0, atol=1e-2)
    one_sided = torch.zeros(60, C)
    one_sided[:, 1] = 1.0
    np.testing.assert_allclose(shares(one_sided), 0.0, atol=1e-2)


def test_every_method_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[1] / "docs" / "online.md").read_text(encoding="utf-8")
    missing = [name for name in ADAPTATION_METHODS if f"`{name}`" not in page]
    assert not missing, f"say in docs/online.md what {missing} does"
