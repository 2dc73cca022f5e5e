"""Which network encodes: EEGNet, or a module of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UserError, shown
from ..settings import Setting
from .any_module import AnyModule, Factory
from .eegnet import EEGNet, temporal_kernel_for
from .reading import Reading

Encoders = Mapping[str, Factory]  # users' factories by the name that Setting.encoder gives
Encoder = EEGNet | AnyModule


def kernel_of(setting: Setting, sfreq: float | None) -> int:
    """Length of EEGNet's temporal filters; 0 for other encoders."""
    if setting.encoder != "eegnet":
        return 0
    usual = temporal_kernel_for(sfreq)
    if isinstance(setting.temporal_kernel, str):  # "half"
        return max(3, usual // 2)
    return setting.temporal_kernel or usual


def reading_of(setting: Setting) -> Reading:
    return Reading(setting.compress, setting.levels)


def moments_of(setting: Setting, sfreq: float | None) -> int:
    """The filter length for which moments of the windows can be known beforehand; 0: nobody needs them, or the network
    changes its windows first."""
    return kernel_of(setting, sfreq) if reading_of(setting).as_is else 0


def find_factory(name: str, encoders: Encoders | None) -> Factory:
    if encoders is None or name not in encoders:
        known = ", ".join(repr(known) for known in ("eegnet", *(encoders or ())))
        raise UserError(
            f"the encoder {shown(name)} is not known here; give its factory (encoders={{{shown(name)}: …}}, or "
            f"--encoder module:function on the command line), or choose from {known}"
        )
    return encoders[name]


def make_encoder(
    setting: Setting,
    encoders: Encoders | None,
    *,
    n_channels: int,
    n_times: int,
    n_classes: int,
    sfreq: float | None,
    kernel: int,
    members: int,
    seeds: Sequence[int],
) -> Encoder:
    """P members of the setting's network, each with the weights of its own seed."""
    if setting.encoder == "eegnet":
        return EEGNet(
            n_channels, n_times, members, temporal_kernel=kernel, temporal_filters=setting.temporal_filters,
            spatial_depth=setting.spatial_depth, latent_filters=setting.latent_filters, reading=reading_of(setting),
            power=setting.power, seeds=seeds,
        )  # fmt: skip
    factory = find_factory(setting.encoder, encoders)
    return AnyModule(factory, n_channels, n_times, members, n_outputs=n_classes, sfreq=sfreq, seeds=seeds)
