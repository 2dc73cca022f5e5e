"""The keywords of a setting: every field of its parts under one name."""

from __future__ import annotations

from typing import Any

from ..augment import AUGMENTATIONS, Augmentation, augmentation_values
from ..censoring import CENSORS
from ..errors import UserError, shown, suggest
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, CustomEncoderOptions
from ..preprocessing import TRANSFORMS, Preprocessing
from ..schema import fields_of
from .fields import flat
from .penalty import Penalty
from .training import Training


def field_names() -> list[str]:
    """Return the names of all keywords in the order of the columns of results.csv."""
    chains = TRANSFORMS | AUGMENTATIONS
    penalty = [name for name in _names(Penalty) if name != "options"]
    censors = [name for kind in CENSORS.values() for name in _names(kind.Options)]
    encoders = [name for kind in ENCODERS.values() for name in _names(kind)]
    others = [name for kind in chains.values() for name in _names(kind)[1:]]
    names = [*penalty[:3], *censors, *penalty[3:], "encoder", *encoders, *chains, *others, *_names(Training)]
    return list(dict.fromkeys(names))


def _names(kind: type) -> list[str]:
    return [field.name for field in fields_of(kind)]


def values_of(
    penalty: Penalty | None = None,
    network: EncoderOptions | None = None,
    preprocessing: Preprocessing | None = None,
    augmentation: tuple[Augmentation, ...] = (),
    training: Training | None = None,
) -> dict[str, Any]:
    """Return the keywords that make these parts, without those that are None."""
    values: dict[str, Any] = {}
    if penalty is not None:
        values |= {name: value for name, value in flat(penalty).items() if name != "options"}
        values |= flat(penalty.options)
    if network is not None and not isinstance(network, CustomEncoderOptions):
        values |= flat(network)
    if preprocessing is not None:
        values |= preprocessing.to_values()
    values |= augmentation_values(augmentation)
    if training is not None:
        values |= flat(training)
    return {name: value for name, value in values.items() if value is not None}


def check_known(given: dict[str, Any]) -> None:
    """Raise if a name is not a keyword of `Setting`."""
    known = field_names()
    for name, value in given.items():
        if name not in known:
            raise UserError(f"a setting has no field {name!r} (given {shown(value)}); {suggest(name, known)}")
