"""Registry of encoders by name, and encoders from a user's factory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from ..errors import UserError, shown
from .any_module import Factory, build
from .closed_form import LinearOptions
from .eegnet import EEGNetOptions
from .encoder import EncoderOptions
from .evoked import EvokedOptions
from .shallow import ShallowOptions
from .stack import Size
from .templates import TemplatesOptions
from .trees import BoostingOptions, TreesOptions

Encoders = Mapping[str, Factory]  # users' factories by their name in Setting.encoder

ENCODERS: dict[str, type[EncoderOptions]] = {
    "eegnet": EEGNetOptions,
    "shallow": ShallowOptions,
    "linear": LinearOptions,
    "templates": TemplatesOptions,
    "evoked": EvokedOptions,
    "trees": TreesOptions,
    "boosting": BoostingOptions,
}


@dataclass(frozen=True, kw_only=True)
class CustomEncoderOptions(EncoderOptions):
    """Options of an encoder that a user's factory builds."""

    factory: Callable[..., nn.Module] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Skip the check of types, which does not support callables."""

    def module(self, size: Size) -> nn.Module:
        assert self.factory is not None
        return build(self.factory, size)

    def program(self, sfreq: float | None) -> tuple[object, ...]:
        return ()


def encoder_options(name: str, options: EncoderOptions, encoders: Encoders | None) -> EncoderOptions:
    """Return the options if the encoder is registered, otherwise options with the user's factory."""
    return options if name in ENCODERS else CustomEncoderOptions(factory=find_factory(name, encoders))


def find_factory(name: str, encoders: Encoders | None) -> Factory:
    if encoders is None or name not in encoders:
        names = ", ".join(map(repr, (*ENCODERS, *(encoders or ()))))
        raise UserError(
            f"the encoder {shown(name)} is not registered; give its factory (encoders={{{shown(name)}: …}}, or "
            f"--encoder module:function on the command line), or choose from {names}"
        )
    return encoders[name]
