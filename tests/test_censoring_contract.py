"""Every censor in the registry keeps this contract."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from autotransfer.censoring import CENSORS, MODES, Censor, make_censor
from autotransfer.errors import UserError
from autotransfer.grids import PUBLISHED
from autotransfer.settings import Setting, field_names
from censor_problems import batch

SIZES = {"latent_dim": 6, "n_classes": 3, "n_subjects": 4}
every_method = pytest.mark.parametrize("method", list(CENSORS))
every_pair = pytest.mark.parametrize(("method", "mode"), [(method, mode) for method in CENSORS for mode in MODES])
every_type = pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=["float32", "float64"]
)


def evaluate(censor: Censor, z: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    """Return penalty, its gradient in z, critic loss, its gradients in the critics; check who gets a gradient."""
    leaf = z.clone().requires_grad_()
    censor.zero_grad()
    penalty = censor(leaf, y, s)
    penalty.sum().backward()
    assert all(parameter.grad is None for parameter in censor.parameters()), "the penalty reached a critic"
    again = z.clone().requires_grad_()
    loss = censor.critic_loss(again, y, s)
    if loss is not None:
        assert loss.shape == penalty.shape
        loss.sum().backward()
        assert again.grad is None, "the critic loss reached z"
    grads = [parameter.grad for parameter in censor.parameters() if parameter.grad is not None]
    assert len(grads) == len(list(censor.parameters())), "a critic learns nothing"
    return penalty.detach(), leaf.grad, None if loss is None else loss.detach(), grads


def close(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 2e-3, "atol": 2e-4} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-9}


@every_method
def test_a_setting_knows_what_a_method_reads(method: str):
    kind, setting = CENSORS[method], Setting(method=method)
    assert setting.penalty.options == kind.Options()
    assert {f.name for f in fields(kind.Options)} <= set(field_names())
    assert set(kind.per_member) <= {f.name for f in fields(kind.Options)}
    assert kind.label
    assert set(kind.quick_strengths) | set(kind.core_strengths) <= set(MODES)
    assert Setting.from_json(setting.to_json()) == setting
    assert all(isinstance(one, kind.Options) for one in kind.variations())


@every_pair
@every_type
@pytest.mark.parametrize("members", [None, 4])
def test_shape_gradients_and_stacked_equals_solo(method: str, mode: str, dtype: torch.dtype, members: int | None):
    count = members or 1
    z, y, s = batch(members=count, dtype=dtype)
    seeds = list(range(10, 10 + count))
    if members is None:
        z, y, s = z[0], y[0], s[0]
    censor = make_censor(method, mode, members=members, seed=seeds, **SIZES).to(dtype)
    penalty, grad, loss, critics = evaluate(censor, z, y, s)
    assert not any(torch.equal(weights[0], weights[1]) for weights in censor.parameters() if members)
    assert penalty.shape == (() if members is None else (members,))
    assert penalty.dtype == dtype
    assert grad.isfinite().all()
    assert grad.abs().sum() > 0
    for p in range(count if members else 0):
        solo = make_censor(method, mode, seed=seeds[p], **SIZES).to(dtype)
        one, one_grad, one_loss, one_critics = evaluate(solo, z[p], y[p], s[p])
        assert torch.equal(penalty[p], one)
        assert torch.equal(grad[p], one_grad)
        if loss is not None:
            assert torch.equal(loss[p], one_loss)
        assert all(torch.equal(many[p], own) for many, own in zip(critics, one_critics, strict=True))


@every_pair
@every_type
def test_the_order_of_rows_and_padding_do_not_matter(method: str, mode: str, dtype: torch.dtype):
    z, y, s = batch(dtype=dtype)
    censor = make_censor(method, mode, members=3, seed=[1, 2, 3], **SIZES).to(dtype)
    penalty, grad, loss, _ = evaluate(censor, z, y, s)
    order = torch.randperm(z.shape[1], generator=torch.Generator().manual_seed(0))
    moved, moved_grad, moved_loss, _ = evaluate(censor, z[:, order], y[:, order], s[:, order])
    torch.testing.assert_close(moved, penalty, **close(dtype))
    torch.testing.assert_close(moved_grad, grad[:, order], **close(dtype))
    more = torch.cat([z, torch.full_like(z[:, :5], float("nan"))], 1)
    y, s = (torch.cat([ids, torch.full_like(ids[:, :5], fill)], 1) for ids, fill in ((y, 0), (s, -1)))
    padded, padded_grad, padded_loss, _ = evaluate(censor, more, y, s)
    torch.testing.assert_close(padded, penalty, **close(dtype))
    torch.testing.assert_close(padded_grad[:, :-5], grad, **close(dtype))
    assert torch.equal(padded_grad[:, -5:], torch.zeros_like(padded_grad[:, -5:]))
    if loss is not None:
        torch.testing.assert_close(moved_loss, loss, **close(dtype))
        torch.testing.assert_close(padded_loss, loss, **close(dtype))


@every_pair
@every_type
def test_groups_that_do_not_count_change_nothing(method: str, mode: str, dtype: torch.dtype):
    z, y, s = batch(dtype=dtype, subjects=3)
    censor = make_censor(method, mode, members=3, **SIZES).to(dtype)
    penalty, grad, _, _ = evaluate(censor, z, y, s)
    assert penalty.isfinite().all()
    s[:, -1], y[:, -1], z[:, -1] = 3, 2, 1e3  # a subject with one row
    found, found_grad, _, _ = evaluate(censor, z, y, s)
    torch.testing.assert_close(found, penalty, **close(dtype))
    torch.testing.assert_close(found_grad, grad, **close(dtype))


@every_pair
@every_type
def test_where_nothing_counts_the_penalty_is_zero(method: str, mode: str, dtype: torch.dtype):
    z, y, s = batch(dtype=dtype)
    censor = make_censor(method, mode, members=3, **SIZES).to(dtype)
    nothing = [
        torch.full_like(s, -1),  # padding alone
        torch.zeros_like(s),  # one subject
        torch.where(torch.arange(s.shape[1]) < 2, torch.arange(s.shape[1]), -1).expand_as(s),  # single rows
    ]
    for subjects in nothing:
        penalty, grad, loss, critics = evaluate(censor, z, y, subjects)
        assert torch.equal(penalty, torch.zeros_like(penalty))
        assert torch.equal(grad, torch.zeros_like(grad))
        assert loss is None or torch.equal(loss, torch.zeros_like(loss))
        assert all(torch.equal(one, torch.zeros_like(one)) for one in critics)


@every_pair
def test_collapsed_and_tiny_latents_stay_finite(method: str, mode: str):
    z, y, s = batch(dtype=torch.float32)
    z[0] = 0.0
    z[1] *= 1e-12
    z[2, ::2] = z[2, :1]
    penalty, grad, _, _ = evaluate(make_censor(method, mode, members=3, **SIZES), z, y, s)
    assert penalty.isfinite().all()
    assert grad.isfinite().all()


@every_pair
def test_a_diverged_member_leaves_the_others_alone(method: str, mode: str):
    z, y, s = batch(dtype=torch.float32)
    censor = make_censor(method, mode, members=3, seed=[1, 2, 3], **SIZES)
    penalty, grad, _, _ = evaluate(censor, z, y, s)
    z[1] = float("nan")
    broken, broken_grad, _, _ = evaluate(censor, z, y, s)
    assert torch.equal(broken[[0, 2]], penalty[[0, 2]])
    assert torch.equal(broken_grad[[0, 2]], grad[[0, 2]])


def advance(censor: Censor, steps: int, active: Tensor | None = None) -> None:
    """Main steps with critic updates by plain descent."""
    for step in range(steps):
        z, y, s = batch(seed=100 + step, members=censor.members or 1)
        evaluate(censor, z, y, s)
        with torch.no_grad():
            for parameter in censor.parameters():
                parameter -= 0.1 * parameter.grad
        censor.after_step(active)


@every_pair
def test_the_whole_state_is_saved_and_members_can_be_selected(method: str, mode: str):
    censor = make_censor(method, mode, members=4, seed=[5, 6, 7, 8], **SIZES).double()
    advance(censor, 3)
    assert all(len(tensor) == 4 for tensor in censor.state_dict().values())
    fresh = make_censor(method, mode, members=4, seed=[0, 0, 0, 0], **SIZES).double()
    fresh.load_state_dict(censor.state_dict())
    z, y, s = batch(members=4)
    expected, expected_grad, _, _ = evaluate(censor, z, y, s)
    found, found_grad, _, _ = evaluate(fresh, z, y, s)
    assert torch.equal(found, expected)
    assert torch.equal(found_grad, expected_grad)
    keep = torch.tensor([3, 1])
    fresh.select(keep)
    found, found_grad, _, _ = evaluate(fresh, z[keep], y[keep], s[keep])
    assert torch.equal(found, expected[keep])
    assert torch.equal(found_grad, expected_grad[keep])
    with pytest.raises(UserError, match="members=P"):
        make_censor(method, mode, **SIZES).select(keep)


@every_method
def test_members_that_took_no_step_keep_their_counters(method: str):
    censor = make_censor(method, "marginal", members=3, **SIZES).double()
    before = {name: tensor.clone() for name, tensor in censor.state_dict().items()}
    z, y, s = batch()
    evaluate(censor, z, y, s)
    censor.after_step(torch.tensor([False, True, False]))
    assert censor.step.tolist() == [0, 1, 0]
    for name, tensor in censor.state_dict().items():
        assert torch.equal(tensor[[0, 2]], before[name][[0, 2]]), name


def test_numbers_may_differ_between_members():
    z, y, s = batch()
    numbers = {"mige": {"regularization": [0.1, 0.02, 0.003]}, "began": {"control_rate": [0.1, 0.2, 0.3]}}
    for method, options in numbers.items():
        stacked = make_censor(method, "marginal", members=3, seed=[1, 2, 3], **options, **SIZES).double()
        advance(stacked, 2)
        found, found_grad, _, _ = evaluate(stacked, z, y, s)
        for p in range(3):
            own = {name: values[p] for name, values in options.items()}
            alone = make_censor(method, "marginal", members=1, seed=1 + p, **own, **SIZES).double()
            for step in range(2):
                data = [tensor[p : p + 1] for tensor in batch(seed=100 + step)]
                evaluate(alone, *data)
                with torch.no_grad():
                    for parameter in alone.parameters():
                        parameter -= 0.1 * parameter.grad
                alone.after_step()
            one, one_grad, _, _ = evaluate(alone, z[p : p + 1], y[p : p + 1], s[p : p + 1])
            assert torch.equal(found[p], one[0])
            assert torch.equal(found_grad[p], one_grad[0])


class Work(TorchDispatchMode):
    """Counts operations and the elements they write; refuses to hand a number to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(func), "a step read a number back from the device"
        assert "nonzero" not in str(func), "a step made a tensor whose shape depends on data"
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            self.elements += tensor.numel() if isinstance(tensor, Tensor) else 0
        return out


