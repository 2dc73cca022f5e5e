"""The C kernels of a model in use: each against plain torch code in float64, and sessions with and without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import autotransfer as at
from autotransfer import cpu
from autotransfer.cpu import compiling, in_use
from autotransfer.model.eegnet import EEGNet
from autotransfer.model.shallow import Shallow
from autotransfer.model.stack import Size, group_of
from autotransfer.model.templates import Templates, TemplatesOptions
from autotransfer.preprocessing.append_scale import WithScale
from autotransfer.preprocessing.represent import REPRESENTATIONS
from autotransfer.preprocessing.represent.base import EveryWindow
from autotransfer.preprocessing.represent.minirocket import FittedMiniRocket, MiniRocket, convolved
from autotransfer.preprocessing.standardise import OwnScale
from autotransfer.preprocessing.transform import Batch, Fitted

compiled = pytest.mark.skipif(compiling.library() is None, reason="no C compiler here")
BAD = [float("nan"), float("inf"), -float("inf")]


def random_(net: nn.Module) -> nn.Module:
    """The same in eval mode with weights and statistics that all matter."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, tensor in [*net.named_parameters(), *net.named_buffers()]:
            positive = torch.rand(tensor.shape, generator=draw) + 0.5
            tensor.copy_(positive if "norm" in key or "inv_std" in key else torch.randn(tensor.shape, generator=draw))
    return net.eval()


def check_networks(net: nn.Module, channels: int, times: int, levels: int, scale: float = 1.0) -> None:
    for sizes, n in (([3], 1), ([2, 1], 3)):
        x = scale * torch.randn(len(sizes), n, channels, times)
        if levels:
            x[:, :, -levels:] = x[:, :, -levels:, :1]
        with torch.no_grad():
            found = net.quick(levels)(x, sizes)
            exact = net.double()(x.double(), group=group_of(sizes))
            net.float()
        assert found.shape == exact.shape
        assert (found - exact).abs().max() <= 2e-5 * exact.abs().max()


@compiled
@pytest.mark.parametrize(
    ("channels", "times", "kernel", "levels"),
    [(1, 8, 3, 0), (2, 9, 64, 0), (7, 33, 5, 2), (64, 128, 64, 0), (24, 200, 64, 16), (3, 511, 25, 1), (61, 37, 8, 0),
     (5, 512, 17, 0), (4, 31, 9, 3)],
)  # fmt: skip
@pytest.mark.parametrize("log_power", [False, True])
def test_eegnet(channels: int, times: int, kernel: int, levels: int, log_power: bool) -> None:
    torch.manual_seed(0)
    own = {"temporal_kernel": kernel, "log_power": log_power, "seeds": range(3)}
    check_networks(random_(EEGNet(channels, times, 3, **own)), channels, times, levels)
    odd = EEGNet(channels, times, 3, temporal_filters=3, spatial_depth=1, latent_filters=5, **own)
    check_networks(random_(odd), channels, times, levels)


@compiled
@pytest.mark.parametrize("pools", [(4, 1), (4, 5), (3, 2), (1, 8)])
def test_eegnet_with_other_pools(pools: tuple[int, int]) -> None:
    torch.manual_seed(0)
    net = EEGNet(3, 50, 3, temporal_kernel=9, log_power=True, seeds=range(3))
    net.pools = pools
    check_networks(random_(net), 3, 50, 0)


@compiled
@pytest.mark.parametrize(
    ("channels", "times", "kernel", "filters", "levels"),
    [(1, 8, 3, 32, 0), (2, 15, 64, 7, 1), (61, 128, 26, 32, 0), (8, 200, 40, 32, 0), (9, 384, 64, 1, 4),
     (3, 509, 4, 9, 0)],
)  # fmt: skip
def test_shallow(channels: int, times: int, kernel: int, filters: int, levels: int) -> None:
    torch.manual_seed(0)
    net = Shallow(channels, times, 3, temporal_kernel=kernel, filters=filters, seeds=range(3))
    check_networks(random_(net), channels, times, levels)


