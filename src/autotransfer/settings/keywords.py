"""Keywords of a setting: the fields of all its parts."""

from __future__ import annotations

from typing import Any

from ..augment import AUGMENTATIONS, Augmentation, augmentation_values
from ..censoring import CENSORS
from ..errors import UserError, shown, suggest
from ..model.encoder import EncoderOptions
from ..model.encoders import ENCODERS, CustomEncoderOptions
from ..preprocessing import TRANSFORMS, Preprocessing
from ..schema import fields_of
from .fields import field_values
from .penalty import Penalty
from .training import Training


def field_names() -> list[str]:
    """Return the names of all keywords in the order of the columns of results.csv."""
    steps = TRANSFORMS | AUGMENTATIONS  # each has a keyword with its name, and keywords for further fields
    penalty = [name for name in _names(Penalty) if name != "options"]
    censors = [name for cls in CENSORS.values() for name in _names(cls.Options)]
    encoders = [name for cls in ENCODERS.values() for name in _names(cls)]
    step_fields = [name for cls in steps.values() for name in _names(cls)[1:]]
    names = [*penalty[:3], *censors, *penalty[3:], "encoder", *encoders, *steps, *step_fields, *_names(Training)]
    return list(dict.fromkeys(names))


def _names(cls: type) -> list[str]:
    return [field.name for field in fields_of(cls)]


def values_of(
    penalty: Penalty | None = None,
    network: EncoderOptions | None = None,
    preprocessing: Preprocessing | None = None,
    augmentation: tuple[Augmentation, ...] = (),
    training: Training | None = None,
) -> dict[str, Any]:
    """Return the keywords from which these parts are made, without keywords that are None."""
    values: dict[str, Any] = {}
    if penalty is not None:
        values |= {name: value for name, value in field_values(penalty).items() if name != "options"}
        values |= field_values(penalty.options)
    if network is not None and not isinstance(network, CustomEncoderOptions):
        values |= field_values(network)
    if preprocessing is not None:
        values |= preprocessing.to_values()
    values |= augmentation_values(augmentation)
    if training is not None:
        values |= field_values(training)
    return {name: value for name, value in values.items() if value is not None}


def check_names(keywords: dict[str, Any]) -> None:
    """Raise if a name is not a keyword of `Setting`."""
    names = field_names()
    for name, value in keywords.items():
        if name not in names:
            raise UserError(f"a setting has no field {name!r} (given {shown(value)}); {suggest(name, names)}")