@every_pair
def test_a_step_has_no_loop_and_its_cost_does_not_grow_with_the_subjects(method: str, mode: str):
    rows, work = 128, {}
    for subjects in (4, 32):
        s = torch.arange(rows) % subjects
        z = torch.randn(1, rows, 16, generator=torch.Generator().manual_seed(0))
        y = torch.arange(rows) // (rows // 2)
        censor = make_censor(method, mode, latent_dim=16, n_classes=2, n_subjects=subjects, members=1)
        censor.checks_ids = False  # as in training, where they are our own
        leaf = z.requires_grad_()
        with Work() as counted:
            censor(leaf, y, s).sum().backward()
            loss = censor.critic_loss(z, y, s)
            if loss is not None:
                loss.sum().backward()
            censor.after_step()
        work[subjects] = counted
    assert work[32].calls == work[4].calls
    assert work[32].elements < 2 * work[4].elements, "eight times as many: a column each, beside pairs of rows"


@every_pair
def test_labels_are_never_remembered_too_long(method: str, mode: str) -> None:
    """Critics and penalty of a step share what follows from their labels; copies of the labels give the same."""
    generator = torch.Generator().manual_seed(0)
    y, s = torch.arange(24) % 2, torch.arange(24) // 2 % 3
    own, other = (
        make_censor(method, mode, latent_dim=16, n_classes=2, n_subjects=3, members=1, seed=4) for _ in range(2)
    )

    def step() -> None:
        z = torch.randn(1, 24, 16, generator=generator)
        for _ in range(2):
            known, copied = own.critic_loss(z, y, s), other.critic_loss(z.clone(), y.clone(), s.clone())
            assert known is copied is None or torch.equal(known, copied)
        assert torch.equal(own(z, y, s), other(z, y.clone(), s.clone()))

    step()
    s[:6] = s[:6].flip(0)  # in place: the same tensor with other labels
    step()
    for censor in (own, other):
        censor.after_step()
    step()


