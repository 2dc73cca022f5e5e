"""Augmentations: random changes of preprocessed windows in training steps, which reduce overfitting.

To add an augmentation, write a file with a subclass of `Augmentation` (of `Scaling` if it multiplies channels by
factors) and add a line to AUGMENTATIONS. Random numbers must be functions of the given keys, so that the outcome of a
job does not depend on other jobs in the stack.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..errors import is_off, plain_value
from .amplitude import Amplitude
from .augmentation import Augmentation, Scaling, TrainingBatch
from .channel_mask import ChannelMask
from .mixup import Mixup

__all__ = ["AUGMENTATIONS", "Augmentation", "Scaling", "TrainingBatch", "augmentation_of", "augmentation_values"]

# The key is the keyword of a Setting. Augmentations are applied in this order, so that masked channels stay zero.
AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "mixup": Mixup,
    "amplitude": Amplitude,
    "channel_mask": ChannelMask,
}


def augmentation_of(values: dict[str, Any]) -> tuple[Augmentation, ...]:
    """Return the augmentations of a setting from its keywords."""
    augmentations = []
    for name, cls in AUGMENTATIONS.items():
        first, *other_fields = fields(cls)
        value = plain_value(values.get(name))
        if not is_off(value):
            options = {field.name: values[field.name] for field in other_fields if field.name in values}
            augmentations.append(cls(**{first.name: value} | options))
    return tuple(augmentations)


def augmentation_values(augmentations: tuple[Augmentation, ...]) -> dict[str, Any]:
    """Return the keywords of a setting that make these augmentations."""
    values: dict[str, Any] = {}
    for name, cls in AUGMENTATIONS.items():
        for augmentation in augmentations:
            if type(augmentation) is cls:
                first, *other_fields = fields(cls)
                values[name] = getattr(augmentation, first.name)
                values |= {field.name: getattr(augmentation, field.name) for field in other_fields}
    return values