@compiled
def test_a_networks_power_does_not_change_its_other_codes() -> None:
    torch.manual_seed(0)
    each, x, group = (2, 3), torch.randn(1, 4, 5, 40), torch.zeros(2, dtype=torch.int64)
    spatial, temporal = torch.randn(*each, 5), torch.randn(*each, 7)
    power = torch.randn(each), torch.randn(each), torch.randn(each)
    rest = torch.randn(each), torch.randn(each), torch.randn(*each, 3), torch.randn(2, 6, 3), torch.randn(2, 6)
    alone = in_use.Networks(spatial, temporal, 0, 1e-3, 8, None, (4, 2), rest)(x, group)
    both = in_use.Networks(spatial, temporal, 0, 1e-3, 8, power, (4, 2), rest)(x, group)
    only = in_use.Networks(spatial, temporal, 0, 1e-3, 8, power)(x, group)
    assert torch.equal(both, torch.cat([alone, only], -1))


def represented(name: str) -> Fitted:
    """MiniRocket has thresholds of two groups for windows of any size."""
    spec = REPRESENTATIONS[name](64.0, (5.0, 8.0, 12.0))
    return AnyThresholds() if isinstance(spec, MiniRocket) else EveryWindow(spec)


class AnyThresholds(FittedMiniRocket):
    """Thresholds of two groups as windows come, between the convolutions of the first."""

    def __init__(self) -> None:
        super().__init__(MiniRocket(), torch.empty(2, 0, 3))

    def _fit(self, x: Tensor) -> None:
        spread = convolved(x[0]).std((0, 2))[:, None]
        self.thresholds = spread * torch.tensor([[-0.7, 0.01, 0.9]], dtype=torch.float64)
        self.thresholds = torch.stack([self.thresholds, 0.5 * self.thresholds])

    def forward(self, x: Tensor, people: Tensor | None = None) -> Tensor:
        self._fit(x)
        return super().forward(x, people)

    def few(self, x: Tensor) -> Tensor:
        self._fit(x)
        return super().few(x)


PREPARED: dict[str, Callable[[], Fitted]] = {
    "standardise": OwnScale, "append_scale": WithScale,
    **{name: partial(represented, name) for name in REPRESENTATIONS},
}  # fmt: skip
MIXED = {"rhythms", "bands", "fine_bands", "statistics", "beats"}  # channels of a window meet
WITHOUT = {"tangent", "band_tangent", "minirocket"}  # no eigenvalues, or nothing but counts


@compiled
@pytest.mark.parametrize("name", PREPARED)
@pytest.mark.parametrize(("channels", "times"), [(1, 4), (3, 5), (2, 17), (8, 200), (61, 128), (4, 511)])
def test_a_window_is_prepared_as_by_torch(name: str, channels: int, times: int) -> None:
    """With channels that are flat, far from 0, or of tiny and large amplitudes."""
    torch.manual_seed(0)
    fitted = PREPARED[name]()
    times = max(times, REPRESENTATIONS[name].shortest if name in REPRESENTATIONS else times)
    x = torch.randn(2, 3, channels, times)
    x[0, 1] = x[0, 1] * 1e-3 + 1e4
    x[1, 0, 0] = 0.3
    x[1, 1] = 0.0
    x[1, 2] *= 1e6
    found, wanted = fitted.few(x), fitted(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=2e-5)
    follower = fitted.follow()
    assert torch.equal(follower.feed(Batch(x)).x, found), "a person's windows do not take the kernel"
    turned = x.transpose(1, 3).contiguous().transpose(1, 3)
    assert torch.equal(fitted.few(turned), found)


@compiled
@pytest.mark.parametrize(("channels", "times", "classes"), [(1, 4, 2), (3, 15, 3), (8, 200, 2), (61, 129, 5)])
def test_templates(channels: int, times: int, classes: int) -> None:
    torch.manual_seed(0)
    net = TemplatesOptions().stack(Size(channels, times, classes, None), 3, range(3))
    assert isinstance(net, Templates)
    random_(net)
    for sizes, n in (([3], 1), ([1, 2], 4)):
        x = torch.randn(len(sizes), n, channels, times)
        x[0, 0] = 2.5
        found, exact = net.quick()(x, sizes), net(x, group=group_of(sizes))
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)


