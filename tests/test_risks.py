"""Risks over people: V-REx, GroupDRO and quantile risk against loops and SciPy, in training, and their own control."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import gaussian_kde, norm
from torch import Tensor, nn

import autotransfer as at
from autotransfer.censoring import CENSORS, Censor, make_censor
from autotransfer.errors import UserError
from autotransfer.settings import Setting
from autotransfer.training.metrics import class_weights, row_losses, weighted_cross_entropy, weighted_nll
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import windows_for
from censor_problems import batch, counting_groups
from control import worst_quarter
from test_censoring_contract import shuffled_within_class
from tiny import assert_same_outcome, tiny

SIZES = {"latent_dim": 6, "n_classes": 3, "n_subjects": 4}
RISKS = [name for name, kind in CENSORS.items() if kind.reads_losses]
both_modes = pytest.mark.parametrize("mode", ["marginal", "conditional"])


def problem(seed: int = 0, **sizes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z, y, s, and losses (P, B) in which people differ."""
    z, y, s = batch(seed, **sizes)
    return z, y, s, z.square().mean(-1)


class Naive:
    """One member's contexts, by loops: the ids of the counting groups, their rows and mean losses, n_c/N."""

    def __init__(self, mode: str, y: Tensor, s: Tensor, loss: Tensor) -> None:
        context = [0] * len(s) if mode == "marginal" else y.tolist()
        context = [c if person >= 0 else -1 for c, person in zip(context, s.tolist(), strict=True)]
        found = counting_groups(context, s.tolist())
        total = sum(len(rows) for inside in found.values() for rows in inside.values())
        self.rows = found
        self.risks = {
            c: {g: sum(float(loss[i]) for i in rows) / len(rows) for g, rows in inside.items()}
            for c, inside in found.items()
        }
        self.weight = {c: sum(map(len, inside.values())) / total for c, inside in found.items()}

    def averaged(self, of_context: dict[int, float]) -> float:
        return sum(self.weight[c] * value for c, value in of_context.items())

    def gradient(self, of_group: dict[int, dict[int, float]], n: int) -> NDArray[np.float64]:
        """From ∂/∂R_g in each context to ∂/∂loss."""
        out = np.zeros(n)
        for c, inside in self.rows.items():
            for g, rows in inside.items():
                out[rows] = self.weight[c] * of_group[c][g] / len(rows)
        return out


