"""Penalties as printed equal loops over the sets of the paper's pseudocode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from autotransfer import scores
from autotransfer.censoring import MODES, make_censor
from autotransfer.censoring.censor import Censor
from autotransfer.grids import grid
from autotransfer.randomness import fold_in
from tiny import described

Floats = NDArray[np.float64]
CLASSES, SUBJECTS, ROWS, WIDTH, SIGMA = 3, 5, 31, 4, 1.3

y_of = np.random.default_rng(1).integers(CLASSES, size=ROWS)
s_of = np.random.default_rng(2).integers(SUBJECTS - 1, size=ROWS)  # the last subject has no row in the batch
s_of[:2] = -1  # padding
z_of = np.random.default_rng(3).standard_normal((ROWS, WIDTH)) + 0.5 * s_of[:, None]


def censor_of(method: str, mode: str, **options: object) -> Censor:
    return make_censor(
        method, mode, latent_dim=WIDTH, n_classes=CLASSES, n_subjects=SUBJECTS, as_printed=True, **options
    ).double()


def penalty_of(censor: Censor, z: Floats = z_of) -> float:
    return float(censor(torch.from_numpy(z), torch.from_numpy(y_of), torch.from_numpy(s_of)))


def gradient_of(censor: Censor) -> Floats:
    z = torch.from_numpy(z_of).requires_grad_()
    censor(z, torch.from_numpy(y_of), torch.from_numpy(s_of)).backward()
    return z.grad.numpy()


# ---- the sets --------------------------------------------------------------------------------------------------------


def contexts(mode: str) -> list[list[int]]:
    """Rows of the whole batch, or of every class."""
    known = [i for i in range(ROWS) if s_of[i] >= 0]
    if mode != "conditional":
        return [known]
    return [own for c in range(CLASSES) if (own := [i for i in known if y_of[i] == c])]


def groups(rows: list[int]) -> Iterator[list[int]]:
    for m in range(SUBJECTS):
        if own := [i for i in rows if s_of[i] == m]:
            yield own


def halves(mode: str) -> list[tuple[int, Floats]]:
    """Signs and parts of z."""
    if mode != "complementary":
        return [(+1, z_of)]
    return [(+1, z_of[:, : WIDTH // 2]), (-1, z_of[:, WIDTH // 2 :])]


# ---- MMD -------------------------------------------------------------------------------------------------------------


def kernel(a: Floats, b: Floats) -> float:
    return math.exp(-((a - b) ** 2).sum() / (2 * SIGMA**2))


def estimated(z: Floats, first: list[int], second: list[int]) -> float:
    """The squared MMD of the paper's equation, whatever the two samples share."""

    def within(rows: list[int]) -> float:
        pairs = [kernel(z[i], z[j]) for i in rows for j in rows if i != j]
        return sum(pairs) / (len(rows) * (len(rows) - 1))

    cross = sum(kernel(z[i], z[j]) for i in first for j in second) / (len(first) * len(second))
    return within(first) + within(second) - 2 * cross


