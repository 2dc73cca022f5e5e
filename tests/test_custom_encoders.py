"""A user's nn.Module replaces EEGNet, with the same results stacked and one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.model.any_module import AnyModule, build
from autotransfer.model.stack import Size
from tiny import tiny

pytestmark = pytest.mark.usefixtures("brief_results")


class Small(nn.Module):
    """What a user writes in five minutes."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(n_channels, 4, 5, padding=2)
        self.out = nn.Linear(4 * n_times, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.conv(x)).flatten(1))


class Rich(nn.Module):
    """Normalization, dropout of two kinds, functional dropout, a lazy layer, an output that is not flat."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(n_channels, 6, 5, padding=2)
        self.norm = nn.BatchNorm1d(6)
        self.channels, self.units = nn.Dropout1d(0.2), nn.Dropout(0.3)
        self.mix = nn.LazyConv1d(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.channels(torch.relu(self.norm(self.conv(x))))
        h = nn.functional.dropout(self.mix(self.units(h)), 0.1, self.training)
        return h.unflatten(-1, (2, -1)).mean(-1)


class Noisy(Rich):
    """Draws from torch's generator: cannot be stacked, must still be a function of the seed."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + 0.1 * torch.randn_like(x) if self.training else x)


class Branching(Rich):
    """Python that looks at values, which torch.func refuses."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.mean() > 0 else 2 * x)


def stack(factory: Callable[..., nn.Module], members: int = 4, *, stacked: bool | None = None) -> AnyModule:
    size = Size(3, 16, 2, None)
    made = AnyModule(lambda: build(factory, size), size, members, seeds=range(members))
    made.is_stacked = made.is_stacked if stacked is None else stacked
    return made


def test_what_can_be_stacked_is() -> None:
    assert stack(Small).is_stacked
    assert stack(Rich).is_stacked
    assert not stack(Noisy).is_stacked
    assert not stack(Branching).is_stacked


@pytest.mark.parametrize("factory", [Small, Rich])
def test_stacked_equals_one_by_one_in_value_gradient_and_statistics(factory: Callable[..., nn.Module]) -> None:
    both = [stack(factory, stacked=way).double() for way in (True, False)]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, 3, 16, generator=generator, dtype=torch.float64)
    group, noise = torch.tensor([0, 1, 1, 0]), torch.tensor([5, 99], dtype=torch.int32)
    active = torch.tensor([True, True, False, True])
    seen = []
    for net in both:
        before = [buffer.clone() for buffer in net.buffers() if buffer.is_floating_point()]
        z = net(x, group=group, noise=noise, active=active)
        grads = torch.autograd.grad(z.pow(3).sum(), list(net.parameters()))
        after = [buffer for buffer in net.buffers() if buffer.is_floating_point()]
        for old, new in zip(before, after, strict=True):
            assert torch.equal(old[2], new[2]), "a member that takes no step keeps its statistics"
            assert not torch.equal(old[0], new[0])
        seen.append([z, *grads, *after])
    for first, second in zip(*seen, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("factory", "method"), [(Small, None), (Rich, "adversary"), (Noisy, "mmd")])
def test_a_member_of_a_stack_equals_the_same_member_alone(factory: Callable[..., nn.Module], method: str) -> None:
    recordings = tiny()
    setting = at.Setting(method=method, encoder="mine", max_epochs=3, batch_size=16)
    jobs = [at.Job(setting, fold, seed) for fold in at.leave_one_subject_out(recordings)[:2] for seed in range(2)]
    encoders = {"mine": factory}
    together = at.train(recordings, jobs, "cpu", dtype=torch.float64, encoders=encoders)
    assert {outcome.population for outcome in together} == {4}
    for job, outcome in zip(jobs, together, strict=True):
        (alone,) = at.train(recordings, [job], "cpu", dtype=torch.float64, encoders=encoders)
        assert alone.best_epoch == outcome.best_epoch
        for name, tensor in alone.state.items():
            torch.testing.assert_close(tensor, outcome.state[name], rtol=1e-7, atol=1e-9)
        assert outcome.history["train_loss"][0] != outcome.history["train_loss"][-1]


def test_frozen_parameters_stay_as_they_were_given() -> None:
    class Pretrained(Small):
        def __init__(self, n_channels: int, n_times: int) -> None:
            super().__init__(n_channels, n_times)
            self.conv.weight.data.fill_(0.125)
            self.conv.weight.requires_grad_(False)

    recordings = tiny()
    fold = at.leave_one_subject_out(recordings)[0]
    jobs = [at.Job(at.Setting(encoder="mine", max_epochs=2, batch_size=16), fold, seed) for seed in (0, 1)]
    outcome = at.train(recordings, jobs, "cpu", encoders={"mine": Pretrained})[0]
    assert (outcome.state["encoder.module.conv.weight"] == 0.125).all()


def test_models_of_braindecode_are_known_by_their_keywords_and_final_layer() -> None:
    class Foreign(nn.Module):
        def __init__(self, n_outputs: int, n_chans: int, n_times: int, sfreq: float | None = None) -> None:
            super().__init__()
            self.features = nn.Linear(n_chans * n_times, 10)
            self.final_layer = nn.Linear(10, n_outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.final_layer(self.features(x.flatten(1)))

    net = stack(Foreign)
    assert net.latent_dim == 10
    assert not [name for name, _ in net.named_parameters() if "final_layer" in name]


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda c, t: nn.Linear(7, 3), "cannot take windows of shape"),
        (lambda c, t: "net", "must return a torch.nn.Module"),
        (lambda c, t: nn.Sequential(nn.Flatten(0), nn.Linear(2 * c * t, 4)), "one row per window"),
        (lambda c, t: nn.Sequential(nn.BatchNorm1d(c, momentum=None), nn.Flatten()), "momentum=None"),
    ],
)
def test_an_unfit_encoder_is_refused_in_one_line(factory: Callable[..., nn.Module], words: str) -> None:
    with pytest.raises(UserError, match=words) as found:
        stack(factory)
    assert "\n" not in str(found.value)