@compiled
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("log_power", [False, True])
def test_what_is_not_finite_stays_so_and_where_it_is(bad: float, log_power: bool) -> None:
    torch.manual_seed(0)
    nets = [
        random_(EEGNet(3, 64, 4, temporal_kernel=9, log_power=log_power, seeds=range(4))),
        random_(Shallow(3, 64, 4, temporal_kernel=9, seeds=range(4))),
    ]
    x = torch.randn(2, 3, 3, 64)
    x[1, 2, 1, 30] = bad
    for net in nets:
        z = net.quick()(x, [2, 2])
        assert not z[2:, 2].isfinite().all(-1).any()
        assert z[:2].isfinite().all()
        assert z[2:, :2].isfinite().all()
    for name, make in PREPARED.items():
        if name in WITHOUT:
            continue
        found = make().few(x)
        assert not found[1, 2].isfinite().all(), name
        assert found[0].isfinite().all()
        assert found[1, :2].isfinite().all()
        if name not in MIXED:
            assert not found[1, 2, 1].isfinite().all(), name
            assert found[1, 2, [0, 2]].isfinite().all()


@compiled
def test_windows_and_members_do_not_meet_in_any_layout() -> None:
    """Every window and member by itself gives the same bits, as do windows that lie otherwise in memory."""
    torch.manual_seed(0)
    net = random_(EEGNet(5, 77, 4, temporal_kernel=16, log_power=True, seeds=range(4)))
    x = torch.randn(2, 20, 5, 77)
    together = net.quick()(x, [1, 3])
    for n in (0, 19):
        assert torch.equal(net.quick()(x[:, n : n + 1], [1, 3]), together[:, n : n + 1])
    channel_major = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert not channel_major.is_contiguous()
    assert torch.equal(net.quick()(channel_major, [1, 3]), together)


@compiled
def test_a_few_windows_start_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = torch.get_num_threads(), []
    monkeypatch.setattr(in_use, "run_on", lambda threads, *rest: asked.append(threads))
    net = random_(EEGNet(61, 512, 2, temporal_kernel=16, seeds=range(2)))
    try:
        torch.set_num_threads(2)
        for n in (1, in_use.FEW, in_use.FEW + 1):
            net.quick()(torch.randn(1, n, 61, 512), [2])
    finally:
        torch.set_num_threads(before)
    assert asked == [1, 1, 2]


def noting(called: set[str], name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def noted(*given: object) -> Tensor:
        called.add(name)
        return function(*given)

    return noted


@compiled
@pytest.mark.parametrize("preprocessing", ["zero-shot", "online"])
def test_a_session_without_kernels_says_the_same(preprocessing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.latency import random_mixture

    model = random_mixture(4, 40, 40.0, preprocessing)
    windows = np.random.default_rng(0).standard_normal((8, 4, 40)).astype(np.float32)
    windows[3, 1] = 2.0

    called: set[str] = set()
    for name, function in vars(in_use.operations).items():
        monkeypatch.setattr(in_use.operations, name, noting(called, name, function))

    def said() -> list[np.ndarray]:
        session = at.Session(model, adapt=True)
        return [*(session.predict_proba(window) for window in windows), at.Session(model).predict_proba(windows)]

    ours = said()
    assert called >= {"networks", "features", "tangent", "standardise"}
    monkeypatch.setenv("AUTOTRANSFER_KERNELS", "0")
    assert not cpu.available(torch.ones(1))
    called.clear()
    theirs = said()
    assert not called
    np.testing.assert_allclose(ours[-1], theirs[-1], atol=2e-6)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):  # whom the first few windows follow, with what these round
        np.testing.assert_allclose(a, b, atol=1e-4)


@compiled
def test_only_float32_windows_on_a_cpu_have_kernels() -> None:
    x: Tensor = torch.randn(1, 2, 3, 8)
    assert in_use.few(x)
    assert not in_use.few(x.double())
    assert not in_use.few(x.to("meta"))
    assert not in_use.few(x.expand(1, -1, -1, -1).repeat(1, in_use.FEW, 1, 1))
    assert torch.equal(OwnScale().follow().feed(Batch(x.double())).x, OwnScale()(x.double()))
