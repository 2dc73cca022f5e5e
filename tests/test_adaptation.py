"""Re-estimated class means against a double loop, and the cases in which they must not help."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from autotransfer.models.adaptation import (
    DESIGN_EFFECT,
    N_ITERATIONS,
    ONLINE_DESIGN_EFFECT,
    UPDATE_INTERVAL,
    Adaptation,
)
from autotransfer.training.effects import Effects, WindowSums

P, C, R = 2, 3, 4
DRAW = torch.Generator().manual_seed(0)
EFFECTS = Effects(
    torch.eye(R).expand(P, R, R),
    1.2 * torch.randn(P, C, R, generator=DRAW),
    torch.rand(P, R, generator=DRAW) + 0.5,
    torch.rand(P, R, generator=DRAW) + 0.1,
)
WEIGHTS = torch.tensor([0.6, 0.4])


def start() -> Adaptation:
    return Adaptation([EFFECTS], [WEIGHTS])


def make_windows(n: int, shift: float | Tensor = 0.0, n_classes: int = C) -> tuple[Tensor, Tensor, Tensor]:
    """Return latents (n, P, R) of a shifted subject, log-probabilities (n, C) of the ensemble, and classes (n,)."""
    y = torch.arange(n) % n_classes
    x = EFFECTS.means[:, y].transpose(0, 1) + torch.randn(n, P, R, generator=DRAW) + shift
    variance = 1 + EFFECTS.shift + EFFECTS.interaction
    log_p = -0.5 * ((x[:, :, None] - EFFECTS.means).square() / variance[:, None]).sum(-1)  # (n, P, C)
    return x, (log_p * WEIGHTS[:, None]).sum(1).log_softmax(-1), y


def correct(x: Tensor, windows: list[tuple[Tensor, Tensor]], design_effect: float) -> Tensor:
    """Return the correction (C,) of one window (P, R) from windows with probabilities, member by member."""
    total = torch.zeros(C)
    for p in range(P):
        sums, counts = torch.zeros(1, C, R), torch.zeros(C)
        for latents, probability in windows:
            for c in range(C):
                sums[0, c] += probability[c] * latents[p]
                counts[c] += probability[c]
        prior = Effects(*(field[p : p + 1] for field in EFFECTS))
        weight, bias = prior.correction(prior.posterior(WindowSums(sums, counts), design_effect=design_effect))
        total += WEIGHTS[p] * (x[p] @ weight[0] + bias[0])
    return total


def test_windows_in_order_are_corrected_by_the_windows_before_them() -> None:
    x, log_p, _ = make_windows(3 * UPDATE_INTERVAL - 2, shift=1.0)
    before: list[tuple[Tensor, Tensor]] = []
    for k, (window, own_log_p, corrected) in enumerate(zip(x, log_p, start().adapt(x, log_p), strict=True)):
        n_used = k // UPDATE_INTERVAL * UPDATE_INTERVAL
        expected = own_log_p + correct(window, before[:n_used], ONLINE_DESIGN_EFFECT)
        torch.testing.assert_close(corrected, expected, rtol=1e-4, atol=1e-4)
        before.append((window, expected.softmax(-1)))


def test_all_windows_are_corrected_by_an_em_algorithm() -> None:
    x, log_p, _ = make_windows(9, shift=1.0)
    expected = log_p
    for _ in range(N_ITERATIONS):
        pairs = list(zip(x, expected.softmax(-1), strict=True))
        corrections = [correct(window, pairs, DESIGN_EFFECT) for window in x]
        expected = log_p + torch.stack(corrections)
    torch.testing.assert_close(start().adapt_to_all(x, log_p), expected, rtol=1e-4, atol=1e-4)


def test_one_by_one_equals_together_and_lanes_are_independent() -> None:
    x, log_p, _ = make_windows(22, shift=0.5)
    together, one_by_one = start().adapt(x, log_p), start()
    for k in range(len(x)):
        torch.testing.assert_close(one_by_one.adapt(x[k : k + 1], log_p[k : k + 1])[0], together[k])
    lanes = start().adapt(torch.stack([x, x.flip(0)], 1), torch.stack([log_p, log_p.flip(0)], 1))
    torch.testing.assert_close(lanes[:, 0], together)
    torch.testing.assert_close(lanes[:, 1], start().adapt(x.flip(0), log_p.flip(0)))


def test_a_restored_state_continues() -> None:
    x, log_p, _ = make_windows(28, shift=0.5)
    whole, first, second = start(), start(), start()
    expected = whole.adapt(x, log_p)
    first.adapt(x[:13], log_p[:13])
    second.restore(first.state)
    torch.testing.assert_close(second.adapt(x[13:], log_p[13:]), expected[13:])


@pytest.mark.parametrize("all_windows", [True, False])
def test_shifted_classes_are_found(all_windows: bool) -> None:
    torch.manual_seed(0)
    shift = torch.randn(C, R)[torch.arange(600) % C][:, None]  # each class has its own shift
    x, log_p, y = make_windows(600, shift=shift)
    found = start().adapt_to_all(x, log_p) if all_windows else start().adapt(x, log_p)
    before, after = ((part.argmax(-1) == y)[-300:].float().mean() for part in (log_p, found))
    assert after > before + 0.05, "the sign of the correction"


def test_a_subject_like_the_training_subjects_does_not_lose() -> None:
    x, log_p, y = make_windows(600)
    before, after = ((part.argmax(-1) == y).float().mean() for part in (log_p, start().adapt_to_all(x, log_p)))
    assert after > before - 0.01


def test_members_share_the_probabilities_of_classes() -> None:
    x, log_p, _ = make_windows(30, shift=1.0)
    alone = Adaptation([Effects(*(field[:1] for field in EFFECTS))], [WEIGHTS[:1]])
    silent = Adaptation([EFFECTS], [torch.tensor([0.6, 0.0])])
    torch.testing.assert_close(silent.adapt_to_all(x, log_p), alone.adapt_to_all(x[:, :1], log_p))
    other = torch.cat([x[:, :1], 100 * x[:, 1:]], 1)
    assert not torch.allclose(start().adapt_to_all(other, log_p), start().adapt_to_all(x, log_p))


def test_the_first_window_is_not_corrected() -> None:
    x, log_p, _ = make_windows(1, shift=2.0)
    np.testing.assert_allclose(start().adapt(x, log_p), log_p, atol=1e-5)


def test_labels_correct_as_the_posterior_does() -> None:
    x, _, y = make_windows(12, shift=1.0)
    known = torch.arange(12) < 6
    one_hot = torch.nn.functional.one_hot(y, C).float()
    pairs = [(window, p) for window, p, is_known in zip(x, one_hot, known, strict=True) if is_known]
    expected = torch.stack([correct(window, pairs, 3.0) for window in x])
    torch.testing.assert_close(start().correct_by_labels(x, y, known), expected, rtol=1e-4, atol=1e-4)