@pytest.mark.parametrize("mode", MODES)
def test_units_and_origin_of_a_dimension_do_not_matter(mode: str) -> None:
    """Otherwise an encoder would shrink z instead of hiding the subject."""
    z, y, s = batch()
    censor = make_censor("began", mode, members=3, seed=[1, 2, 3], **SIZES).double()
    scale = torch.linspace(0.1, 50, 6, dtype=z.dtype)
    torch.testing.assert_close(censor(z * scale + 3, y, s), censor(z, y, s), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["mmd", pytest.param("pairwise_mmd", marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_the_value(method: str) -> None:
    z, y, s = batch(rows=10, members=2)
    censor = make_censor(method, "conditional", members=2, length_scale=2.0, **SIZES)
    assert torch.autograd.gradcheck(lambda z: censor(z, y, s), z.requires_grad_())


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        ("gan", {}), ("mmd", {"mode": "joint"}), ("mmd", {"estimator": "stein"}), ("mmd", {"bandwidth": 1.0}),
        ("mmd", {"length_scale": "mean"}), ("mmd", {"length_scale": -1}), ("mmd", {"min_rows": 1}),
        ("mmd", {"n_subjects": 0}), ("mmd", {"mode": "complementary", "latent_dim": 7}),
        ("mmd", {"members": 3, "seed": [1, 2]}), ("mige", {"estimator": "kde"}), ("mige", {"regularization": -1.0}),
        ("pairwise_mmd", {"size": 2}), ("pairwise_mmd", {"pairs": "some"}), ("began", {"variant": "best"}),
        ("pairwise_mmd", {"pairs": "clique", "size": 5}),
        *((method, {"as_printed": True}) for method in CENSORS if method not in PUBLISHED),
    ],
)  # fmt: skip
def test_impossible_options_are_refused(method: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        make_censor(method, **{"mode": "marginal", **SIZES, **wrong})


@every_method
def test_labels_and_latents_of_wrong_types_are_refused(method: str) -> None:
    """Ids out of range would be wrong groups without a message."""
    rows = torch.arange(24)
    z, y, s = torch.randn(24, 6, generator=torch.Generator().manual_seed(0)), rows % 3, rows % 4
    censor = make_censor(method, "marginal", **SIZES)
    expected = censor(z, y, s)
    assert torch.equal(censor(z, y.numpy(), s.tolist()), expected)
    padded = censor(z, y.where(s != 0, 99), s.where(s != 0, -1))
    assert torch.isfinite(padded), "the class of a padding row is not read"
    for wrong in (
        (z, y, s.where(s != 3, 5)), (z, y.where(y != 2, 7), s), (z, y - 1, s), (z, s, y), (z, y, s.float()),
        (z, y[1:], s), (z, y, s[1:]), (z[:, :4], y, s), (z.numpy(), y, s), (z, y, s.numpy().astype(str)),
        (z.to(torch.complex64), y, s), (z, np.ma.masked_array(y, mask=y == 0), s),
    ):  # fmt: skip
        with pytest.raises(UserError):
            censor(*wrong)
