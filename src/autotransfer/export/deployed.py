"""A saved model as one plain module: raw windows in, probabilities out, ordinary operations only.

Training needs a network that is quick backwards; a deployed one needs a graph that any runtime can read. All of
EEGNet's normalisations use stored statistics here, so they are folded into the filters beside them, in float64,
and the whole ensemble is five convolutions whose groups are its members. A user's own modules run in turn.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from ..model.any_module import AnyModule
from ..model.eegnet import EEGNet
from ..model.layers import BatchNorm
from ..model.moments import padding
from ..model.power import log_power
from ..model.reading import read
from ..runs.saved_model import SavedModel

# Of the axes (windows, channels, times), those that share one mean and deviation.
POOLED_AXES = {"trial": (2,), "subject": (0, 2)}


def deployed(saved: SavedModel) -> nn.Module:
    """Raw windows (N, channels, times) float32, N ≥ 1 -> probabilities (N, classes): the mean over members.

    Standardisation happens inside. With standardise="subject" the windows of one call are taken as one person's,
    as `SavedModel.predict_proba` does when it is not told whose they are.
    """
    refuse_adaptive(saved)
    module = FoldedEEGNets(saved, saved.net) if isinstance(saved.net, EEGNet) else InTurn(saved, saved.net)
    return module.eval()


def refuse_adaptive(saved: SavedModel) -> None:
    """A graph has no memory of a person's earlier windows, and runtimes have no R^{-1/2}."""
    setting = saved.setting
    if setting.adaptation == "running" or setting.align != "none":
        raise UserError(
            f"the model adapts to every new person (standardise={setting.standardise!r}, align={setting.align!r}), "
            "which a graph cannot do; use the format safetensors with at.load_model, or train without it"
        )


class FoldedEEGNets(nn.Module):
    """All members as one chain of grouped convolutions; axis 1 of every signal is member × filter."""

    centre: Tensor
    shift: Tensor
    gain: Tensor
    spatial: Tensor
    spatial_bias: Tensor
    temporal: Tensor
    temporal_bias: Tensor
    scale: Tensor
    power_scale: Tensor
    power_shift: Tensor
    depthwise: Tensor
    pointwise: Tensor
    pointwise_bias: Tensor
    head: Tensor
    head_bias: Tensor

    def __init__(self, saved: SavedModel, net: EEGNet) -> None:
        super().__init__()
        self.kind, self.reading, self.power = saved.setting.standardise, net.reading, net.power_norm is not None
        self.members, self.n_classes, self.pools = saved.card.members, len(saved.card.classes), net.pools
        self.temporal_padding, self.depthwise_padding = padding(net.kernel), padding(net.depthwise.shape[-1])
        for name, tensor in folded(saved, net).items():
            self.register_buffer(name, tensor.to(torch.float32).contiguous())

    def forward(self, windows: Tensor) -> Tensor:
        wide = self.spatial.shape[0]
        x = standardised(windows, self.kind) if self.kind in POOLED_AXES else windows - self.centre
        if self.reading.as_is:
            h = F.conv1d(x, self.spatial, self.spatial_bias)
        else:  # every member's own windows, side by side as channels
            own = (x[:, None] - self.shift) * self.gain
            read_by_all = read(own, self.reading).flatten(1, 2)
            h = F.conv1d(read_by_all, self.spatial, groups=self.members)
        h = F.pad(h, self.temporal_padding)
        if self.power:
            v = F.conv1d(h, self.temporal, groups=wide)
            power = log_power(F.avg_pool1d(v.square(), self.pools[0]), self.pools[1])
            power = power * self.power_scale + self.power_shift
            h = v * self.scale + self.temporal_bias[:, None]
        else:
            power = None
            h = F.conv1d(h, self.temporal, self.temporal_bias, groups=wide)
        h = F.avg_pool1d(F.elu(h), self.pools[0])
        h = F.conv1d(F.pad(h, self.depthwise_padding), self.depthwise, groups=wide)
        h = F.conv1d(h, self.pointwise, self.pointwise_bias, groups=self.members)
        h = F.avg_pool1d(F.elu(h), self.pools[1])
        if power is not None:  # a member's code is its filters, then its powers
            h = torch.cat([part.reshape(h.shape[0], self.members, -1) for part in (h, power)], 2)
        logits = F.conv1d(h.flatten(1).unsqueeze(2), self.head, self.head_bias, groups=self.members)
        return logits.reshape(-1, self.members, self.n_classes).softmax(-1).mean(1)


def standardised(windows: Tensor, kind: str) -> Tensor:
    """(N, channels, times) by each window's own statistics, or those of all windows given: recordings.standardise
    without its groups. Statistics are float64, as there: a large offset leaves few digits of float32 for the rest.

    A flat channel needs no rule of its own to become 0: its float64 mean, rounded to float32, is its very value, and
    the bound on the gain keeps 0 · gain a number.
    """
    axes = POOLED_AXES[kind]
    exact = windows.to(torch.float64)
    mean = exact.mean(axes, keepdim=True)
    deviation = (exact - mean).square().mean(axes, keepdim=True).sqrt()
    gain = (1 / deviation).clamp(max=torch.finfo(torch.float32).max)
    return (windows - mean.to(torch.float32)) * gain.to(torch.float32)


