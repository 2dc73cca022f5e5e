"""The keywords of a setting: every field of its parts under one name."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable
from typing import Any

from ..augment import AUGMENTATIONS, Augmentation, augmentation_values
from ..censoring import CENSORS
from ..errors import UserError, shown
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, OwnEncoder
from ..preprocessing import TRANSFORMS, Preprocessing
from ..schema import fields_of
from .fields import flat
from .penalty import Penalty
from .training import Training

RENAMED_VALUES = {
    "standardise": {"channel": "train", "subject": "transductive", "running": "online"},
    "align": {"subject": "transductive", "running": "online"},
}


def field_names() -> list[str]:
    """Every keyword of a Setting, in the order of tables."""
    censors = [field.name for kind in CENSORS.values() for field in fields_of(kind.Options)]
    encoders = [field.name for kind in ENCODERS.values() for field in fields_of(kind)]
    chains: Iterable[type] = (*TRANSFORMS.values(), *AUGMENTATIONS.values())
    extra = [field.name for kind in chains for field in fields_of(kind)[1:]]
    penalty = [field.name for field in fields_of(Penalty) if field.name != "options"]
    training = [field.name for field in fields_of(Training)]
    names = [*penalty[:3], *censors, *penalty[3:], "encoder", *encoders, *TRANSFORMS, *AUGMENTATIONS, *extra, *training]
    return list(dict.fromkeys(names))


def values_of(
    penalty: Penalty | None = None,
    network: EncoderOptions | None = None,
    preprocessing: Preprocessing | None = None,
    augmentation: tuple[Augmentation, ...] = (),
    training: Training | None = None,
) -> dict[str, Any]:
    """The keywords of parts, without those that are None."""
    values: dict[str, Any] = {}
    if penalty is not None:
        values |= {name: value for name, value in flat(penalty).items() if name != "options"}
        values |= flat(penalty.options)
    if network is not None and not isinstance(network, OwnEncoder):
        values |= flat(network)
    if preprocessing is not None:
        values |= preprocessing.values()
    values |= augmentation_values(augmentation)
    if training is not None:
        values |= flat(training)
    return {name: value for name, value in values.items() if value is not None}


def check_known(given: dict[str, Any]) -> None:
    """Raise where one is no keyword of a Setting."""
    known = field_names()
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
            raise UserError(f"a setting has no field {name!r} (given {shown(value)}); {hint}")


def renamed_value(name: str, value: Any) -> Any:
    """A value in today's spelling."""
    new = RENAMED_VALUES[name].get(value, value) if isinstance(value, str) else value
    if new != value:
        warnings.warn(f"{name}={value!r} is called {new!r} now", FutureWarning, stacklevel=4)
    return new