def value_and_gradient(censor: Censor, z: Tensor, y: Tensor, s: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    leaf = loss.clone().requires_grad_()
    value = censor(z, y, s, loss=leaf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


@both_modes
def test_vrex_is_the_variance_over_groups_of_their_mean_losses(mode: str) -> None:
    z, y, s, loss = problem()
    found, gradient = value_and_gradient(make_censor("vrex", mode, members=3, **SIZES).double(), z, y, s, loss)
    for p in range(3):
        naive = Naive(mode, y[p], s[p], loss[p])
        expected = {c: float(np.var(list(risks.values()))) for c, risks in naive.risks.items()}
        assert float(found[p]) == pytest.approx(naive.averaged(expected), rel=1e-12)
        slopes = {
            c: {g: 2 * (r - np.mean(list(risks.values()))) / len(risks) for g, r in risks.items()}
            for c, risks in naive.risks.items()
        }
        np.testing.assert_allclose(gradient[p], naive.gradient(slopes, len(loss[p])), rtol=1e-10, atol=1e-15)


@both_modes
def test_vrex_has_the_gradient_of_finite_differences(mode: str) -> None:
    z, y, s, loss = problem(members=1, rows=20)
    censor = make_censor("vrex", mode, members=1, **SIZES).double()
    assert torch.autograd.gradcheck(lambda rows: censor(z, y, s, loss=rows), loss.clone().requires_grad_())


def test_vrex_of_equal_risks_is_zero_and_leaves_them_alone() -> None:
    s, y = torch.arange(32) % 4, torch.arange(32) // 4 % 2
    rows = torch.rand(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = torch.stack([rows[torch.randperm(8)] for _ in range(4)], 1).flatten()  # everybody the same in another order
    censor = make_censor("vrex", "marginal", latent_dim=1, n_classes=2, n_subjects=4).double()
    value, gradient = value_and_gradient(censor, torch.zeros(32, 1).double(), y, s, loss)
    assert float(value) < 1e-30
    assert gradient.abs().max() < 1e-15
    shifted, _ = value_and_gradient(censor, torch.zeros(32, 1).double(), y, s, loss + (s == 2))
    assert float(shifted) == pytest.approx(3 / 16)


@both_modes
def test_group_dro_weighs_people_by_exponentiated_running_gains(mode: str) -> None:
    """Four steps by loops: q, its updates, value and gradient. A member that takes no step learns nothing from it."""
    rate, members = 0.7, 3
    censor = make_censor("group_dro", mode, members=members, group_rate=rate, **SIZES).double()
    gains: list[dict[tuple[int, int], float]] = [{} for _ in range(members)]
    for step in range(4):
        z, y, s, loss = problem(seed=step)
        active = [True, step != 1, step % 2 == 0]
        value_and_gradient(censor, z, y, s, 3 * loss)  # evaluated once more than steps are taken
        found, gradient = value_and_gradient(censor, z, y, s, loss)
        for p in range(members):
            naive = Naive(mode, y[p], s[p], loss[p])
            values, slopes = {}, {}
            for c, risks in naive.risks.items():
                raised = {g: math.exp(gains[p].get((c, g), 0.0) + rate * r) for g, r in risks.items()}
                q = {g: one / sum(raised.values()) for g, one in raised.items()}
                values[c] = sum(q[g] * r for g, r in risks.items()) - np.mean(list(risks.values()))
                slopes[c] = {g: q[g] - 1 / len(risks) for g in risks}
                for g, r in risks.items():
                    if active[p]:
                        gains[p][c, g] = gains[p].get((c, g), 0.0) + rate * r
            assert float(found[p]) == pytest.approx(naive.averaged(values), rel=1e-10)
            np.testing.assert_allclose(gradient[p], naive.gradient(slopes, len(loss[p])), rtol=1e-9, atol=1e-14)
        censor.after_step(torch.tensor(active))
    assert all(len(one) >= 4 for one in gains)


def test_group_dro_raises_the_weight_of_whoever_does_worst_and_survives_large_gains() -> None:
    s, y, z = torch.arange(12) % 3, torch.zeros(12).long(), torch.zeros(12, 1)
    censor = make_censor("group_dro", "marginal", latent_dim=1, n_classes=1, n_subjects=3, group_rate=50.0)
    loss = torch.tensor([0.2, 0.5, 0.9])[s]
    shares = []
    for _ in range(100):
        _, gradient = value_and_gradient(censor, z, y, s, loss)
        shares.append(float(gradient[s == 2].sum()) + 1 / 3)
        censor.after_step()
    assert all(a <= b + 1e-6 for a, b in pairwise(shares))
    assert shares[-1] == pytest.approx(1)
    assert censor.methods[0].gains.tolist()[2] == 0
    assert censor.methods[0].gains.isfinite().all()


def test_predictions_are_not_learned_from() -> None:
    """In eval mode losses are weighed, and not remembered."""
    z, y, s, loss = problem()
    censor = make_censor("group_dro", "marginal", members=3, **SIZES).double().eval()
    censor(z, y, s, loss=loss)
    censor.after_step()
    assert not censor.methods[0].gains.any()


def kde_quantile(risks: list[float], alpha: float) -> tuple[float, float]:
    """By SciPy: the quantile and the bandwidth."""
    kde = gaussian_kde(risks, bw_method="silverman")
    h = float(np.sqrt(kde.covariance[0, 0]))
    ends = min(risks) - 9 * h, max(risks) + 9 * h
    return float(brentq(lambda q: kde.integrate_box_1d(-np.inf, q) - alpha, *ends, xtol=1e-13)), h


@both_modes
@pytest.mark.parametrize("alpha", [0.1, 0.75, 0.99])
def test_quantile_risk_is_that_of_scipys_density(mode: str, alpha: float) -> None:
    z, y, s, loss = problem()
    censor = make_censor("quantile_risk", mode, members=3, quantile=alpha, **SIZES).double()
    found, gradient = value_and_gradient(censor, z, y, s, loss)
    for p in range(3):
        naive = Naive(mode, y[p], s[p], loss[p])
        values, slopes = {}, {}
        for c, risks in naive.risks.items():
            own = list(risks.values())
            quantile, h = kde_quantile(own, alpha)
            values[c] = quantile - np.mean(own)

            def moved(g: int, by: float, own: list[float] = own, h: float = h) -> float:
                """The quantile when one group's risk has moved and the bandwidth has not."""
                x = np.array(own)
                x[g] += by
                ends = x.min() - 9 * h, x.max() + 9 * h
                return float(brentq(lambda q: norm.cdf((q - x) / h).mean() - alpha, *ends, xtol=1e-14))

            differences = [(moved(k, 1e-4) - moved(k, -1e-4)) / 2e-4 for k in range(len(own))]
            assert sum(differences) == pytest.approx(1, abs=1e-6)
            slopes[c] = {g: one - 1 / len(own) for g, one in zip(risks, differences, strict=True)}
        assert float(found[p]) == pytest.approx(naive.averaged(values), rel=1e-8, abs=1e-10)
        np.testing.assert_allclose(gradient[p], naive.gradient(slopes, len(loss[p])), rtol=1e-5, atol=1e-8)


def test_the_quantile_of_many_people_is_the_empirical_one() -> None:
    """The kernels' width goes to 0 as n^(−1/5), and its part in the quantile of a normal sample as its square."""
    gaps = []
    for people in (50, 200, 800):
        risk = torch.special.ndtri((torch.arange(people).double() + 0.5) / people)
        s = torch.arange(people).repeat_interleave(2)
        censor = make_censor("quantile_risk", "marginal", latent_dim=1, n_classes=1, n_subjects=people).double()
        value = censor(torch.zeros(2 * people, 1).double(), torch.zeros_like(s), s, loss=risk[s])
        wider = math.sqrt(1 + (1.06 * people**-0.2) ** 2)  # a normal density, convolved with the kernel
        assert float(value) == pytest.approx(wider * norm.ppf(0.75), rel=1e-3)
        gaps.append(float(value - risk.quantile(0.75)))
    assert gaps[0] > 1.5 * gaps[1] > 2.25 * gaps[2] > 0
    assert gaps[2] < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_quantile_of_equal_risks_is_their_value(dtype: torch.dtype) -> None:
    """No spread, no bandwidth: everybody weighs the same, and nobody's NaN reaches anything."""
    s = torch.arange(40) % 5
    for level in (0.0, 1e-20, 0.7, 1e4):
        loss = torch.full((40,), level, dtype=dtype)
        censor = make_censor("quantile_risk", "marginal", latent_dim=1, n_classes=1, n_subjects=5).to(dtype)
        value, gradient = value_and_gradient(censor, torch.zeros(40, 1, dtype=dtype), torch.zeros_like(s), s, loss)
        assert float(value) == pytest.approx(0, abs=1e-6 * level + 1e-30)
        assert gradient.abs().max() < 1e-6


def equal_groups(classes: int = 2, people: int = 4, per: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, y and s (1, B) of groups of the same size, and class weights (1, C) that are not equal."""
    draw = torch.Generator().manual_seed(3)
    cell = torch.arange(classes * people * per) % (classes * people)
    y, s = (cell % classes)[None], (cell // classes)[None]
    logits = torch.randn(1, len(cell), classes, generator=draw, dtype=torch.float64) + s[..., None] * 0.3
    return logits, y, s, class_weights(torch.tensor([[30.0, 10.0]], dtype=torch.float64))


def test_the_mean_of_the_rows_losses_is_the_tasks_loss() -> None:
    logits, y, _, weight = equal_groups()
    rows = row_losses(*weighted_nll(logits, y, weight))
    torch.testing.assert_close(rows.mean(-1), weighted_cross_entropy(logits, y, weight))


@both_modes
@pytest.mark.parametrize("method", ["group_dro", "quantile_risk"])
def test_at_strength_one_equal_groups_give_the_published_objective(method: str, mode: str) -> None:
    """task + penalty = Σ_g q_g R_g, or the quantile, of every class in its share of the rows."""
    logits, y, s, weight = equal_groups()
    rows = row_losses(*weighted_nll(logits, y, weight))
    own = {"group_dro": {"group_rate": 0.4}, "quantile_risk": {"quantile": 0.8}}[method]
    sizes = {"latent_dim": 2, "n_classes": 2, "n_subjects": 4}
    censor = make_censor(method, mode, members=1, **sizes, **own).double()
    total = weighted_cross_entropy(logits, y, weight) + censor(logits, y, s, loss=rows)
    naive, expected = Naive(mode, y[0], s[0], rows[0]), {}
    for c, risks in naive.risks.items():
        risk = np.array(list(risks.values()))
        if method == "group_dro":
            q = np.exp(0.4 * risk) / np.exp(0.4 * risk).sum()
            expected[c] = float(q @ risk)
        else:
            expected[c] = kde_quantile(risk.tolist(), 0.8)[0]
    assert float(total) == pytest.approx(naive.averaged(expected), rel=1e-9)


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UserError, match=r"quantile is 1.0; it must lie between 0 and 1"):
        Setting(method="quantile_risk", quantile=1.0)
    with pytest.raises(UserError, match=r"group_rate is -1.0; it must be a positive number"):
        Setting(method="group_dro", group_rate=-1.0)


# In training


def quick(**given: object) -> Setting:
    return Setting(**{"max_epochs": 3, "batch_size": 16, "lr": 1e-2} | given)


def mixed_jobs(recordings: at.Recordings) -> list[at.Job]:
    """Members with and without penalties, of codes and of risks, that differ in numbers and modes."""
    settings = [
        quick(), quick(method="mmd"), quick(method="vrex", strength=3.0), quick(method="vrex", mode="conditional"),
        quick(method="group_dro", group_rate=0.1), quick(method="group_dro", group_rate=0.5, strength=0.5),
        quick(method="quantile_risk"), quick(method="quantile_risk", quantile=0.9, shuffle_subjects=True),
    ]  # fmt: skip
    return [at.Job(setting, at.leave_one_subject_out(recordings)[0]) for setting in settings]


def test_a_stacked_member_is_the_same_alone_bit_for_bit() -> None:
    recordings = tiny(n_subjects=5)
    jobs = mixed_jobs(recordings)
    for stacked, alone in zip(at.train(recordings, jobs), at.train(recordings, jobs, population=1), strict=True):
        assert stacked.failure is None
        assert_same_outcome(stacked, alone)
    plain, *penalised = at.train(recordings, jobs)
    for outcome in penalised:
        assert not torch.equal(outcome.state["classifier.weight"], plain.state["classifier.weight"])


def population(recordings: at.Recordings, jobs: list[at.Job]) -> Trainer:
    windows = windows_for(recordings, jobs[0], device=torch.device("cpu"), dtype=torch.float32)
    return Trainer(jobs, windows)


def test_a_resumed_training_continues_with_the_gains_it_had() -> None:
    recordings = tiny(n_subjects=5)
    jobs = mixed_jobs(recordings)
    whole, first, second = (population(recordings, jobs) for _ in range(3))
    for _ in range(3):
        whole.train_epoch()
    first.train_epoch()
    state = {name: tensor.clone() for name, tensor in first.state().items()}
    (gains,) = (tensor for name, tensor in state.items() if name.endswith("gains"))
    assert gains.shape == (2, 3)  # members by people
    assert (gains < 0).any(1).all()
    second.load(state, epoch=1, seconds=first.seconds)
    for _ in range(2):
        second.train_epoch()
    for name, tensor in whole.state().items():
        torch.testing.assert_close(second.state()[name], tensor, rtol=0, atol=0, equal_nan=True, msg=name)


def test_training_hands_over_rows_losses_only_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their mean is the task's loss, and they reach the classifier."""
    recordings = tiny(n_subjects=5)
    for jobs, read in ((mixed_jobs(recordings), True), (mixed_jobs(recordings)[:2], False)):
        trainer = population(recordings, jobs)
        seen: list[Tensor | None] = []
        penalty = trainer.censors.penalty

        def spy(z: Tensor, y: Tensor, s: Tensor, losses: Tensor | None, penalty=penalty, seen=seen) -> Tensor:
            seen.append(None if losses is None else losses.detach().mean(-1))
            return penalty(z, y, s, losses)

        monkeypatch.setattr(trainer.censors, "penalty", spy)
        trainer.train_epoch()
        if read:
            torch.testing.assert_close(torch.stack(seen).sum(0), trainer.losses[0])
        else:
            assert all(one is None for one in seen)
    single = population(recordings, [at.Job(quick(method="vrex", strength=1e4), jobs[0].fold)])
    plain = population(recordings, [at.Job(quick(batches="balanced"), jobs[0].fold)])
    for trainer in (single, plain):
        trainer.train_epoch()
    assert not torch.equal(single.classifier.weight, plain.classifier.weight)


# The control: true people lower the loss of those who do worst, shuffled ones do not, a flipped sign raises it.

STRENGTH = {"vrex": 3.0, "group_dro": 1.0, "quantile_risk": 1.0}
OPTIONS = {"group_dro": {"group_rate": 0.05}}
CONDITIONS = ("baseline", "true", "shuffled", "flipped")


def shortcut(seed: int, people: int = 8, per: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """x (N, 3): weak evidence for the class, a strong shortcut that misleads two of eight people, noise."""
    draw = torch.Generator().manual_seed(seed)
    s, y = torch.arange(people * per) // per, torch.arange(people * per) % 2
    x = 0.7 * torch.randn(len(s), 3, generator=draw)
    sign = 2.0 * y - 1
    x[:, 0] += 0.5 * sign
    x[:, 1] += 1.5 * torch.where(s < 2, -sign, sign)
    return x, y, s


def train_linear(censor: Censor, x: Tensor, y: Tensor, s: Tensor, strength: Tensor, steps: int = 60) -> Tensor:
    """A linear encoder and classifier per member on all rows: x (P, N, 3), y and s (P, N) -> losses (P, N)."""
    draw, count = torch.Generator().manual_seed(1), len(x)
    encoder = nn.Parameter((torch.randn(3, 4, generator=draw) / 3).repeat(count, 1, 1))
    head = nn.Parameter((torch.randn(4, 2, generator=draw) / 3).repeat(count, 1, 1))
    optimiser = torch.optim.AdamW([encoder, head], lr=0.03)
    rows = x.new_zeros(y.shape)
    for _ in range(steps):
        z = x @ encoder
        rows = nn.functional.cross_entropy((z @ head).mT, y, reduction="none")
        optimiser.zero_grad()
        (rows.mean(-1) + strength * censor(z, y, s, loss=rows)).sum().backward()
        optimiser.step()
        censor.after_step()
    return rows.detach()


@pytest.mark.parametrize("method", RISKS)
def test_small_control_with_a_shortcut_that_misleads_some(method: str) -> None:
    data = [shortcut(seed) for seed in range(2)]
    x, y, true = (torch.stack([one[i] for one in data for _ in CONDITIONS]) for i in range(3))
    used = true.clone()
    for p in range(2, len(x), 4):
        used[p] = shuffled_within_class(y[p], true[p])
    strength = STRENGTH[method] * torch.tensor([0.0, 1.0, 1.0, -1.0]).repeat(len(data))
    sizes = {"latent_dim": 4, "n_classes": 2, "n_subjects": 8, "members": len(x)}
    censor = make_censor(method, "marginal", **sizes, **OPTIONS.get(method, {})).float()
    losses = train_linear(censor, x, y, used, strength)
    found = [worst_quarter(loss.numpy(), who.numpy()) for loss, who in zip(losses, true, strict=True)]
    worst = dict(zip(CONDITIONS, np.reshape(found, (len(data), 4)).mean(0), strict=True))
    fall = worst["baseline"] - worst["true"]
    assert fall >= worst["baseline"] / 5, worst
    assert worst["baseline"] - worst["shuffled"] < fall / 3, worst
    assert worst["flipped"] > worst["baseline"], worst