@pytest.mark.parametrize("mode", MODES)
def test_mmd_is_a_sum_over_subjects_with_self_pairs(mode: str) -> None:
    expected = sum(
        sign * estimated(z, rows, own)
        for sign, z in halves(mode)
        for rows in contexts(mode)
        for own in groups(rows)
        if len(own) > 1
    )
    assert penalty_of(censor_of("mmd", mode, length_scale=SIGMA)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_pairwise_mmd_is_a_sum_over_ordered_pairs(mode: str) -> None:
    expected = sum(
        sign * estimated(z, first, second)
        for sign, z in halves(mode)
        for rows in contexts(mode)
        for first, second in itertools.permutations([own for own in groups(rows) if len(own) > 1], 2)
    )
    assert penalty_of(censor_of("pairwise_mmd", mode, length_scale=SIGMA)) == pytest.approx(expected, rel=1e-9)


def test_a_clique_is_drawn_from_all_subjects_there_are() -> None:
    """Also from those who are not in the batch: a clique of two of five may then compare nobody."""
    censor = censor_of("pairwise_mmd", "marginal", length_scale=SIGMA, pairs="clique", size=2)
    found = []
    for _ in range(20):
        order = [int(fold_in(censor._key(), m)) for m in range(SUBJECTS)]
        clique = sorted(range(SUBJECTS), key=order.__getitem__)[:2]
        sets = [[i for i in range(ROWS) if s_of[i] == m] for m in clique]
        expected = 2 * estimated(z_of, *sets) if all(len(own) > 1 for own in sets) else 0.0
        assert penalty_of(censor) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        found.append(expected)
        censor.after_step()
    assert 0.0 in found
    assert len(set(found)) > 3


# ---- adversary -------------------------------------------------------------------------------------------------------


def perceptron(critic: torch.nn.Module, x: Floats) -> Floats:
    w1, b1, w2, b2 = (getattr(critic, name).detach().numpy() for name in ("weight1", "bias1", "weight2", "bias2"))
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


@pytest.mark.parametrize("mode", MODES)
def test_the_adversary_sums_over_rows_or_over_classes(mode: str) -> None:
    censor = censor_of("adversary", mode)
    expected = 0.0
    for place, (sign, z) in enumerate(halves(mode)):
        for rows in contexts(mode):
            for i in rows:
                code = np.eye(CLASSES)[y_of[i]] if mode == "conditional" else np.empty(0)
                logits = perceptron(censor.methods[place].critic, np.concatenate([z[i], code]))
                loss = math.log(np.exp(logits).sum()) - logits[s_of[i]]
                expected += sign * loss / (len(rows) if mode == "conditional" else 1)
    assert penalty_of(censor) == pytest.approx(-expected, rel=1e-9)  # print has + here, which would raise I(z; s)
    loss = censor.critic_loss(torch.from_numpy(z_of), torch.from_numpy(y_of), torch.from_numpy(s_of))
    if mode != "complementary":
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)


# ---- BEGAN -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_began_is_blind_and_sums_over_classes(mode: str) -> None:
    censor = censor_of("began", mode, control_rate=0.1)
    parts = halves(mode)
    for k in (0.0, None):
        expected, disc = 0.0, 0.0
        for place, (sign, z) in enumerate(parts):
            method = censor.methods[place]
            error = np.abs(z - perceptron(method.critic, z)).mean(1)
            real = sum(error[rows].mean() for rows in contexts(mode))
            fake = sum(error[own].mean() / SUBJECTS for rows in contexts(mode) for own in groups(rows))
            before = float(method.k)
            assert before == k or k is None
            expected += fake if sign > 0 else real - before * fake
            disc += real - before * fake
        assert penalty_of(censor) == pytest.approx(expected, rel=1e-9)
        loss = censor.critic_loss(torch.from_numpy(z_of), torch.from_numpy(y_of), torch.from_numpy(s_of))
        assert float(loss.detach()) == pytest.approx(disc, rel=1e-9)
        if k is not None:
            censor.after_step()
            if mode != "complementary":
                assert float(censor.methods[0].k) == pytest.approx(min(max(0.1 * (0.7 * real - fake), 0), 1))


# ---- MIGE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("estimator", ["stein", "tikhonov", "ssge"])
def test_mige_weighs_subjects_and_classes_equally(mode: str, estimator: str) -> None:
    fit: Callable[..., Tensor] = getattr(scores, estimator)
    options = {"length_scale": SIGMA, "regularization": 0.01}
    expected = []
    for sign, z in halves(mode):
        gradient = np.zeros_like(z)
        n_classes = CLASSES if mode == "conditional" else 1
        for rows in contexts(mode):
            gradient[rows] -= fit(torch.from_numpy(z[rows]), **options).numpy() / (n_classes * len(rows))
            for own in groups(rows):
                weight = 1 / (n_classes * SUBJECTS * len(own))
                gradient[own] += weight * fit(torch.from_numpy(z[own]), **options).numpy()
        expected.append(sign * gradient)
    found = gradient_of(censor_of("mige", mode, estimator=estimator, **options))
    np.testing.assert_allclose(found, np.concatenate(expected, 1), rtol=1e-6, atol=1e-9)


# ---- settings, grids and runs ----------------------------------------------------------------------------------------


def test_grids_as_printed() -> None:
    ours, printed = (described(source="x", grid="paper", as_printed=flag).settings() for flag in (False, True))
    assert len(grid("paper")) == len(printed) == 346
    assert all(s.as_printed for s in printed[1:])
    assert {s.training.batches for s in printed} == {"shuffled"}
    # Ours train in balanced batches, and so does one network without a penalty.
    assert len(ours) == 348
    assert not any(s.as_printed for s in ours)
    assert [s.training.batches for s in ours if s.penalty is None] == ["shuffled", "balanced", "people"]