@torch.no_grad()
def folded(saved: SavedModel, net: EEGNet) -> dict[str, Tensor]:
    """The tensors of `FoldedEEGNets`, float64. P members, W filters each, of C channels or of those and their
    levels.

    Standardisation "channel" goes into the spatial filters: they act on windows less `centre`, the members' mean
    shift, so that a large offset is gone before anything is multiplied.
    """
    classifier = saved.classifier
    members, wide, inputs = net.spatial.shape
    channels = net.n_channels
    spatial = net.spatial.double()
    scale1, shift1 = _affine(net.norm1)  # (P, F1); every temporal filter serves `depth` spatial ones
    scale2, shift2 = _affine(net.norm2)
    scale3, shift3 = _affine(net.norm3)
    temporal = (net.temporal.double() * scale1[..., None]).repeat_interleave(net.depth, 1)
    powers = {}
    if net.power_norm is None:
        temporal = temporal * scale2[..., None]
    else:  # power is that of signals before they are normalised
        names = ("scale", "power_scale", "power_shift")
        powers = dict(zip(names, (t.reshape(-1, 1) for t in (scale2, *_affine(net.power_norm))), strict=True))
    offset = shift1.repeat_interleave(net.depth, 1) * spatial.sum(-1)

    centre = spatial.new_zeros(channels)
    spatial_bias = spatial.new_zeros(members, wide)
    shift, gain = spatial.new_zeros(members, channels), spatial.new_ones(members, channels)
    if saved.shift is not None and saved.gain is not None:
        shift, gain = saved.shift.double(), saved.gain.double()  # (P, C)
        centre = shift.mean(0).to(torch.float32).double()  # as the graph will hold it
    if net.reading.as_is:
        spatial = spatial * gain[:, None]
        spatial_bias = (spatial * (centre - shift)[:, None]).sum(-1)
    return {
        "centre": centre[:, None],
        "shift": (shift - centre)[..., None],  # used only where windows are not read as they are
        "gain": gain[..., None],
        "spatial": spatial.reshape(members * wide, inputs, 1),
        "spatial_bias": spatial_bias.flatten(),
        "temporal": temporal.reshape(members * wide, 1, net.kernel),
        "temporal_bias": (offset * scale2 + shift2).flatten(),
        **powers,
        "depthwise": net.depthwise.double().reshape(members * wide, 1, -1),
        "pointwise": (net.pointwise.double() * scale3[..., None]).reshape(-1, wide, 1),
        "pointwise_bias": shift3.flatten(),
        "head": classifier.weight.double().reshape(-1, net.latent_dim, 1),
        "head_bias": classifier.bias.double().flatten(),
    }


def _affine(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """The stored normalisation as scale and shift (P, F), float64."""
    scale = norm.weight.double() * (norm.running_var.double() + norm.eps).rsqrt()
    return scale, norm.bias.double() - norm.running_mean.double() * scale


class InTurn(nn.Module):
    """A user's own encoders, one copy a member, each followed by its linear classifier."""

    shift: Tensor
    gain: Tensor
    head: Tensor
    head_bias: Tensor

    def __init__(self, saved: SavedModel, net: AnyModule) -> None:
        super().__init__()
        self.kind = saved.setting.standardise
        self.encoders = nn.ModuleList(member_of(net.module, member) for member in range(saved.card.members))
        size = (saved.card.members, len(saved.card.channels))
        self.register_buffer("shift", torch.zeros(size) if saved.shift is None else saved.shift)
        self.register_buffer("gain", torch.ones(size) if saved.gain is None else saved.gain)
        self.register_buffer("head", saved.classifier.weight.detach())
        self.register_buffer("head_bias", saved.classifier.bias.detach())

    def forward(self, windows: Tensor) -> Tensor:
        x = standardised(windows, self.kind) if self.kind in POOLED_AXES else windows
        probabilities = []
        for member, encoder in enumerate(self.encoders):
            own = x
            if self.kind == "channel":
                own = (x - self.shift[member, :, None]) * self.gain[member, :, None]
            logits = F.linear(encoder(own).flatten(1), self.head[member], self.head_bias[member])
            probabilities.append(logits.softmax(-1))
        return torch.stack(probabilities).mean(0)


def member_of(stack: nn.Module, member: int) -> nn.Module:
    """One member of a module whose parameters and floating buffers have members on axis 0."""
    alone = copy.deepcopy(stack)
    for layer in alone.modules():
        for key, parameter in layer._parameters.items():
            if parameter is not None:
                layer._parameters[key] = nn.Parameter(parameter.detach()[member].clone(), requires_grad=False)
        for key, buffer in layer._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                layer._buffers[key] = buffer[member].clone()
    return alone
